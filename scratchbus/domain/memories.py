"""What an agent remembers: the common part of all memories, a note, and a session."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from scratchbus.domain.document import Document


class Remembered(Document):
    """The document of a subject that an agent keeps for itself."""


class Revised(NamedTuple):
    """A text, and the revision that a write of the whole of it is based on; 0 for one that was never written."""

    content: str
    revision: int


class Note(Remembered):
    """A note that an agent took in a session; `source` is who."""

    id: str
    content: str
    tags: list[str] = Field(default_factory=list)
    source: str


class Preference(Remembered):
    """How someone wants something done; `said_by` is who wants it, `source` who wrote it down.

    One that was forgotten or erased is kept as `forgotten`, without its text, because its versions go on if it is
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
        """The revision that a write is based on: how many events there were about it."""
        return self.version


class Session(Remembered):
    """A session: where it comes from, which sessions were begun from it, and whether it is over.

    `parent` is None for one that began by itself, and `fork` says that it began with all that its parent knew.
    """

    id: str
    parent: str | None = None
    fork: bool = False
    children: list[str] = Field(default_factory=list)
    ended: bool = False


class SessionInfo(BaseModel):
    """A session as it is listed: what is known of it, who wrote in it last, and when.

    `agent` and `updated_at` are None once its newest event has left the log for the archive.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    parent: str | None
    fork: bool
    children: list[str]
    ended: bool
    agent: str | None
    updated_at: datetime | None


class NoteResult(BaseModel):
    """What became of a note.

    `metadata` has `note_id`, and of its session `total_notes` and `total_tags`. Of a note that was deleted, `note` is
    what it was.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    note: Note
    message: str
    metadata: dict[str, Any]


class NotesResult(BaseModel):
    """Notes that were found.

    `metadata` has `result_count`, `query` and `tags` of a search, `note_count` and `tag_filter` of a list.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    notes: list[Note]
    message: str
    metadata: dict[str, Any]


class TagsResult(BaseModel):
    """The tags in use, each with its number of notes; `metadata` has `tag_count`."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    tags: dict[str, int]
    message: str
    metadata: dict[str, Any]
