"""The notepad of a session: one text."""

from __future__ import annotations

from scratchbus.domain.event import Event
from scratchbus.domain.events import Erased
from scratchbus.domain.memories import Remembered
from scratchbus.domain.memory_events import NotepadEdited, NotepadWritten
from scratchbus.projections.memory_document import begun, begun_or_grown
from scratchbus.projections.projection import FoldError

SUBJECT = "notepad"


class NotepadDocument(Remembered):
    """The content of a notepad."""

    content: str = ""


def evolve(document: NotepadDocument | None, event: Event) -> NotepadDocument | None:
    """Return the notepad after an event. An erased notepad is empty and may be written again."""
    if isinstance(event, Erased):
        return begun(NotepadDocument, event, version=event.version)
    if isinstance(event, NotepadWritten):
        return begun_or_grown(NotepadDocument, document, event, content=event.content)
    if isinstance(event, NotepadEdited):
        content = edited(document.content if document else "", event)
        return begun_or_grown(NotepadDocument, document, event, content=content)
    return document


def edited(text: str, edit: NotepadEdited) -> str:
    """Return a text after an edit. Raises FoldError if it does not contain the part to replace or delete."""
    match edit.operation:
        case "append":
            return text + edit.content
        case "prepend":
            return edit.content + text
        case "find_replace":
            gone, new = edit.find, edit.replace
        case "delete":
            gone, new = edit.content, ""
    if not gone or gone not in text:
        raise FoldError(f"{edit.operation} of a text that is not in the notepad")
    return text.replace(gone, new, -1 if edit.replace_all else 1)
