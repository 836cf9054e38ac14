"""The checkboxes of a Markdown file, and edits that leave the rest of the text unchanged.

Pure: `parse` finds the items with markdown-it-py, `edited` changes, adds and removes items by their lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from scratchbus.errors import Conflict, SettingsError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MARKS: Final = {"pending": " ", "in_progress": ">", "completed": "x", "cancelled": "-"}
"""The mark in the box of each status."""

STATUSES: Final = {mark: status for status, mark in MARKS.items()} | {
    "X": "completed",
    "/": "in_progress",
    "~": "cancelled",
}
"""The status of each mark, including marks that only people write."""

BREAK: Final = " ⏎ "
"""Stands for a line break in the text of an item, which is one line of the file."""

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")  # as Markdown ends lines, unlike `splitlines`
_BOX: Final = re.compile(
    r"(?P<lead>[\s>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)+)\[(?P<mark>[ xX>/~-])\](?P<gap>[ \t]+)(?P<text>\S[^\r\n]*)"
)
_SIMPLE: Final = re.compile(r"[\s>]*(?:[-*+]|(?P<number>\d{1,8})(?=[.)]))[.)]?[ \t]+")
_BREAKS: Final = re.compile(r"\s*[\r\n]\s*")


class Entry(NamedTuple):
    """The content of an item: its text, on one line, and its status."""

    text: str
    status: str


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """An item of a file: its paragraph is the lines from `start` to before `end`, its nested lines end at `stop`.

    `lead` is the text before its box; `mark_at` and `text_at` are the columns of its mark and its text.
    """

    entry: Entry
    lead: str
    mark_at: int
    text_at: int
    start: int
    end: int
    stop: int


class Slot(NamedTuple):
    """The target state of an item: its content, and its number in the file; None for a new one."""

    entry: Entry
    number: int | None = None


def on_one_line(content: str) -> str:
    """Return the content of a todo item as the text of an item of a file."""
    return _BREAKS.sub(BREAK, content.replace("\0", "\ufffd").strip())


def content_of(text: str) -> str:
    """Return the text of an item of a file as the content of a todo item."""
    return text.replace(BREAK, "\n")


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, each with its end."""
    return _LINE.findall(text)


def parse(text: str) -> list[ChecklistItem]:
    """Return the items with a box, in their order."""
    lines = lines_of(text)
    return [item for span in _paragraphs(text) if (item := _item(lines, *span))]


def entries(text: str) -> list[Entry]:
    """Return the contents of the items of a text."""
    return [item.entry for item in parse(text)]


def edited(text: str, slots: Sequence[Slot]) -> str:
    """Return a text with these items, otherwise unchanged. Raises Conflict if its formatting makes that impossible.

    A changed item keeps its list marker and indentation. A new one goes after its predecessor. The result is parsed
    again, and if the new items are not there, they are put at the end or else at the beginning.
    """
    expected = Counter(slot.entry for slot in slots)
    for insert_at in (_after_sibling, _at_the_end, _at_the_beginning, _separate_list):
        for remove in (_without, _unboxed):
            found = _edit(text, slots, insert_at, remove)
            if Counter(entries(found)) == expected:
                return found
    raise Conflict("its lists cannot be edited without changing other items; put the items into one plain list")


