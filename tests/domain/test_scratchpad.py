"""Scratchpads: what agents are shown, what they are asked, and how their answers are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.scratchpad import MAX_CONTENT, check_content, end_of_run_prompt, parse_reply, section
from scratchbus.errors import InvalidField, TooLarge


def test_the_section_shows_the_content_below_its_heading():
    assert section("remember the milk") == "## Your Scratchpad\n\nremember the milk"


def test_an_empty_scratchpad_shows_a_hint_that_says_how_to_fill_it():
    assert section("") == (
        "## Your Scratchpad\n\n"
        "_Your scratchpad is empty. Use the `update_scratchpad` action to save notes for your future self._"
    )


def test_the_prompt_says_what_happened():
    text = end_of_run_prompt("Count the beans", "completed", "There are {42}.", 7)
    assert text.startswith(
        "## Task Complete\n\n"
        "**Task**: Count the beans\n"
        "**Outcome**: completed\n"
        "**Summary**: There are {42}.\n"
        "**Steps taken**: 7\n"
    )


def test_the_prompt_is_that_of_its_document_and_says_that_the_answer_replaces_everything():
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
        ('{"scratchpad": 42}', "42"),
        ('{"scratchpad": ""}', None),
        ('{"scratchpad": " \\n "}', None),
        ('{"scratchpad": false}', None),
        ('{"scratchpad": []}', None),
        ('{"scratchpad": null}', None),
        ('```json\n{"scratchpad": null}\n```', None),
        ("null", None),
        ("```json\nnull\n```", None),
    ],
)
def test_replies_are_read_as_they_are_meant(reply, content):
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
def test_garbage_is_refused_in_one_line(reply):
    with pytest.raises(InvalidField) as refused:
        parse_reply(reply)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_reply_that_is_too_long_is_cut():
    assert parse_reply(json.dumps({"scratchpad": "é" * 50_000})) == "é" * MAX_CONTENT
    assert MAX_CONTENT == 10_000


@given(st.text())
def test_whatever_a_model_writes_is_read_back(text):
    cut = text[:MAX_CONTENT]
    expected = cut if cut.strip() else None
    assert parse_reply("Here:\n```json\n" + json.dumps({"scratchpad": text}) + "\n```") == expected


@given(st.text('{}[]",:\\`nulscratchpad \n'))
def test_whatever_a_model_answers_is_text_or_none_or_refused(reply):
    try:
        content = parse_reply(reply)
    except InvalidField:
        return
    assert content is None or isinstance(content, str)


def test_what_is_written_directly_is_never_cut():
    assert check_content("x" * MAX_CONTENT) == "x" * MAX_CONTENT
    with pytest.raises(TooLarge, match=r"^Scratchpad content exceeds maximum length of 10000 characters ") as refused:
        check_content("x" * (MAX_CONTENT + 1))
    assert (refused.value.size, refused.value.limit) == (10_001, 10_000)


def test_blank_content_is_none_at_all():
    assert check_content(" \n\t") == ""


@pytest.mark.parametrize("content", [None, 7, b"x", "\ud800"])
def test_only_a_text_can_be_written(content):
    with pytest.raises(InvalidField):
        check_content(content)
