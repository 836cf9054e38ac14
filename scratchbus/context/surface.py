"""What bears on a question: notes and observations, ranked by their words, their priority and their age.

The words are ranked by SQLite's FTS5 (BM25), in a database in memory that is made for the one question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from math import exp2
from typing import Final, NamedTuple

from scratchbus.context.fulltext import TOKENIZE, any_of, open_database, storable, words_of
from scratchbus.domain.memories import Note
from scratchbus.domain.observation import Observation

MOST: Final = 5_000
"""How many notes, and how many observations, are looked at: the newest notes, the first observations by priority."""

_LONGEST: Final = 4_000  # characters of one that are looked at
_HALF_LIFE_MS: Final = 24 * 3_600_000
_NOTE_PRIORITY: Final = 50

_TABLE: Final = (
    f"CREATE VIRTUAL TABLE items USING fts5(tags, content, content = '', {TOKENIZE})"  # the texts are not kept
)
_FIND: Final = "SELECT rowid, bm25(items, 3.0, 1.0) FROM items WHERE items MATCH ?"

Candidate = Observation | Note


class Match(NamedTuple):
    """One that bears on a question, and how much."""

    item: Candidate
    score: float


def rank(query: str, items: Sequence[Candidate]) -> list[Match]:
    """Return what has a word of the query in its content or tags, the most relevant first.

    Tags count three times as much as content. Priority adds up to as much again, and what is a day older than the
    newest of all counts three quarters, at last half. A query without words ranks everything by these alone.
    """
    relevance = _relevance(query, items)
    newest = max((_age_of(item) for item in items), default=0)
    matches = [Match(items[place], score * _weight(items[place], newest)) for place, score in relevance]
    return sorted(matches, key=lambda match: (-match.score, match.item.id))


def _relevance(query: str, items: Sequence[Candidate]) -> list[tuple[int, float]]:
    """Return the places of the items that match, each with how well its words do."""
    words = words_of(query)
    if not words:
        return [(place, 1.0) for place in range(len(items))]
    with closing(open_database()) as database:
        database.execute(_TABLE)
        rows = ((place, *_texts(item)) for place, item in enumerate(items))
        with database:
            database.executemany("INSERT INTO items (rowid, tags, content) VALUES (?, ?, ?)", rows)
        return [(place, max(-score, 1e-6)) for place, score in database.execute(_FIND, (any_of(words),))]


def _texts(item: Candidate) -> Iterator[str]:
    tags = [*item.tags, item.type] if isinstance(item, Observation) else item.tags
    for text in (" ".join(tags), item.content[:_LONGEST]):
        yield storable(text)


def _age_of(item: Candidate) -> int:
    return int(item.updated_at.timestamp() * 1000)


def _weight(item: Candidate, newest: int) -> float:
    priority = item.priority if isinstance(item, Observation) else _NOTE_PRIORITY
    return (1 + priority / 100) * (0.5 + exp2(-1 - (newest - _age_of(item)) / _HALF_LIFE_MS))
