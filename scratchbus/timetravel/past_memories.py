"""What agents remembered at a moment."""

from __future__ import annotations

from scratchbus.commands.memory import folded, history_of
from scratchbus.commands.notes import found_notes
from scratchbus.domain.memories import Note, NotesResult, Remembered
from scratchbus.domain.position import START
from scratchbus.engine.steps import Step
from scratchbus.eventlog.codec import Poison, decode_item, entry_position
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.reader import read
from scratchbus.projections.table import fold_page, is_remembered
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel.cut import Cut, When, cut_at


def remembered_as_of(core: Core, page: str, subject: str, when: When) -> Step[Remembered | None]:
    """Return a subject as it was at a moment: it costs the events about it. Raises as `cut_at`, and PositionLost."""
    cut = yield from cut_at(core, page, when)
    return folded((yield from history_of(core, page, subject)), subject, cut.position)


def notes_as_of(core: Core, page: str, when: When) -> Step[NotesResult]:
    """Return the notes of a session at a moment, newest first: it costs the events of the session up to then."""
    cut = yield from cut_at(core, page, when)
    documents = yield from _all_remembered(core, page, cut)
    notes = [document for document in documents.values() if isinstance(document, Note)]
    notes.sort(key=lambda note: -note.added_seq)
    return found_notes(notes, {"note_count": len(notes), "tag_filter": None})


def _all_remembered(core: Core, page: str, cut: Cut) -> Step[dict[str, Remembered | None]]:
    """Return all that was remembered on a page at a moment, by subject."""
    end = cut.position
    documents: dict[str, Remembered | None] = {}
    (cursor,) = yield from cursors(core.log, START._replace(shard=end.shard), [page])
    while cursor.position < end and (chunks := (yield from read(core.log, [cursor]))):
        for entry in chunks[0][1]:
            if entry_position(entry, end.shard) <= end:
                event = decode_item(entry, end.shard)
                if not isinstance(event, Poison) and event.page == page and is_remembered(event.subject):
                    fold_page(documents, event)
    return documents
