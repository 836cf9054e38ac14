"""Warnings before a compaction, and the context after it."""

from __future__ import annotations

import pytest

from scratchbus.context.compaction import WARNING, Warnings, after_compaction
from scratchbus.domain.todo import TodoItem
from scratchbus.errors import InvalidField


@pytest.fixture
def warnings():
    return Warnings(0.8)


def test_an_agent_is_warned_once_at_the_threshold(warnings):
    assert [warnings.should_warn(used, 100, None) for used in (0, 79, 80, 90, 99)] == [False, False, True, False, False]


def test_the_smallest_limit_is_one_token(warnings):
    assert warnings.should_warn(1, 1, None)
    with pytest.raises(InvalidField, match="limit"):
        warnings.should_warn(1, 0, None)


def test_an_agent_is_warned_again_after_a_compaction(warnings):
    assert warnings.should_warn(85, 100, None)
    warnings.forget(None)
    assert warnings.should_warn(85, 100, None)


def test_shrinking_by_a_quarter_counts_as_a_compaction(warnings):
    assert warnings.should_warn(85, 100, None)
    assert not warnings.should_warn(78, 100, None)
    assert not warnings.should_warn(85, 100, None)
    assert not warnings.should_warn(60, 100, None)
    assert warnings.should_warn(85, 100, None)


def test_each_session_has_its_own_warning(warnings):
    assert warnings.should_warn(85, 100, "s1")
    assert warnings.should_warn(85, 100, "s2")
    assert not warnings.should_warn(85, 100, "s1")


@pytest.mark.parametrize(("used", "limit"), [(-1, 100), ("1", 100), (1, 0), (float("nan"), 100), (True, 100)])
def test_invalid_numbers_are_refused(warnings, used, limit):
    with pytest.raises(InvalidField):
        warnings.should_warn(used, limit, None)


def test_the_warning_has_the_specified_text():
    assert WARNING == (
        "[System] Context is approaching the token limit and will be compacted after your next response. "
        "Review your session notepad and update it with any working state, findings, or progress you "
        "need to preserve. Conversation details may be summarized during compaction, but the notepad "
        "is kept in full."
    )


def test_the_notepad_and_open_todos_follow_a_compaction():
    todos = [
        TodoItem(id="1", content="survey", status="completed"),
        TodoItem(id="2", content="fix", status="in_progress"),
    ]
    assert after_compaction("You are an analyst.", "Two sheets were read.", "## Plan\n- fix", todos) == (
        "You are an analyst.\n\n"
        "## Conversation Summary\nTwo sheets were read.\n\n"
        "## Session Notepad\n## Plan\n- fix\n\n"
        "[Your active task list was preserved across context compression]\n- [>] 2. fix (in_progress)"
    )


def test_an_empty_notepad_is_explained_after_a_compaction():
    text = after_compaction("", "", "", [])
    assert text.startswith("## Session Notepad\n(empty — ")
    assert "write_notepad" in text
    assert "update_notepad" in text
    assert "survives context compaction" in text
