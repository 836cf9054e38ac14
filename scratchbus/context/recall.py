"""Recall: one ranked answer over all that is known on some pages.

Each way of ranking gives a list, and the lists are fused by reciprocal rank: G. V. Cormack, C. L. A. Clarke and S.
Büttcher, “Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods”, SIGIR 2009.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from scratchbus.commands.copied_errors import copied
from scratchbus.commands.fact_reads import read_facts
from scratchbus.context.embedding import Embedder, Vectors
from scratchbus.context.recall_index import IndexedItem, PageIndex, RecallIndex, entity_key
from scratchbus.context.recall_sources import STORES, entry_of
from scratchbus.context.recalled import Reason as Reason
from scratchbus.context.recalled import Recalled as Recalled
from scratchbus.domain.checks import check_limit, check_text
from scratchbus.domain.document import Document
from scratchbus.domain.facts import Fact
from scratchbus.domain.values import check_page, page_of_scope, page_of_session
from scratchbus.engine.steps import Queued, Step
from scratchbus.errors import InvalidField, ScratchbusError, shown
from scratchbus.projections.table import is_remembered
from scratchbus.readmodel.memory_cache import MemoryCache, MemoryKind
from scratchbus.readmodel.queries import get, recollect
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel import Cut, When, documents_as_of

K: Final = 60
"""The constant of reciprocal rank fusion, as in the paper: the larger, the less the first ranks count."""

WEIGHTS: Final[Mapping[str, float]] = {
    "words": 1.0, "meaning": 1.0, "neighbours": 1.0, "freshness": 0.02, "priority": 0.02,
}  # fmt: skip
"""How much each list counts. Freshness and priority order what the others have found, and find nothing themselves."""

_MOST: Final = 100  # items of a list
_AT_ONCE: Final = 500  # documents that one look takes
_SPARE: Final = 20  # items read beyond the limit, since some may be over by now
_SEEDS: Final = 1  # items by words whose entities lead on
_PER_ENTITY: Final = 30
_PER_MENTION: Final = 5
_HOPS: Final = 3
_POSSESSIVE: Final = re.compile("['’]s$")
_LONGEST_NAME: Final = 4  # words of an entity's name in a question


@dataclass(frozen=True, slots=True)
class RecallQuestion:
    """What to recall, and where."""

    query: str
    scopes: Collection[str]
    sessions: Collection[str]
    page: str | None
    limit: int | None

    def pages(self) -> list[str]:
        """Return the pages to look at, by default the page `main`. Raises InvalidField and InvalidName."""
        check_text("query", self.query)
        check_limit(self.limit)
        for field, names in (("scopes", self.scopes), ("sessions", self.sessions)):
            if isinstance(names, str) or not isinstance(names, Collection):
                raise InvalidField(field, f"{shown(names)} is not a list of names")
        pages = [*map(page_of_scope, self.scopes), *map(page_of_session, self.sessions)]
        if self.page is not None or not pages:
            pages.append(check_page("main" if self.page is None else self.page))
        return list(dict.fromkeys(pages))


class Recaller:
    """What a bus holds for recall: the index of the pages that were asked for last, and the vectors of one embedder."""

    def __init__(self) -> None:
        self.index = RecallIndex()
        self.cache = MemoryCache(MemoryKind(self.index.new_page, (Document,), ("",), STORES))
        self._vectors: Vectors | None = None

    def vectors(self, embedder: Embedder) -> Vectors:
        """Return the vectors of an embedder; those of another one are dropped."""
        if self._vectors is None or self._vectors.embedder is not embedder:
            self._vectors = Vectors(self.index, embedder)
        return self._vectors


def recall(core: Core, recaller: Recaller, asked: RecallQuestion, embedder: Embedder | None) -> Step[list[Recalled]]:
    """Return what is known on the pages of a question and bears on it, the best first."""
    places: dict[int, str] = {}
    held: list[PageIndex] = []  # what nobody holds leaves the index
    for page in asked.pages():
        held.append((yield from _fresh(core, recaller, page)))
        places[held[-1].place] = page
    ranked = _ranked(recaller.index, asked.query, places, recaller.vectors(embedder) if embedder else None)
    best = dict(islice(ranked.items(), None if asked.limit is None else asked.limit + _SPARE))
    items = recaller.index.items(best)
    by_page: dict[str, list[str]] = defaultdict(list)
    for item in items.values():
        by_page[places[item.place]].append(item.subject)
    found: dict[tuple[str, str], Document] = {}
    for page, subjects in by_page.items():
        documents = yield from _documents(core, page, subjects)
        found |= {(page, subject): each for subject, each in (yield from _true_now(core, page, documents)).items()}
    return _answer(recaller.index, asked, places, best, items, found)


def recall_past(core: Core, asked: RecallQuestion, when: When, embedder: Embedder | None) -> Step[list[Recalled]]:
    """Return the same as it was at a moment: it costs the events of these pages up to then."""
    index = RecallIndex()
    places: dict[int, str] = {}
    held: list[PageIndex] = []
    found: dict[tuple[str, str], Document] = {}
    for page in asked.pages():
        cut, documents = yield from documents_as_of(core, page, when)
        part = index.new_page()
        part.load(documents)
        held.append(part)
        places[part.place] = page
        found |= {(page, subject): each for subject, each in (yield from _true_now(core, page, documents, cut)).items()}
    ranked = _ranked(index, asked.query, places, Vectors(index, embedder) if embedder else None)
    return _answer(index, asked, places, ranked, index.items(ranked), found)


def _fresh(core: Core, recaller: Recaller, page: str) -> Step[PageIndex]:
    """Return the index of a page with every acknowledged write; callers that wait together share one read."""
    found: PageIndex = yield Queued(
        core.queues, (page, recaller.cache), None, partial(_read_once, core, recaller, page)
    )
    return found


def _read_once(core: Core, recaller: Recaller, page: str, callers: Sequence[None]) -> Step[list[PageIndex | Exception]]:
    try:
        held = yield from recaller.cache.fresh(core.log, page)
        part = held.memory
        with held.lock:
            touched = part.take()
        try:
            for at in range(0, len(touched), _AT_ONCE):
                some = touched[at : at + _AT_ONCE]
                part.update(some, (yield from _documents(core, page, some)).values())
        except BaseException:
            recaller.cache.drop(page)  # what was touched is not in the index
            raise
    except ScratchbusError as error:
        return [copied(error, None) for _ in callers]
    return [part] * len(callers)


def _documents(core: Core, page: str, subjects: Sequence[str]) -> Step[dict[str, Document]]:
    """Return the documents of a page with these subjects as they are now; those that are gone are left out."""
    memories = [subject for subject in subjects if is_remembered(subject)]
    ids = [subject for subject in subjects if not is_remembered(subject)]
    found: dict[str, Document] = {}
    if memories:
        found |= yield from recollect(core.log, page, memories, core.fresh)
    if ids:
        found |= yield from get(core.log, page, ids, core.fresh)
    return found


def _true_now(
    core: Core, page: str, documents: Mapping[str, Document], cut: Cut | None = None
) -> Step[dict[str, Document]]:
    """Return these documents without the facts that are not true now, or were not at a moment, as far as was known."""
    facts = [subject for subject, document in documents.items() if isinstance(document, Fact)]
    if not facts:
        return dict(documents)
    until, ms = (None, None) if cut is None else (cut.position, cut.ms)
    true = yield from read_facts(core, page, until, lambda known: known.true_of(facts, known.now(ms)))
    return {subject: each for subject, each in documents.items() if not isinstance(each, Fact) or subject in true}


_Ranked = dict[int, tuple[float, dict[str, tuple[int, str]]]]
"""By row, the best first: the score, and by list the rank and by what it was found."""


def _ranked(index: RecallIndex, query: str, places: Mapping[int, str], vectors: Vectors | None) -> _Ranked:
    """Return what bears on a question, by reciprocal rank over all lists."""
    found = index.find(query, places)[:_MOST]
    lists = {"words": _in_order((row, score, "") for row, score in found)}
    if vectors is not None and query.strip():
        nearest = vectors.nearest(query, list(places), _MOST)
        lists["meaning"] = _in_order((row, distance, "") for row, distance in nearest)
    near = _neighbours(index, query, [row for row, _ in found], places)
    lists["neighbours"] = _in_order((row, rank, by) for rank, (row, by) in enumerate(near.items()))
    rows = {row for ranks in lists.values() for row in ranks} if query.strip() else index.rows(places, _MOST)
    items = index.items(rows).values()
    lists["freshness"] = _in_order((each.row, -each.ms, "") for each in items)
    lists["priority"] = _in_order((each.row, -each.priority, "") for each in items)
    scores: dict[int, float] = defaultdict(float)
    ranks: dict[int, dict[str, tuple[int, str]]] = defaultdict(dict)
    for name, places_in in lists.items():
        for row, (rank, by) in places_in.items():
            scores[row] += WEIGHTS[name] / (K + rank)
            ranks[row][name] = rank, by
    return {row: (scores[row], ranks[row]) for row in sorted(scores, key=lambda row: (-scores[row], -row))}


def _in_order(found: Iterable[tuple[int, float, str]]) -> dict[int, tuple[int, str]]:
    """Return rows by a number, the lowest first, with their ranks from 1; equal ones share a rank."""
    order: dict[int, tuple[int, str]] = {}
    rank, last = 0, math.nan
    for at, (row, number, by) in enumerate(sorted(found, key=itemgetter(1)), 1):
        if number != last:
            rank, last = at, number
        order[row] = rank, by
    return order


def _neighbours(index: RecallIndex, query: str, words: Sequence[int], places: Collection[int]) -> dict[int, str]:
    """Return what is connected to the entities of a question, and of the first items by words, the nearest first.

    Each with the entity that led to it. Items that only mention an entity follow those that connect it.
    """
    level = [*index.known_entities(_names_in(query)), *index.entities_of(words[:_SEEDS])]
    found: dict[int, str] = {}
    seen: dict[str, None] = {}
    for _ in range(_HOPS):
        level = [name for name in dict.fromkeys(level) if name not in seen][:_MOST]
        if not level:
            break
        seen |= dict.fromkeys(level)
        near = index.with_entities(level, places, _PER_ENTITY)
        new = {row: name for row, name in near.items() if row not in found}
        found |= new
        level = index.entities_of(new)
    for name in seen:
        if len(found) >= _MOST:
            break
        for row in index.mentions(name, places, _PER_MENTION):
            found.setdefault(row, name)
    return dict(islice(found.items(), _MOST))


def _names_in(query: str) -> list[str]:
    """Return what in a question may be the name of an entity: one to four words, without the marks around them."""
    marked = (each.strip("?!.,:;()[]{}\"'`«»“”‘’") for each in entity_key(query).split())
    words = [word for each in marked if (word := _POSSESSIVE.sub("", each))]
    spans = [(at, at + size) for size in range(_LONGEST_NAME, 0, -1) for at in range(len(words) - size + 1)]
    return list(dict.fromkeys(" ".join(words[start:end]) for start, end in spans))


def _answer(
    index: RecallIndex,
    asked: RecallQuestion,
    places: Mapping[int, str],
    ranked: _Ranked,
    items: Mapping[int, IndexedItem],
    documents: Mapping[tuple[str, str], Any],
) -> list[Recalled]:
    """Return the first items that still hold, each with its document and its reasons."""
    kept: dict[int, tuple[IndexedItem, Any]] = {}
    for row in ranked:
        item = items.get(row)
        document = documents.get((places[item.place], item.subject)) if item is not None else None
        if item is not None and document is not None and entry_of(document) is not None:
            kept[row] = item, document
        if len(kept) == asked.limit:
            break
    texts = index.excerpts(kept, asked.query)
    answer = []
    for row, (item, document) in kept.items():
        score, ranks = ranked[row]
        text, words = texts.get(row, ("", []))
        by = {"words": ", ".join(words)}
        reasons = tuple(Reason(name, rank, by.get(name, what)) for name, (rank, what) in ranks.items())
        answer.append(Recalled(item.kind, places[item.place], item.subject, text, score, reasons, document))
    return answer
