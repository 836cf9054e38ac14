"""The memories of agents at a moment."""

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.commands.notes import found_notes
from scratchbus.commands.preferences import read_all
from scratchbus.domain.checks import check_tags, check_text
from scratchbus.domain.document import Document, Remembered
from scratchbus.domain.memories import Note, NotesResult, Preference
from scratchbus.domain.observation import Observation
from scratchbus.engine.steps import Step
from scratchbus.projections.conversation import Conversation, conversation_of
from scratchbus.projections.notebook import Notebook
from scratchbus.projections.scratch_page import settled
from scratchbus.readmodel.history import histories_of
from scratchbus.readmodel.memory_history import folded, history_of
from scratchbus.readmodel.past_documents import documents_at, memories_at
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel.cut import Cut, When, cut_at


def remembered_as_of(core: Core, page: str, subject: str, when: When) -> Step[Remembered | None]:
    """Return a subject at a moment. Cost: its events. Raises the errors of `cut_at`, and PositionLost."""
    cut = yield from cut_at(core, page, when)
    return folded((yield from history_of(core, page, subject)), subject, cut.position)


def notes_as_of(core: Core, page: str, when: When, query: str = "", tags: Sequence[str] = ()) -> Step[NotesResult]:
    """Return the notes of a session at a moment. Cost: the events of the session up to then."""
    query, checked_tags = check_text("query", query), check_tags([tags] if isinstance(tags, str) else tags)
    cut = yield from cut_at(core, page, when)
    documents = yield from memories_at(core.log, page, cut.position)
    notebook = Notebook(document for document in documents.values() if isinstance(document, Note))
    notes = notebook.search(query, checked_tags)
    if query or checked_tags:
        return found_notes(notes, {"result_count": len(notes), "query": query, "tags": checked_tags})
    return found_notes(notes, {"note_count": len(notes), "tag_filter": None})


def preferences_as_of(core: Core, page: str, when: When) -> Step[list[Preference]]:
    """Return the preferences of a scope at a moment. Cost: their events.

    Raises as `cut_at`, and PositionLost.
    """
    cut = yield from cut_at(core, page, when)
    ids = [each.id for each in (yield from read_all(core, page))]
    histories = yield from histories_of(core.log, page, ids)
    found = [folded(events, id, cut.position) for id, events in zip(ids, histories, strict=True)]
    return [each for each in found if isinstance(each, Preference) and not each.forgotten]


def documents_as_of(core: Core, page: str, when: When) -> Step[tuple[Cut, dict[str, Document]]]:
    """Return a moment, and everything on a page then, by subject. Cost: the events of the page up to then."""
    cut = yield from cut_at(core, page, when)
    found = yield from documents_at(core.log, page, cut.position)
    return cut, {
        subject: settled(document, cut.ms) if isinstance(document, Observation) else document
        for subject, document in found.items()
        if document is not None
    }


def conversation_as_of(core: Core, page: str, when: When) -> Step[Conversation]:
    """Return the conversation of a session at a moment. Cost: the events of the session up to then."""
    cut = yield from cut_at(core, page, when)
    return conversation_of((yield from memories_at(core.log, page, cut.position)))
