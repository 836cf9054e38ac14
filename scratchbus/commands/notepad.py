"""Reading and editing the notepad of a session."""

from __future__ import annotations

from typing import get_args

from scratchbus.commands.memory import Edit, check_based_on, edit
from scratchbus.domain.checks import bytes_of
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Remembered, Revised
from scratchbus.domain.memory_events import NotepadEdited, NotepadOperation, NotepadWritten
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, TooLarge, shown
from scratchbus.eventlog.because import reasons
from scratchbus.projections.notepad import SUBJECT, Text, edited
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.scope import Core

OPERATIONS: tuple[str, ...] = get_args(NotepadOperation)
_WANTED = {
    "append": ("content",),
    "prepend": ("content",),
    "delete": ("content",),
    "find_replace": ("find", "replace"),
}
_NEVER_EMPTY = ("find_replace", "delete")
_MOST = 1_000  # occurrences that are counted: long texts that overlap themselves take a while


def read(core: Core, page: str) -> Step[str]:
    """Return what is on the notepad; nothing when it was never used."""
    found = yield from recollect(core.log, page, [SUBJECT], core.fresh)
    return content_of(found.get(SUBJECT))


def read_revised(core: Core, page: str) -> Step[Revised]:
    """Return what is on the notepad, and its revision."""
    found = yield from recollect(core.log, page, [SUBJECT], core.fresh)
    return Revised(content_of(found.get(SUBJECT)), revision_of(found.get(SUBJECT)))


def revision_of(document: Remembered | None) -> int:
    """Return the revision of a text: how many events there were about it."""
    return document.version if document else 0


def content_of(document: Remembered | None) -> str:
    """Return the text of a notepad."""
    return document.content if isinstance(document, Text) else ""


def write(core: Core, page: str, content: str, revision: int | None, event_id: str | None) -> Step[int]:
    """Replace the whole notepad; return its revision. Raises RevisionConflict."""
    content = _checked("content", content)
    _check_length(core, content)
    wanted = Edit.based_on(revision, page, SUBJECT, event_id, "write_notepad", content)

    def make(document: Remembered | None) -> Event:
        check_based_on("notepad", revision, revision_of(document), content_of(document))
        return NotepadWritten(by=core.acting(), **reasons(), content=content)

    return revision_of((yield from edit(core, wanted, make)))


def update(
    core: Core,
    page: str,
    operation: str,
    content: str | None,
    find: str | None,
    replace: str | None,
    replace_all: bool,
    event_id: str | None,
) -> Step[int]:
    """Edit the notepad as it is when the edit is appended; return its revision."""
    given = _given(operation, {"content": content, "find": find, "replace": replace})
    if not isinstance(replace_all, bool):
        raise InvalidField("replace_all", f"{shown(replace_all)} is neither true nor false")
    wanted = Edit.of(page, SUBJECT, event_id, "update_notepad", operation, given, replace_all)

    def make(document: Remembered | None) -> Event:
        text = content_of(document)
        event = NotepadEdited.model_validate(
            {"by": core.acting(), **reasons(), "operation": operation, **given, "replace_all": replace_all}
        )
        if operation in _NEVER_EMPTY:
            field = "find" if operation == "find_replace" else "content"
            _check_there(field, given[field], text, replace_all)
        _check_length(core, edited(text, event))
        return event

    return revision_of((yield from edit(core, wanted, make)))


def append_line(core: Core, page: str, text: str, event_id: str | None) -> Step[int]:
    """Put a line behind what is on the notepad when it is appended, also where that has no line break at its end.

    Returns its revision.
    """
    text = _checked("content", text, "append")

    def make(document: Remembered | None) -> Event:
        before = content_of(document)
        start = "\n" if before and not before.endswith("\n") else ""
        _check_length(core, f"{before}{start}{text}\n")
        return NotepadEdited(by=core.acting(), **reasons(), operation="append", content=f"{start}{text}\n")

    return revision_of((yield from edit(core, Edit.of(page, SUBJECT, event_id, "append_line", text), make)))


def _given(operation: object, fields: dict[str, str | None]) -> dict[str, str]:
    """Return what an operation takes, checked. Raises InvalidField for what it lacks or has no use for."""
    if operation not in OPERATIONS:
        raise InvalidField("operation", f"{shown(operation)} is not an operation; use one of: {', '.join(OPERATIONS)}")
    wanted = _WANTED[str(operation)]
    for name, value in fields.items():
        if value not in (None, "") and name not in wanted:
            raise InvalidField(name, f"{operation} does not take it; give {' and '.join(wanted)}")
    return {name: _checked(name, fields[name], str(operation)) for name in wanted}


def _checked(field: str, value: object, operation: str = "write") -> str:
    if value is None:
        raise InvalidField(field, f"is missing; {operation} needs it")
    if not isinstance(value, str):
        raise InvalidField(field, f"{shown(value)} is not a text")
    bytes_of(field, value)
    return value


def _check_there(field: str, wanted: str, text: str, is_all: bool) -> None:
    """Make sure that a text is on the notepad: once, or with `is_all` at least once."""
    if not wanted:
        raise InvalidField(field, "is empty; give the exact text to find")
    count = _count(wanted, text)
    if not count:
        what = "which is empty" if not text else "read it, and give the text exactly as it is there"
        raise InvalidField(field, f"{shown(wanted)} is not on the notepad, {what}; nothing was changed")
    if count > 1 and not is_all:
        often = f"{count} times" if count < _MOST else f"{count} times or more"
        raise InvalidField(
            field,
            f"{shown(wanted)} is on the notepad {often}; include more of the surrounding text to pick one, or pass"
            " replace_all=true to change all of them; nothing was changed",
        )


def _count(wanted: str, text: str) -> int:
    """Return how often a text is in another one, also where it overlaps itself; from so many on it is not counted."""
    count, at = 0, text.find(wanted)
    while at >= 0 and (count := count + 1) < _MOST:
        at = text.find(wanted, at + 1)
    return count


def _check_length(core: Core, text: str) -> None:
    if len(text) > core.max_notepad:
        advice = "take out what is done, or raise max_notepad"
        raise TooLarge("notepad", len(text), core.max_notepad, "characters", advice)
