"""The texts of a scope: each is a document of its own."""

from __future__ import annotations

from scratchbus.domain.conversation_events import TextDeleted, TextEdited, TextWritten
from scratchbus.domain.conversations import Text
from scratchbus.domain.event import Event
from scratchbus.domain.page_events import Erased
from scratchbus.projections.memory_document import create_document, update_document, upsert_document
from scratchbus.projections.projection import FoldError

PREFIX = "text_"
"""The prefix of a text's subject; a hash of its path follows."""


def evolve(text: Text | None, event: Event) -> Text | None:
    """Return a text after an event. A deleted text leaves its version, which the next text of this path continues."""
    if isinstance(event, Erased):
        tombstone = {"id": event.subject, "path": "", "source": event.by, "deleted": True}
        return create_document(Text, event, **tombstone, version=event.version)
    if isinstance(event, TextWritten):
        content = {"id": event.subject, "path": event.path, "content": event.content}
        return upsert_document(Text, text, event, **content, source=event.by, deleted=False)
    if isinstance(event, TextEdited | TextDeleted):
        if text is None or text.deleted:
            raise FoldError(f"{event.kind} of a text that does not exist")
        if isinstance(event, TextDeleted):
            return update_document(text, event, content="", source=event.by, deleted=True)
        return update_document(text, event, content=edited(text.content, event), source=event.by)
    return text


def edited(content: str, edit: TextEdited) -> str:
    """Return a text after an edit. Raises FoldError if the edit does not apply."""
    if edit.line is not None:
        lines = lines_of(content)
        if not 0 <= edit.line <= len(lines):
            raise FoldError(f"a line inserted after line {edit.line} of {len(lines)}")
        lines.insert(edit.line, edit.content)
        return "\n".join([*lines, ""])
    if not edit.find or edit.find not in content:
        raise FoldError("an edit of a part that is not in the text")
    return content.replace(edit.find, edit.content, 1)


def lines_of(content: str) -> list[str]:
    """Return the lines of a text; a line break at its end does not start another line."""
    return content.removesuffix("\n").split("\n") if content else []
