"""The sources of recall: for every kind of document, the texts by which it is found.

To add a kind, add a row to `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from scratchbus.domain.document import Document
from scratchbus.domain.facts import Fact
from scratchbus.domain.memories import Note, Preference
from scratchbus.domain.observation import Observation
from scratchbus.projections.notepad import NotepadDocument
from scratchbus.projections.projection import Store

STORES: Final[tuple[Store, ...]] = ("docs", "memory")
"""The hashes of a page that hold the documents."""

_MAX_CHARACTERS: Final = 100_000  # characters of a text that are searched
_USUAL: Final = 50


class IndexEntry(NamedTuple):
    """The searchable form of a document: its text and tags, its priority, and the entities it connects."""

    subject: str
    kind: str
    text: str
    tags: str
    priority: float
    ms: int
    seq: int
    shard: int
    entities: Sequence[str] = ()


class Source(NamedTuple):
    """How the documents of a class are found. `is_known` says whether a document still holds."""

    kind: str
    text: Callable[[Any], str]
    tags: Callable[[Any], Sequence[str]] = lambda document: ()
    priority: Callable[[Any], float] = lambda document: _USUAL
    entities: Callable[[Any], Sequence[str]] = lambda document: ()
    is_known: Callable[[Any], bool] = lambda document: True
    subject: Callable[[Any], str] = lambda document: str(document.id)


SOURCES: Final[dict[type[Document], Source]] = {
    Observation: Source(
        "observation",
        lambda observation: observation.content,
        lambda observation: [*observation.tags, observation.type],
        lambda observation: observation.priority * observation.confidence,
        is_known=lambda observation: observation.status_class != "final",
    ),
    Note: Source("note", lambda note: note.content, lambda note: note.tags),
    NotepadDocument: Source(
        "notepad", lambda pad: pad.content, is_known=lambda pad: bool(pad.content), subject=lambda pad: "notepad"
    ),
    Fact: Source(
        "fact",
        lambda fact: f"{fact.subject} {fact.relation.replace('_', ' ')} {fact.object}",
        priority=lambda fact: _USUAL * fact.confidence,
        entities=lambda fact: (fact.subject, fact.object),
        is_known=lambda fact: fact.retraction is None,
    ),
    Preference: Source(
        "preference",
        lambda preference: f"{preference.key}: {preference.text}",
        lambda preference: [preference.key],
        is_known=lambda preference: not preference.forgotten,
    ),
}
"""By the class of document."""


def entry_of(document: Document) -> IndexEntry | None:
    """Return the searchable form of a document; None if recall does not cover it, or it no longer holds."""
    source = SOURCES.get(type(document))
    if source is None or not source.is_known(document):
        return None
    return IndexEntry(
        source.subject(document),
        source.kind,
        source.text(document)[:_MAX_CHARACTERS],
        " ".join(source.tags(document)),
        source.priority(document),
        document.ms,
        document.seq,
        document.shard,
        source.entities(document),
    )
