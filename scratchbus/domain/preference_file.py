"""Preferences in a text file: reading, merging and writing the part between the marks. Pure.

    <!-- scratchbus:preferences begin -->
    <!-- scope ada/shop, log 3f1c0a9b, as of 1795256156929-15. Edit, add or delete … -->
    ## Preferences

    - **quotes in JS**: always double quotes
    <!-- scratchbus:preferences end -->

The second line names the state of the bus that the file last matched, so that the next sync can tell which side changed
what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scratchbus.domain.memories import Preference
from scratchbus.domain.position import Position
from scratchbus.domain.preferences import MARKS, check_key, check_preference, subject_of
from scratchbus.errors import InvalidField, InvalidInput, InvalidPosition, shown

BEGIN: Final = f"<!-- {MARKS} begin -->"
END: Final = f"<!-- {MARKS} end -->"
HEADING: Final = "## Preferences"

_HINT: Final = "Edit, add or delete the items below; `scratchbus memory sync` takes that over."
_MARK: Final = re.compile(rf"^\ufeff?[ \t]*<!--[ \t]*{MARKS}[ \t]+(begin|end)[ \t]*-->[ \t]*\r?$", re.MULTILINE)
_STATE: Final = re.compile(r"<!-- scope (?P<scope>[^,\s]+)(?:, log (?P<log>\w+), as of (?P<at>[\d/-]+))?\..*-->")
_ITEM: Final = re.compile(r"[-*+] +(?:\*\*(?P<bold>.+?)\*\*:|(?P<plain>[^:*]+):)(?P<text>.*)")
_INDENT: Final = "  "


class FileItem(NamedTuple):
    """A preference in a file."""

    key: str
    text: str


class SyncedAt(NamedTuple):
    """The state of the bus that a file last matched: its log, and the last event about a preference."""

    log: str
    position: Position


@dataclass
class FileSection:
    """The part of a file between the marks: its offsets, and its preferences by subject."""

    start: int
    end: int
    newline: str
    scope: str = ""
    synced: SyncedAt | None = None
    items: dict[str, FileItem] = field(default_factory=dict)


class FileChange(NamedTuple):
    """A change made in a file: the new text of a preference, or None to forget it."""

    subject: str
    key: str
    text: str | None


class MergedPreferences(NamedTuple):
    """The changes to write to the bus, and the keys of the preferences that both sides changed."""

    changes: list[FileChange]
    conflicts: list[str]


def find_section(text: str, prefix: str) -> FileSection:
    """Return the part of a text between the marks; without marks, an empty part at its end.

    Raises InvalidField for a missing mark, for a second part, and for a line that is not a preference.
    """
    marks = [*_MARK.finditer(text)]
    newline = "\r\n" if "\r\n" in text else "\n"
    if not marks:
        return FileSection(len(text), len(text), newline)
    if [mark[1] for mark in marks] != ["begin", "end"]:
        lines = ", ".join(f"{mark[1]} in line {_line_at(text, mark.start())}" for mark in marks)
        raise InvalidField("file", f"has these marks: {lines}; leave one {BEGIN} and, after it, one {END}")
    begin, end = marks
    start = begin.start() + text[begin.start() : begin.end()].index("<")
    section = FileSection(start, end.end() - end[0].endswith("\r"), "\r\n" if begin[0].endswith("\r") else "\n")
    _read_lines(section, text[begin.end() : end.start()].split("\n")[1:-1], _line_at(text, start) + 1, prefix)
    return section


def _line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _read_lines(section: FileSection, lines: list[str], first: int, prefix: str) -> None:
    """Read the lines of a section; `first` is the number of the first one in the file."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate((line.rstrip() for line in lines), first):
        if match := _ITEM.fullmatch(line):
            found.append((number, match["bold"] or match["plain"], [match["text"]]))
        elif found and (line.startswith(_INDENT) or not line):
            found[-1][2].append(line.removeprefix(_INDENT))
        elif state := _STATE.fullmatch(line):
            section.scope, section.synced = state["scope"], _synced(state)
        elif line not in ("", HEADING):
            problem = "is not a preference; write it as `- **key**: text`, or move it out of the part between the marks"
            raise InvalidField("file", f"line {number}: {shown(line)} {problem}")
    numbers: dict[str, int] = {}
    for number, key, texts in found:
        try:
            item = FileItem(check_key(key), check_preference("\n".join(texts)))
        except InvalidInput as problem:
            raise InvalidField("file", f"line {number}: {problem}") from None
        subject = subject_of(prefix, item.key)
        if subject in numbers:
            places = f"lines {numbers[subject]} and {number}: {shown(section.items[subject].key)} and {shown(item.key)}"
            raise InvalidField("file", f"{places} are the same key; merge them into one preference")
        numbers[subject], section.items[subject] = number, item


def _synced(state: re.Match[str]) -> SyncedAt | None:
    try:
        return SyncedAt(state["log"], Position.parse(state["at"])) if state["log"] else None
    except InvalidPosition:
        return None


def merge(
    items: Mapping[str, FileItem], base: Mapping[str, Preference] | None, current: Mapping[str, Preference]
) -> MergedPreferences:
    """Return the changes to write to the bus so that no change in the file is lost.

    `base` is the state in which both sides last matched, None if it is not known; then nothing counts as deleted.
    A change on one side only is applied to the other. If both sides changed a preference, the file wins, but a change
    wins over a deletion.
    """
    merged = MergedPreferences([], [])
    for subject in {**items, **(base or {}), **current}:
        file_item, bus_item = items.get(subject), _item(current.get(subject))
        if file_item == bus_item:
            continue
        base_item = _item(base.get(subject)) if base is not None else None
        if file_item == base_item:
            continue  # changed on the bus only
        if bus_item != base_item and file_item is not None and bus_item is not None:
            merged.conflicts.append(file_item.key)
        if file_item is not None:
            merged.changes.append(FileChange(subject, file_item.key, file_item.text))
        elif bus_item is not None and bus_item == base_item:
            merged.changes.append(FileChange(subject, bus_item.key, None))
    return merged


def _item(preference: Preference | None) -> FileItem | None:
    return None if preference is None else FileItem(preference.key, preference.text)


def replaced(
    text: str, section: FileSection, scope: str, synced: SyncedAt | None, current: Mapping[str, Preference]
) -> str:
    """Return a text with these preferences in its section: those it had in their order, then the others."""
    order = [current[subject] for subject in section.items if subject in current]
    order += [each for subject, each in current.items() if subject not in section.items]
    state = f", log {synced.log}, as of {synced.position}" if synced is not None else ""
    lines = [BEGIN, f"<!-- scope {scope}{state}. {_HINT} -->", HEADING, "", *_lines(order), END]
    before, after = text[: section.start], text[section.end :]
    if section.start == section.end:
        gap = "" if not before.strip("\ufeff") else section.newline * (1 if before.endswith("\n") else 2)
        before, after = before + gap, section.newline
    return before + section.newline.join(lines) + after


def _lines(preferences: Iterable[Preference]) -> Iterable[str]:
    for each in preferences:
        first, *continuation = each.text.split("\n")
        yield f"- **{each.key}**: {first}"
        yield from (f"{_INDENT}{line}" if line else "" for line in continuation)
