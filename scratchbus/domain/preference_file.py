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
class FilePart:
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


def find_part(text: str, prefix: str) -> FilePart:
    """Return the part of a text between the marks; without marks, an empty part at its end.

    Raises InvalidField for a missing mark, for a second part, and for a line that is not a preference.
    """
    marks = [*_MARK.finditer(text)]
    newline = "\r\n" if "\r\n" in text else "\n"
    if not marks:
        return FilePart(len(text), len(text), newline)
    if [mark[1] for mark in marks] != ["begin", "end"]:
        lines = ", ".join(f"{mark[1]} in line {_line_at(text, mark.start())}" for mark in marks)
        raise InvalidField("file", f"has these marks: {lines}; leave one {BEGIN} and, after it, one {END}")
    begin, end = marks
    start = begin.start() + text[begin.start() : begin.end()].index("<")
    part = FilePart(start, end.end() - end[0].endswith("\r"), "\r\n" if begin[0].endswith("\r") else "\n")
    _read_lines(part, text[begin.end() : end.start()].split("\n")[1:-1], _line_at(text, start) + 1, prefix)
    return part


def _line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _read_lines(part: FilePart, lines: list[str], first: int, prefix: str) -> None:
    """Read the lines of a part; `first` is the number of the first one in the file."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate((line.rstrip() for line in lines), first):
        if item := _ITEM.fullmatch(line):
            found.append((number, item["bold"] or item["plain"], [item["text"]]))
        elif found and (line.startswith(_INDENT) or not line):
            found[-1][2].append(line.removeprefix(_INDENT))
        elif state := _STATE.fullmatch(line):
            part.scope, part.synced = state["scope"], _synced(state)
        elif line not in ("", HEADING):
            problem = "is not a preference; write it as `- **key**: text`, or move it out of the part between the marks"
            raise InvalidField("file", f"line {number}: {shown(line)} {problem}")
    numbers: dict[str, int] = {}
    for number, key, texts in found:
        try:
            kept = FileItem(check_key(key), check_preference("\n".join(texts)))
        except InvalidInput as problem:
            raise InvalidField("file", f"line {number}: {problem}") from None
        subject = subject_of(prefix, kept.key)
        if subject in numbers:
            same = f"lines {numbers[subject]} and {number}: {shown(part.items[subject].key)} and {shown(kept.key)}"
            raise InvalidField("file", f"{same} are the same key; merge them into one preference")
        numbers[subject], part.items[subject] = number, kept


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
        ours, theirs = items.get(subject), _item(current.get(subject))
        if ours == theirs:
            continue
        then = _item(base.get(subject)) if base is not None else None
        if ours == then:
            continue  # changed on the bus only
        if theirs != then and ours is not None and theirs is not None:
            merged.conflicts.append(ours.key)
        if ours is not None:
            merged.changes.append(FileChange(subject, ours.key, ours.text))
        elif theirs is not None and theirs == then:
            merged.changes.append(FileChange(subject, theirs.key, None))
    return merged


def _item(preference: Preference | None) -> FileItem | None:
    return None if preference is None else FileItem(preference.key, preference.text)


def replaced(text: str, part: FilePart, scope: str, synced: SyncedAt | None, current: Mapping[str, Preference]) -> str:
    """Return a text with these preferences in its part: those it had in their order, then the others."""
    order = [current[subject] for subject in part.items if subject in current]
    order += [each for subject, each in current.items() if subject not in part.items]
    state = f", log {synced.log}, as of {synced.position}" if synced is not None else ""
    lines = [BEGIN, f"<!-- scope {scope}{state}. {_HINT} -->", HEADING, "", *_lines(order), END]
    before, behind = text[: part.start], text[part.end :]
    if part.start == part.end:
        gap = "" if not before.strip("\ufeff") else part.newline * (1 if before.endswith("\n") else 2)
        before, behind = before + gap, part.newline
    return before + part.newline.join(lines) + behind


def _lines(preferences: Iterable[Preference]) -> Iterable[str]:
    for each in preferences:
        first, *more = each.text.split("\n")
        yield f"- **{each.key}**: {first}"
        yield from (f"{_INDENT}{line}" if line else "" for line in more)
