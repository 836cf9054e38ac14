"""Scratchpads: the section that agents see, the prompt after a run, and replies to it."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.scratchpad import MAX_CONTENT, check_content, end_of_run_prompt, parse_reply, section, whoami
from scratchbus.errors import InvalidField, TooLarge


def test_the_section_shows_the_content_below_its_heading():
    assert section("remember the milk") == "## Your Scratchpad\n\nremember the milk"


def test_an_empty_scratchpad_shows_how_to_fill_it():
    assert section("") == (
        "## Your Scratchpad\n\n"
        "_Your scratchpad is empty. Use the `update_scratchpad` action to save notes for your future self._"
    )


def test_the_prompt_summarizes_the_run():
    text = end_of_run_prompt("Count the beans", "completed", "There are {42}.", 7)
    assert text.startswith(
        "## Task Complete\n\n"
        "**Task**: Count the beans\n"
        "**Outcome**: completed\n"
        "**Summary**: There are {42}.\n"
        "**Steps taken**: 7\n"
    )


@pytest.mark.parametrize(
    ("steps", "line"), [(None, ""), (0, "**Steps taken**: 0\n"), ([], "**Steps taken**: 0\n")], ids=repr
)
def test_the_prompt_leaves_out_an_unknown_number_of_steps(steps, line):
    assert f"\n**Summary**: s\n{line}\nPlease update" in end_of_run_prompt("t", "error", "s", steps)


@pytest.mark.parametrize(
    ("field", "value"),
    [("task", 7), ("task", "\ud800"), ("outcome", None), ("summary", b"x"), ("steps", -1), ("steps", True)],
)
def test_the_prompt_refuses_invalid_arguments(field, value):
    with pytest.raises(InvalidField) as refused:
        end_of_run_prompt(**{"task": "t", "outcome": "error", "summary": "s", field: value})
    assert refused.value.field == field


def test_an_introduction_has_the_scratchpad_of_a_subagent_alone():
    assert whoami("bo", "person", None) == "You are bo, a person."
    assert whoami("bo", "subagent", "x") == "You are bo, a subagent.\n\n## Your Scratchpad\n\nx"


def test_the_prompt_is_the_specified_text_with_one_addition():
    text = end_of_run_prompt("t", "error", "s", ["a", "b"])
    ours = (
        "Your answer replaces the whole scratchpad, so repeat what you want to keep. The limit is 10000 characters.\n\n"
    )
    assert (
        text.replace(ours, "", 1)
        == """\
## Task Complete

**Task**: t
**Outcome**: error
**Summary**: s
**Steps taken**: 2

Please update your scratchpad with any context that would help your future self.
This might include:
- Key learnings from this task
- Important context discovered
- Work in progress or follow-ups needed
- User preferences observed

Respond with JSON:
```json
{"scratchpad": "your updated scratchpad content"}
```

If you have nothing to add, respond with:
```json
{"scratchpad": null}
```
"""
    )
    assert ours in text


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ('{"scratchpad": "bare"}', "bare"),
        ('```json\n{"scratchpad": "fenced"}\n```', "fenced"),
        ('```\n{"scratchpad": "fenced without a word"}\n```', "fenced without a word"),
        ('Sure, here it is:\n```JSON\n{"scratchpad": "with words"}\n```\nThat is all.', "with words"),
        ('I write {"scratchpad": "in the middle"} and stop', "in the middle"),
        ('{"thought": {"a": 1}, "scratchpad": "among others"}', "among others"),
        ('a {set} of {braces}, then {"scratchpad": "last"}', "last"),
        ('either {"scratchpad": null} or\n```json\n{"scratchpad": "the fence counts"}\n```', "the fence counts"),
        (json.dumps({"scratchpad": "has ``` in it\n```json\n{}\n```"}), "has ``` in it\n```json\n{}\n```"),
        ('```json\n{"scratchpad": "line\nends and\ttabs as they are"}\n```', "line\nends and\ttabs as they are"),
        ('{"scratchpad": "half a \\ud83d character"}', "half a ? character"),
        ('{"scratchpad": "\\ud83d\\ude00"}', "😀"),
        ('{"scratchpad": ["one", "two"]}', '["one", "two"]'),
        ('{"scratchpad": {"città": "Zürich"}}', '{"città": "Zürich"}'),
        ('{"scratchpad": 42}', "42"),
        ('{"scratchpad": ""}', None),
        ('{"scratchpad": " \\n "}', None),
        ('{"scratchpad": false}', None),
        ('{"scratchpad": []}', None),
        ('{"scratchpad": null}', None),
        ('```json\n{"scratchpad": null}\n```', None),
        ("null", None),
        ("```json\nnull\n```", None),
        (" \n```\n null \n```\n", None),
    ],
)
def test_a_reply_is_parsed(reply, content):
    assert parse_reply(reply) == content


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Notepad is up to date.",
        "{",
        '{"scratchpad": "cut off',
        '{"notes": "x"}',
        "[1, 2]",
        "{}",
        '{"scratchpad": ' + "9" * 10_000 + "}",
        '{"a":' * 100_000,
        "{" * 100_000,
        None,
        7,
        b'{"scratchpad": "x"}',
    ],
)
def test_an_invalid_reply_is_refused_in_one_line(reply):
    with pytest.raises(InvalidField) as refused:
        parse_reply(reply)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_reply_of_blanks_is_refused_in_linear_time():
    start = time.thread_time()
    with pytest.raises(InvalidField, match="has no JSON like"):
        parse_reply("\n" * 100_000)
    assert time.thread_time() - start < 1


def test_a_long_reply_is_truncated():
    assert parse_reply(json.dumps({"scratchpad": "é" * 50_000})) == "é" * MAX_CONTENT
    assert MAX_CONTENT == 10_000


@given(st.text())
def test_any_content_of_a_json_reply_is_read(text):
    cut = text[:MAX_CONTENT]
    expected = cut if cut.strip() else None
    assert parse_reply("Here:\n```json\n" + json.dumps({"scratchpad": text}) + "\n```") == expected


@given(st.text('{}[]",:\\`nulscratchpad \n'))
def test_any_reply_is_text_none_or_refused(reply):
    try:
        content = parse_reply(reply)
    except InvalidField:
        return
    assert content is None or isinstance(content, str)


def test_a_long_direct_write_is_refused_instead_of_truncated():
    assert check_content("x" * MAX_CONTENT) == "x" * MAX_CONTENT
    with pytest.raises(TooLarge, match=r"^Scratchpad content exceeds maximum length of 10000 characters ") as refused:
        check_content("x" * (MAX_CONTENT + 1))
    assert (refused.value.size, refused.value.limit) == (10_001, 10_000)


def test_blank_content_becomes_empty():
    assert check_content(" \n\t") == ""


@pytest.mark.parametrize("content", [None, 7, b"x", "\ud800"])
def test_content_must_be_valid_text(content):
    with pytest.raises(InvalidField) as refused:
        check_content(content)
    assert refused.value.field == "scratchpad"
