"""The documents of memories: their base class, notes, preferences and sessions, and the results of reading notes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from pydantic import Field

from scratchbus.domain.document import Remembered
from scratchbus.domain.models import Immutable


class Revised(NamedTuple):
    """A text with its revision, on which the next write is based; 0 if it was never written."""

    content: str
    revision: int


class Note(Remembered):
    """A note of a session; `source` is who wrote it."""

    id: str
    content: str
    tags: list[str] = Field(default_factory=list)
    source: str


class Preference(Remembered):
    """How someone wants something done; `said_by` is who wants it, `source` who wrote it down.

    One that was forgotten or erased is kept as `forgotten`, without its text, so that its versions continue if it is
    remembered again.
    """

    id: str
    key: str = ""
    text: str = ""
    said_by: str = ""
    source: str = ""
    forgotten: bool = False

    @property
    def revision(self) -> int:
        """The revision that a write is based on: the number of events about it."""
        return self.version


class Session(Remembered):
    """A session: its parent, the sessions started from it, and whether it has ended.

    `parent` is None if it was not started from another session; `fork` says that it began with its parent's whole
    state.
    """

    id: str
    parent: str | None = None
    fork: bool = False
    children: list[str] = Field(default_factory=list)
    ended: bool = False


class SessionInfo(Immutable):
    """A session in a list: its relations to others, who wrote in it last, and when.

    `agent` and `updated_at` are None once its newest event has moved from the log to the archive.
    """

    id: str
    parent: str | None
    fork: bool
    children: list[str]
    ended: bool
    agent: str | None
    updated_at: datetime | None


class NoteResult(Immutable):
    """The result of a write of a note.

    `metadata` has `note_id`, and the session's `total_notes` and `total_tags`. For a deleted note, `note` is its last
    state.
    """

    note: Note
    message: str
    metadata: dict[str, Any]


class NotesResult(Immutable):
    """The notes of a search or list.

    `metadata` has `result_count`, `query` and `tags` for a search, `note_count` and `tag_filter` for a list.
    """

    notes: list[Note]
    message: str
    metadata: dict[str, Any]


class TagsResult(Immutable):
    """The tags in use, with their numbers of notes; `metadata` has `tag_count`."""

    tags: dict[str, int]
    message: str
    metadata: dict[str, Any]
