"""Checkboxes of a Markdown file are found, and edits leave the rest of it unchanged."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.workspace.checklist import Entry, Slot, content_of, edited, entries, on_one_line, parse

FILE = """\
---
title: mine
---
Plan
====

Some *text*,   with   spaces.

* [ ] first
  goes on here
* [X]  second
    + [>] nested
    + [/] other
* plain
* [-] dropped\t

> 1. [ ] quoted
>    too

```
- [ ] code
```
    - [ ] indented code
"""


def slots(text: str, **changed: Entry | None) -> list[Slot]:
    """Return the items of a text, some of them changed by their text; None removes one."""
    found = []
    for number, entry in enumerate(entries(text)):
        wanted = changed.get(entry.text, entry)
        if wanted is not None:
            found.append(Slot(wanted, number))
    return found


def test_items_are_list_entries_with_a_checkbox():
    assert entries(FILE) == [
        ("first goes on here", "pending"),
        ("second", "completed"),
        ("nested", "in_progress"),
        ("other", "in_progress"),
        ("dropped", "cancelled"),
        ("quoted too", "pending"),
    ]


def test_an_unchanged_file_keeps_every_byte():
    assert edited(FILE, slots(FILE)) == FILE
    crlf = FILE.replace("\n", "\r\n")
    assert edited(crlf, slots(crlf)) == crlf


def test_a_changed_status_changes_one_character():
    changed = edited(FILE, slots(FILE, second=Entry("second", "pending"), other=Entry("other", "completed")))
    assert changed == FILE.replace("[X]", "[ ]").replace("[/]", "[x]")


def test_a_changed_text_replaces_its_paragraph():
    changed = edited(FILE, slots(FILE, **{"first goes on here": Entry("all new", "pending")}))
    assert changed == FILE.replace("first\n  goes on here", "all new")


def test_a_new_item_has_the_style_of_the_one_before():
    found = slots(FILE)
    found.insert(4, Slot(Entry("between", "pending")))
    assert "    + [/] other\n    + [ ] between\n* plain" in edited(FILE, found)
    numbered = "3. [ ] a\n4. [ ] b\n"
    assert edited(numbered, [*slots(numbered), Slot(Entry("c", "pending"))]) == numbered + "5. [ ] c\n"
    assert edited(numbered, [Slot(Entry("c", "pending")), *slots(numbered)]).startswith("3. [ ] c\n3. [ ] a")


def test_a_new_item_goes_after_what_is_nested_in_the_one_before():
    text = "- [ ] a\n  - detail\n\n- [ ] c\n"
    found = slots(text)
    found.insert(1, Slot(Entry("b", "pending")))
    assert edited(text, found) == "- [ ] a\n  - detail\n- [ ] b\n\n- [ ] c\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "- [ ] new\n"),
        ("# Plan", "# Plan\n\n- [ ] new\n"),
        ("# Plan\r\n", "# Plan\r\n\r\n- [ ] new\r\n"),
        ("text\n\n", "text\n\n- [ ] new\n"),
        ("{not: [markdown, at: all]}", "{not: [markdown, at: all]}\n\n- [ ] new\n"),
        ("```\nunclosed\n", "- [ ] new\n\n```\nunclosed\n"),
        ("<!--\nunclosed\n", "- [ ] new\n\n<!--\nunclosed\n"),
        ("\n<!--\nunclosed\n", "- [ ] new\n\n<!--\nunclosed\n"),
        ("```\n    - [ ] code\n", "- [ ] new\n\n```\n    - [ ] code\n"),
        ("    - [ ] code\n```\n", "- [ ] new\n\n<!-- -->\n\n    - [ ] code\n```\n"),
    ],
)
def test_a_new_item_can_be_added_to_any_file(text: str, expected: str):
    assert edited(text, [Slot(Entry("new", "pending"))]) == expected


def test_removing_an_item_keeps_its_children():
    text = "- [ ] parent\n  - [ ] child\n\n  A remark.\n- [ ] other\n"
    assert edited(text, slots(text, parent=None)) == text.replace("[ ] parent", "parent")
    assert edited(text, slots(text, other=None)) == text.replace("- [ ] other\n", "")
    tricky = "- [ ] [ ] parent\n  - [ ] child\n"
    assert entries(edited(tricky, slots(tricky, **{"[ ] parent": None}))) == [("child", "pending")]


@pytest.mark.parametrize("content", ["a\nb", "a\r\n\r\n  b", "# a", "- [ ] a", "``` a", "<!-- a", "a\0b", "[x]: /url"])
def test_any_content_is_one_line_and_read_back(content: str):
    text = on_one_line(content)
    after = edited("# Plan\n", [Slot(Entry(text, "pending"))])
    assert entries(after) == [(text, "pending")]
    assert content_of(on_one_line("a\nb")) == "a\nb"


_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).map(on_one_line).filter(bool)
_entries = st.builds(Entry, _texts, st.sampled_from(["pending", "in_progress", "completed", "cancelled"]))
_lines = st.sampled_from(FILE.splitlines(keepends=True)) | st.text("-*[] x>\n\r\t`#1.a", max_size=12)


@given(lines=st.lists(_lines, max_size=15), new=st.lists(_entries, max_size=3), data=st.data())
def test_any_edit_of_any_text_has_the_wanted_items(lines: list[str], new: list[Entry], data: st.DataObject):
    text = "".join(lines)
    wanted = [Slot(item.entry, number) for number, item in enumerate(parse(text)) if data.draw(st.booleans())]
    wanted = [slot if data.draw(st.booleans()) else slot._replace(entry=data.draw(_entries)) for slot in wanted]
    for entry in new:
        wanted.insert(data.draw(st.integers(0, len(wanted))), Slot(entry))
    assert Counter(entries(edited(text, wanted))) == Counter(slot.entry for slot in wanted)
