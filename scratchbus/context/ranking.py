"""Rank items by relevance to a question.

Each ranking gives a list, and the lists are fused by reciprocal rank: G. V. Cormack, C. L. A. Clarke and S.
Büttcher, “Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods”, SIGIR 2009.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Final

from scratchbus.context.embedding import Vectors
from scratchbus.context.recall_index import RecallIndex, entity_key
from scratchbus.engine.steps import Fetch, Step

K: Final = 60
"""The constant of reciprocal rank fusion, from the paper: the larger it is, the less the first ranks count."""

WEIGHTS: Final[Mapping[str, float]] = {
    "words": 1.0, "meaning": 1.0, "neighbours": 1.0, "freshness": 0.02, "priority": 0.02,
}  # fmt: skip
"""The weight of each list. Freshness and priority only order items that the other lists found."""

_MAX_ITEMS: Final = 100  # items per list
_SEEDS: Final = 1  # items found by words whose entities are followed
_PER_ENTITY: Final = 30
_PER_MENTION: Final = 5
_MENTIONED: Final = 4  # entities whose mentions are looked for, the nearest ones
_HOPS: Final = 3
_POSSESSIVE: Final = re.compile("['’]s$")
_MAX_NAME: Final = 4  # words of an entity's name in a question

Ranked = dict[int, tuple[float, dict[str, tuple[int, str]]]]
"""By row, best first: the score, and for each list the rank and what matched."""


def rank(index: RecallIndex, query: str, page_numbers: Mapping[int, str], vectors: Vectors | None) -> Step[Ranked]:
    """Return the items relevant to a question, without blocking other tasks while an embedder works."""
    ranking = partial(ranked_rows, index, query, page_numbers, vectors)
    return ranking() if vectors is None else (yield Fetch(ranking))


def ranked_rows(index: RecallIndex, query: str, page_numbers: Mapping[int, str], vectors: Vectors | None) -> Ranked:
    """Return the items relevant to a question, by reciprocal rank over all lists."""
    found = index.find(query, page_numbers)[:_MAX_ITEMS]
    lists = {"words": _in_order((row, score, "") for row, score in found)}
    if vectors is not None and query.strip():
        nearest = vectors.nearest(query, list(page_numbers), _MAX_ITEMS)
        lists["meaning"] = _in_order((row, distance, "") for row, distance in nearest)
    neighbours = _neighbours(index, query, [row for row, _ in found], page_numbers)
    lists["neighbours"] = _in_order((row, rank, by) for rank, (row, by) in enumerate(neighbours.items()))
    rows = {row for ranks in lists.values() for row in ranks} if query.strip() else index.rows(page_numbers, _MAX_ITEMS)
    items = index.items(rows).values()
    lists["freshness"] = _in_order((each.row, -each.ms, "") for each in items)
    lists["priority"] = _in_order((each.row, -each.priority, "") for each in items)
    scores: dict[int, float] = defaultdict(float)
    ranks: dict[int, dict[str, tuple[int, str]]] = defaultdict(dict)
    for name, entries in lists.items():
        for row, (rank, by) in entries.items():
            scores[row] += WEIGHTS[name] / (K + rank)
            ranks[row][name] = rank, by
    return {row: (scores[row], ranks[row]) for row in sorted(scores, key=lambda row: (-scores[row], -row))}


def _in_order(found: Iterable[tuple[int, float, str]]) -> dict[int, tuple[int, str]]:
    """Return rows by a number, the lowest first, with their ranks from 1; equal ones share a rank."""
    order: dict[int, tuple[int, str]] = {}
    rank, previous = 0, math.nan
    for at, (row, number, by) in enumerate(sorted(found, key=itemgetter(1)), 1):
        if number != previous:
            rank, previous = at, number
        order[row] = rank, by
    return order


def _neighbours(index: RecallIndex, query: str, words: Sequence[int], page_numbers: Collection[int]) -> dict[int, str]:
    """Return items connected to the entities of a question or of the best items by words, nearest first.

    Each comes with the entity that led to it. Items that only mention an entity come after those that connect it.
    """
    names, rows = index.known_entities(_names_in(query)), words[:_SEEDS]
    found: dict[int, str] = {}
    visited: dict[str, None] = {}
    for _ in range(_HOPS):
        names += index.entities_of(rows)
        level = [name for name in dict.fromkeys(names) if name not in visited][:_MAX_ITEMS]
        if not level or len(found) >= _MAX_ITEMS:
            break
        visited |= dict.fromkeys(level)
        connected = index.with_entities(level, page_numbers, _PER_ENTITY)
        names, rows = [], [row for row in connected if row not in found]
        found |= {row: connected[row] for row in rows}
    for name in islice(visited, _MENTIONED):
        if len(found) >= _MAX_ITEMS:
            break
        for row in index.mentions(name, page_numbers, _PER_MENTION):
            found.setdefault(row, name)
    return dict(islice(found.items(), _MAX_ITEMS))


def _names_in(query: str) -> list[str]:
    """Return the possible entity names in a question: one to four words, without surrounding punctuation."""
    marked = (each.strip("?!.,:;()[]{}\"'`«»“”‘’") for each in entity_key(query).split())
    words = [word for each in marked if (word := _POSSESSIVE.sub("", each))]
    spans = [(at, at + size) for size in range(_MAX_NAME, 0, -1) for at in range(len(words) - size + 1)]
    return list(dict.fromkeys(" ".join(words[start:end]) for start, end in spans))
