"""Read and edit the notepad of a session."""

from __future__ import annotations

from functools import partial
from typing import Annotated, get_args

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory_edit import MemoryEdit, Revision, check_based_on
from scratchbus.domain.checks import check_flag, check_length, check_text
from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Revised
from scratchbus.domain.memory_events import NotepadEdited, NotepadOperation, NotepadWritten
from scratchbus.domain.models import CheckedBy
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, shown
from scratchbus.projections.notepad import SUBJECT, NotepadDocument, edited
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core
from scratchbus.settings import Settings

OPERATIONS: tuple[str, ...] = get_args(NotepadOperation)
_TEXTS_NEEDED = {
    "append": ("content",),
    "prepend": ("content",),
    "delete": ("content",),
    "find_replace": ("find", "replace"),
}
_NEVER_EMPTY = ("find_replace", "delete")
_MAX_COUNTED = 1_000  # occurrences to count: overlapping ones in long texts take a while


def read(core: Core, page: str) -> Step[Revised]:
    """Return the notepad's content and revision; empty if it was never used."""
    document = yield from recollect_one(core, page, SUBJECT)
    return Revised(content_of(document), revision_of(document))


def revision_of(document: Remembered | None) -> int:
    """Return the revision of a text: the number of its events."""
    return document.version if document else 0


def content_of(document: Remembered | None) -> str:
    """Return the text of a notepad."""
    return document.content if isinstance(document, NotepadDocument) else ""


def _required_text(field: str, value: object, verb: str = "write") -> str:
    if value is None:
        raise InvalidField(field, f"is missing; {verb} needs it")
    return check_text(field, value)


def _operation(name: object) -> str:
    if name not in OPERATIONS:
        raise InvalidField("operation", f"{shown(name)} is not an operation; use one of: {', '.join(OPERATIONS)}")
    return str(name)


class WriteNotepad(MemoryEdit):
    """Replace the whole notepad."""

    verb, subject = "write_notepad", SUBJECT
    content: Annotated[str, CheckedBy(partial(_required_text, "content"))]
    revision: Revision = None

    def decide(self, occasion: Occasion, document: NotepadDocument | None) -> Event:
        """See `MemoryEdit`. Raises RevisionConflict."""
        _check_length(occasion.settings, self.content)
        check_based_on("notepad", self.revision, revision_of(document), content_of(document))
        return occasion.event(NotepadWritten, SUBJECT, content=self.content)


class UpdateNotepad(MemoryEdit):
    """Edit the notepad as it is when the edit is appended."""

    verb, subject = "update_notepad", SUBJECT
    operation: Annotated[str, CheckedBy(_operation)]
    content: Annotated[str | None, CheckedBy(partial(check_text, "content"))] = None
    find: Annotated[str | None, CheckedBy(partial(check_text, "find"))] = None
    replace: Annotated[str | None, CheckedBy(partial(check_text, "replace"))] = None
    replace_all: Annotated[bool, CheckedBy(partial(check_flag, "replace_all"))]

    def retry_arguments(self) -> list[object]:
        """See `MemoryEdit`. Raises InvalidField for missing or superfluous arguments of the operation."""
        needed = _TEXTS_NEEDED[self.operation]
        for name in ("content", "find", "replace"):
            if getattr(self, name) not in (None, "") and name not in needed:
                raise InvalidField(name, f"{self.operation} does not take it; give {' and '.join(needed)}")
        texts = {name: _required_text(name, getattr(self, name), self.operation) for name in needed}
        return [self.operation, texts, self.replace_all]

    def decide(self, occasion: Occasion, document: NotepadDocument | None) -> Event:
        """See `MemoryEdit`."""
        text = content_of(document)
        texts = {name: getattr(self, name) for name in _TEXTS_NEEDED[self.operation]}
        event = occasion.event(NotepadEdited, SUBJECT, operation=self.operation, **texts, replace_all=self.replace_all)
        if self.operation in _NEVER_EMPTY:
            field = "find" if self.operation == "find_replace" else "content"
            _check_occurs(field, texts[field], text, self.replace_all)
        _check_length(occasion.settings, edited(text, event))
        return event


class AppendLine(MemoryEdit):
    """Append a line to the notepad as it is then, after a line break if its last line lacks one."""

    verb, subject = "append_line", SUBJECT
    text: Annotated[str, CheckedBy(partial(_required_text, "content", verb="append"))]

    def decide(self, occasion: Occasion, document: NotepadDocument | None) -> Event:
        """See `MemoryEdit`."""
        before = content_of(document)
        line = f"{self.text}\n" if not before or before.endswith("\n") else f"\n{self.text}\n"
        _check_length(occasion.settings, before + line)
        return occasion.event(NotepadEdited, SUBJECT, operation="append", content=line)


def _check_occurs(field: str, target: str, text: str, is_all: bool) -> None:
    """Check that a text is on the notepad: once, or with `is_all` at least once."""
    if not target:
        raise InvalidField(field, "is empty; give the exact text to find")
    count = _count(target, text)
    if not count:
        what = ", which is empty" if not text else "; read it, and give the text exactly as it is there"
        raise InvalidField(field, f"{shown(target)} is not on the notepad{what}; nothing was changed")
    if count > 1 and not is_all:
        often = f"{count} times" if count < _MAX_COUNTED else f"{count} times or more"
        raise InvalidField(
            field,
            f"{shown(target)} is on the notepad {often}; include more of the surrounding text to pick one, or pass"
            " replace_all=true to change all of them; nothing was changed",
        )


def _count(target: str, text: str) -> int:
    """Count the occurrences of a text, overlapping ones too, up to a maximum."""
    count, at = 0, text.find(target)
    while at >= 0 and (count := count + 1) < _MAX_COUNTED:
        at = text.find(target, at + 1)
    return count


def _check_length(settings: Settings, text: str) -> None:
    check_length("notepad", text, settings.max_notepad, "take out what is done, or raise max_notepad")