@cache
def _parser() -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError as problem:
        raise SettingsError(f"workspace sync needs: pip install 'scratchbus[workspace]' ({problem})") from None
    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _paragraphs(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the first paragraph of each list item: its first line, the line after it, the line after the item."""
    tokens = _parser().parse(text)
    for item, paragraph in pairwise(tokens):
        if item.type == "list_item_open" and paragraph.type == "paragraph_open" and item.map and paragraph.map:
            yield paragraph.map[0], paragraph.map[1], item.map[1]


def _item(lines: Sequence[str], start: int, end: int, stop: int) -> ChecklistItem | None:
    match = _BOX.match(lines[start])
    if match is None:
        return None
    is_quoted = ">" in match["lead"]
    continuation = [line.lstrip(" \t>" if is_quoted else None) for line in lines[start + 1 : end]]
    text = " ".join(part.strip() for part in (match["text"], *continuation)).strip()
    while stop > end and not lines[stop - 1].strip(" \t\r\n>"):
        stop -= 1
    entry = Entry(text, STATUSES[match["mark"]])
    return ChecklistItem(entry, match["lead"], match.start("mark"), match.start("text"), start, end, stop)


class _InsertionPoint(NamedTuple):
    """Where a new item goes: the line before which it is inserted, its prefix, and the lines above and below it."""

    line: int
    lead: str = "- "
    above: str = ""
    below: str = ""


_InsertAt = Callable[[Sequence[str], Sequence[ChecklistItem], ChecklistItem | None], _InsertionPoint]
"""Returns where a new item goes, after another one or as the first."""

_Removal = Callable[[Sequence[str], ChecklistItem], list[str]]
"""Returns the replacement for the paragraph of a removed item."""


def _edit(text: str, slots: Sequence[Slot], insert_at: _InsertAt, remove: _Removal) -> str:
    lines, items = lines_of(text), parse(text)
    ending = next((line[len(line.rstrip("\r\n")) :] for line in lines if line.endswith(("\r", "\n"))), "\n")
    if lines and not lines[-1].endswith(("\r", "\n")) and any(slot.number is None for slot in slots):
        lines[-1] += ending
    changed = {item.start: (item.end, remove(lines, item)) for item in items}
    added: dict[int, str] = {}
    before: ChecklistItem | None = None
    for slot in slots:
        if slot.number is None:
            point = insert_at(lines, items, before)
            earlier = added.get(point.line, point.above).removesuffix(point.below)
            added[point.line] = f"{earlier}{point.lead}[{MARKS[slot.entry.status]}] {slot.entry.text}\n{point.below}"
        else:
            before = items[slot.number]
            changed[before.start] = before.end, _changed(lines, before, slot.entry)
    found: list[str] = []
    at = 0
    while at <= len(lines):
        found += added.get(at, "").replace("\n", ending)
        end, instead = changed.get(at, (at + 1, lines[at : at + 1]))
        found += instead
        at = end
    return "".join(found)


def _changed(lines: Sequence[str], item: ChecklistItem, entry: Entry) -> list[str]:
    """Return the target paragraph of an item; unchanged parts stay as written."""
    first, *continuation = lines[item.start : item.end]
    if entry.status != item.entry.status:
        first = first[: item.mark_at] + MARKS[entry.status] + first[item.mark_at + 1 :]
    if entry.text != item.entry.text:
        last_line = continuation[-1] if continuation else first
        first, continuation = first[: item.text_at] + entry.text + last_line[len(last_line.rstrip("\r\n")) :], []
    return [first, *continuation]


def _without(lines: Sequence[str], item: ChecklistItem) -> list[str]:
    return [] if item.stop == item.end else _unboxed(lines, item)


def _unboxed(lines: Sequence[str], item: ChecklistItem) -> list[str]:
    """Return the paragraph without its box: its nested lines stay."""
    text = lines[item.start][item.text_at :]
    return [item.lead + ("\\" if text.startswith("[") else "") + text, *lines[item.start + 1 : item.end]]


def _after_sibling(
    lines: Sequence[str], items: Sequence[ChecklistItem], before: ChecklistItem | None
) -> _InsertionPoint:
    sibling = before or (items[0] if items else None)
    match = _SIMPLE.fullmatch(sibling.lead) if sibling else None
    if sibling is None or match is None:
        return _at_the_end(lines, items, before)
    if before is None:
        return _InsertionPoint(sibling.start, sibling.lead)
    lead = sibling.lead
    if match["number"]:
        lead = lead[: match.start("number")] + str(int(match["number"]) + 1) + lead[match.end("number") :]
    return _InsertionPoint(sibling.stop, lead)


def _at_the_end(lines: Sequence[str], items: Sequence[ChecklistItem], before: ChecklistItem | None) -> _InsertionPoint:
    is_below_text = bool(lines) and bool(lines[-1].strip()) and not (items and items[-1].stop == len(lines))
    return _InsertionPoint(len(lines), above="\n" if is_below_text else "")


def _at_the_beginning(
    lines: Sequence[str], items: Sequence[ChecklistItem], before: ChecklistItem | None
) -> _InsertionPoint:
    return _InsertionPoint(0, below="\n" if lines and lines[0].strip() else "")


def _separate_list(
    lines: Sequence[str], items: Sequence[ChecklistItem], before: ChecklistItem | None
) -> _InsertionPoint:
    """Return the beginning, with a comment below: it ends a list also where indented lines follow."""
    return _InsertionPoint(0, below="\n<!-- -->\n\n")
