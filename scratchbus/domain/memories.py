"""What an agent remembers: the common part of all memories, a note, and a session."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field

from scratchbus.domain.position import Position, moment_of_place

_Place = Annotated[Position, PlainSerializer(str, when_used="json")]
"""A position that is text in JSON."""


class Remembered(BaseModel):
    """The document of a subject that an agent keeps for itself. Immutable; every event gives a new one.

    `version` counts the events about the subject; an edit is guarded on it. `created_at` is the time of the first of
    them, `updated_at` and `position` are those of the last. `damaged` says that one of them could not be read.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    damaged: bool = False
    shard: int = Field(default=0, repr=False)
    added_ms: int = Field(repr=False)
    added_seq: int = Field(repr=False)
    ms: int = Field(repr=False)
    seq: int = Field(repr=False)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def created_at(self) -> datetime:
        """When the first event about it was appended."""
        return moment_of_place(self.added_ms)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def updated_at(self) -> datetime:
        """When the last event about it was appended."""
        return moment_of_place(self.ms)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def position(self) -> _Place:
        """The place of the last event folded into it."""
        return Position(self.ms, self.seq, self.shard)


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


class Session(Remembered):
    """A session: where it comes from, which sessions were begun from it, and whether it is over.

    `parent` is None for one that began by itself, and `fork` says that it began with all that its parent knew.
    """

    id: str
    parent: str | None = None
    fork: bool = False
    children: list[str] = Field(default_factory=list)
    ended: bool = False


class NoteResult(BaseModel):
    """What became of a note.

    `metadata` has `note_id`, and of its session `total_notes` and `total_tags`. Of a note that was deleted, `note` is
    what it was.
    """

    model_config = ConfigDict(frozen=True)

    note: Note
    message: str
    metadata: dict[str, Any]


class NotesResult(BaseModel):
    """Notes that were found.

    `metadata` has `result_count`, `query` and `tags` of a search, `note_count` and `tag_filter` of a list.
    """

    model_config = ConfigDict(frozen=True)

    notes: list[Note]
    message: str
    metadata: dict[str, Any]


class TagsResult(BaseModel):
    """The tags in use, each with how many notes have it; `metadata` has `tag_count`."""

    model_config = ConfigDict(frozen=True)

    tags: dict[str, int]
    message: str
    metadata: dict[str, Any]
