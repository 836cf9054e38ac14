"""Rank notes and observations by relevance to a question: by words, priority and age.

SQLite's FTS5 ranks the words (BM25), in an in-memory database created for the one question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from math import exp2
from typing import Final, NamedTuple

from scratchbus.domain.memories import Note
from scratchbus.domain.observation import Observation
from scratchbus.projections.fulltext import TOKENIZE, any_of, open_database, storable, words_of

MAX_CANDIDATES: Final = 5_000
"""The most notes (the newest), and the most observations (by priority), that are ranked."""

_MAX_CHARACTERS: Final = 4_000  # characters of each that are searched
_HALF_LIFE_MS: Final = 24 * 3_600_000
_NOTE_PRIORITY: Final = 50

_TABLE: Final = (
    f"CREATE VIRTUAL TABLE items USING fts5(tags, content, content = '', {TOKENIZE})"  # the texts are not kept
)
_FIND: Final = "SELECT rowid, bm25(items, 3.0, 1.0) FROM items WHERE items MATCH ?"

Candidate = Observation | Note


class Match(NamedTuple):
    """A relevant item, and its score."""

    item: Candidate
    score: float


def rank(query: str, items: Sequence[Candidate]) -> list[Match]:
    """Return the items with a word of the query in their content or tags, most relevant first.

    Tags count three times as much as content. Priority up to doubles the score. An item a day older than the newest
    counts three quarters, a very old one half. A query without words ranks everything by priority and age alone.
    """
    relevance = _relevance(query, items)
    newest = max((item.ms for item in items), default=0)
    matches = [Match(items[index], score * _weight(items[index], newest)) for index, score in relevance]
    return sorted(matches, key=lambda match: (-match.score, match.item.id))


def _relevance(query: str, items: Sequence[Candidate]) -> list[tuple[int, float]]:
    """Return the indices of the matching items, each with the score of its words."""
    words = words_of(query)
    if not words:
        return [(index, 1.0) for index in range(len(items))]
    with closing(open_database()) as database:
        database.execute(_TABLE)
        rows = ((index, *_texts(item)) for index, item in enumerate(items))
        with database:
            database.executemany("INSERT INTO items (rowid, tags, content) VALUES (?, ?, ?)", rows)
        return [(index, max(-score, 1e-6)) for index, score in database.execute(_FIND, (any_of(words),))]


def _texts(item: Candidate) -> Iterator[str]:
    tags = [*item.tags, item.type] if isinstance(item, Observation) else item.tags
    for text in (" ".join(tags), item.content[:_MAX_CHARACTERS]):
        yield storable(text)


def _weight(item: Candidate, newest: int) -> float:
    priority = item.priority if isinstance(item, Observation) else _NOTE_PRIORITY
    return (1 + priority / 100) * (0.5 + exp2(-1 - (newest - item.ms) / _HALF_LIFE_MS))
