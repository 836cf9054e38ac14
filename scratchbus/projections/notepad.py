"""The notepad of a session: one text."""

from __future__ import annotations

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import NotepadEdited, NotepadWritten
from scratchbus.domain.page_events import Erased
from scratchbus.projections.memory_document import create_document, upsert_document
from scratchbus.projections.projection import FoldError

SUBJECT = "notepad"


class NotepadDocument(Remembered):
    """The content of a notepad."""

    content: str = ""


def evolve(document: NotepadDocument | None, event: Event) -> NotepadDocument | None:
    """Return the notepad after an event. An erased notepad is empty and may be written again."""
    if isinstance(event, Erased):
        return create_document(NotepadDocument, event, version=event.version)
    if isinstance(event, NotepadWritten):
        return upsert_document(NotepadDocument, document, event, content=event.content)
    if isinstance(event, NotepadEdited):
        content = edited(document.content if document else "", event)
        return upsert_document(NotepadDocument, document, event, content=content)
    return document


def edited(text: str, edit: NotepadEdited) -> str:
    """Return a text after an edit. Raises FoldError if it does not contain the part to replace or delete."""
    match edit.operation:
        case "append":
            return text + edit.content
        case "prepend":
            return edit.content + text
        case "find_replace":
            old, new = edit.find, edit.replace
        case "delete":
            old, new = edit.content, ""
    if not old or old not in text:
        raise FoldError(f"{edit.operation} of a text that is not in the notepad")
    return text.replace(old, new, -1 if edit.replace_all else 1)
