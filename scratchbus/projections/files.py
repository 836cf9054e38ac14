"""The private files of a session: each is a document of its own, without its content."""

from __future__ import annotations

from scratchbus.domain.conversation_events import FileRemoved, FileWritten
from scratchbus.domain.conversations import ScratchFile
from scratchbus.domain.event import Event
from scratchbus.domain.page_events import Erased
from scratchbus.projections.memory_document import create_document, update_document, upsert_document
from scratchbus.projections.projection import FoldError

PREFIX = "file_"
"""The prefix of a file's subject; a hash of its path follows."""


def evolve(file: ScratchFile | None, event: Event) -> ScratchFile | None:
    """Return a file after an event. A deleted file leaves its version, which the next file of this path continues."""
    if isinstance(event, Erased):
        tombstone = {"id": event.subject, "path": "", "source": event.by, "deleted": True}
        return create_document(ScratchFile, event, **tombstone, version=event.version)
    if isinstance(event, FileWritten):
        content = {"id": event.subject, "path": event.path, "size": event.size, "sha256": event.sha256}
        return upsert_document(ScratchFile, file, event, **content, source=event.by, deleted=False)
    if isinstance(event, FileRemoved):
        if file is None:
            raise FoldError("file_removed of a file that was never written")
        return update_document(file, event, size=0, sha256="", source=event.by, deleted=True)
    return file
