"""Recall: one ranked answer from everything known on some pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from scratchbus.commands.fact_reads import read_facts
from scratchbus.commands.memory_reads import shared_read
from scratchbus.context.embedding import Embedder, Vectors
from scratchbus.context.page_index import PageIndex
from scratchbus.context.ranking import Ranked, rank
from scratchbus.context.recall_index import IndexedItem, RecallIndex
from scratchbus.context.recall_sources import STORES, entry_of
from scratchbus.domain.checks import check_limit, check_text
from scratchbus.domain.document import Document, Remembered
from scratchbus.domain.documents import document_of
from scratchbus.domain.facts import Fact, plain_entity
from scratchbus.domain.observation import Observation
from scratchbus.domain.values import check_page, page_of_scope, page_of_session
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, shown
from scratchbus.projections.subjects import is_remembered
from scratchbus.readmodel.fact_index import FactIndex
from scratchbus.readmodel.known_facts import KnownFacts
from scratchbus.readmodel.memory_cache import CachedMemory, MemoryCache, MemoryKind, catch_up_together
from scratchbus.readmodel.queries import get, recollect
from scratchbus.readmodel.relations_in_force import relations_for
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel import Cut, When, documents_as_of

_AT_ONCE: Final = 500  # documents per read
_SPARE: Final = 20  # items read beyond the limit, since some may have ended or say the same


class Reason(NamedTuple):
    """Why an item was recalled: the list it is in, its rank there (from 1), and what matched, if anything specific.

    The lists are `words` (the matching words), `meaning`, `neighbours` (the entity), `freshness` and `priority`.
    """

    list: str
    rank: int
    by: str = ""

    def __str__(self) -> str:
        return f"{self.list} {self.rank}" + (f" ({self.by})" if self.by else "")


class Recalled(NamedTuple):
    """An item relevant to a question: where it is, the relevant part of its text, and why it was found.

    `kind` is `observation`, `note`, `notepad`, `fact` or `preference`, `id` its subject on the page, `item` the
    document.
    """

    kind: str
    page: str
    id: str
    text: str
    score: float
    reasons: tuple[Reason, ...]
    item: Observation | Remembered


@document_of.register
def _(found: Recalled) -> dict[str, Any]:
    source = {"kind": found.kind, "page": found.page, "id": found.id}
    reasons = [reason._asdict() for reason in found.reasons]
    return {**source, "text": found.text, "score": round(found.score, 6), "reasons": reasons}


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


_Facts = dict[str, CachedMemory[FactIndex]]
"""The facts of some pages, including every write acknowledged before the question."""

_Answers = dict[int, tuple[IndexedItem, Any]]
"""By row, best first: the items that still hold, each with its document."""

_NONE: Final[_Answers] = {}


class Recaller:
    """The recall state of a bus: the index of the pages last asked about, and the vectors of one embedder."""

    def __init__(self) -> None:
        self.index = RecallIndex()
        self.cache = MemoryCache(MemoryKind(partial(PageIndex, self.index), (Document,), ("",), STORES))
        self._vectors: Vectors | None = None

    def settled(self, page: str) -> PageIndex | None:
        """Return the index of a page if it has no events that wait to be indexed."""
        held = self.cache.cached(page)
        return None if held is None or held.memory.is_behind else held.memory

    def vectors(self, embedder: Embedder) -> Vectors:
        """Return the vectors of an embedder; those of another one are dropped."""
        if self._vectors is None or not self._vectors.is_of(embedder):
            self._vectors = Vectors(self.index, embedder)
        return self._vectors


def recall(core: Core, recaller: Recaller, question: RecallQuestion, embedder: Embedder | None) -> Step[list[Recalled]]:
    """Return the items on the pages of a question that are relevant to it, best first."""
    page_names: dict[int, str] = {}
    parts: list[PageIndex] = []  # pages that nobody holds leave the index
    pages = question.pages()
    facts = yield from _catch_up(core, recaller, pages)
    for page in pages:
        part = None if facts is None else recaller.settled(page)
        if part is None:
            part = yield from shared_read(core, (page, recaller.cache), partial(_updated, core, recaller, page))
        parts.append(part)
        page_names[parts[-1].page_number] = page
    index = recaller.index
    ranked = yield from rank(index, question.query, page_names, recaller.vectors(embedder) if embedder else None)
    remaining, answers = iter(ranked), cast(_Answers, {})
    size = question.limit
    while len(answers) != question.limit and (batch := list(islice(remaining, size))):
        items = {row: each for row, each in index.items(batch).items() if each.page_number in page_names}
        documents = yield from _current_documents(core, page_names, items.values(), facts or {})
        answers |= _still_true(batch, page_names, items, documents, question.limit, answers)
        size = _SPARE
    return _answer(index, question, page_names, ranked, answers)


def _catch_up(core: Core, recaller: Recaller, pages: Sequence[str]) -> Step[_Facts | None]:
    """Index the events on these pages since they were last asked about, in one round trip for all held pages.

    Return the facts now held; None if some page has to be read separately.
    """
    yield from relations_for(core)
    cache, facts = recaller.cache, {page: held for page in pages if (held := core.facts.cached(page)) is not None}
    caches: list[tuple[MemoryCache[Any], str]] = [(cache, page) for page in pages]
    caches += [(core.facts, page) for page in facts]
    return facts if (yield from catch_up_together(core.log, caches)) else None


def recall_past(core: Core, question: RecallQuestion, when: When, embedder: Embedder | None) -> Step[list[Recalled]]:
    """Return the items known at a moment. Cost: the events of these pages up to then."""
    index = RecallIndex()
    page_names: dict[int, str] = {}
    parts: list[PageIndex] = []
    found: dict[tuple[str, str], Document] = {}
    for page in question.pages():
        cut, documents = yield from documents_as_of(core, page, when)
        part = PageIndex(index)
        part.load(documents)
        parts.append(part)
        page_names[part.page_number] = page
        found |= {
            (page, subject): each for subject, each in (yield from _true_then(core, page, documents, cut)).items()
        }
    ranked = yield from rank(index, question.query, page_names, Vectors(index, embedder) if embedder else None)
    return _answer(
        index, question, page_names, ranked, _still_true(ranked, page_names, index.items(ranked), found, question.limit)
    )


def _updated(core: Core, recaller: Recaller, page: str) -> Step[PageIndex]:
    """Return the index of a page with every acknowledged write."""
    cached = yield from recaller.cache.fresh(core.log, page)
    part = cached.memory
    with cached.lock:
        touched = part.take()
    try:
        for at in range(0, len(touched), _AT_ONCE):
            batch = touched[at : at + _AT_ONCE]
            part.update(batch, (yield from _documents(core, page, batch)).values())
        part.is_taking = False
    except BaseException:
        recaller.cache.drop(page)  # the touched documents are not in the index
        raise
    return part


def _documents(core: Core, page: str, subjects: Sequence[str]) -> Step[dict[str, Document]]:
    """Return the current documents of these subjects of a page, without those that are gone."""
    memories = [subject for subject in subjects if is_remembered(subject)]
    ids = [subject for subject in subjects if not is_remembered(subject)]
    found: dict[str, Document] = {}
    if memories:
        found |= yield from recollect(core, page, memories)
    if ids:
        found |= yield from get(core.log, page, ids, core.fresh)
    return found


def _current_documents(
    core: Core, page_names: Mapping[int, str], items: Iterable[IndexedItem], cached_facts: _Facts
) -> Step[dict[tuple[str, str], Document]]:
    """Return the current documents of items, without facts that are not true now."""
    found: dict[tuple[str, str], Document] = {}
    by_page: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for item in items:
        by_page[page_names[item.page_number]][item.kind == "fact"].append(item.subject)
    for page, (subjects, facts) in by_page.items():
        if subjects:
            documents = yield from _documents(core, page, subjects)
            found |= {(page, subject): each for subject, each in documents.items()}
        if facts:
            derive = partial(_true_facts, facts)
            found |= {
                (page, each.id): each
                for each in (yield from read_facts(core, page, None, derive, cached_facts.get(page)))
            }
    return found


def _true_facts(ids: Sequence[str], known: KnownFacts) -> list[Fact]:
    return known.true_facts(ids, known.now())


def _true_then(core: Core, page: str, documents: Mapping[str, Document], cut: Cut) -> Step[dict[str, Document]]:
    """Return these documents without the facts that were not true at a moment, by the knowledge of that moment."""
    facts = [subject for subject, document in documents.items() if isinstance(document, Fact)]
    if not facts:
        return dict(documents)
    found = yield from read_facts(core, page, cut.position, lambda known: known.true_facts(facts, known.now(cut.ms)))
    true = {fact.id for fact in found}
    return {subject: each for subject, each in documents.items() if not isinstance(each, Fact) or subject in true}


def _still_true(
    rows: Iterable[int],
    page_names: Mapping[int, str],
    items: Mapping[int, IndexedItem],
    documents: Mapping[tuple[str, str], Document],
    limit: int | None,
    before: _Answers = _NONE,
) -> _Answers:
    """Return the first items that still hold, with only one of facts that say the same."""
    still_true: _Answers = {}
    triplets = {_triplet(document) for _, document in before.values()}
    for row in rows:
        item = items.get(row)
        document = documents.get((page_names[item.page_number], item.subject)) if item is not None else None
        if item is None or document is None or entry_of(document) is None:
            continue
        triplet = _triplet(document)
        if triplet is None or triplet not in triplets:
            still_true[row] = item, document
            triplets.add(triplet)
        if len(before) + len(still_true) == limit:
            break
    return still_true


def _triplet(document: Document) -> str | None:
    return plain_entity(document.triplet) if isinstance(document, Fact) else None


def _answer(
    index: RecallIndex, question: RecallQuestion, page_names: Mapping[int, str], ranked: Ranked, kept: _Answers
) -> list[Recalled]:
    """Return items with the relevant part of their texts, and their reasons."""
    texts = index.excerpts(kept, question.query)
    answer = []
    for row, (item, document) in islice(kept.items(), question.limit):
        score, ranks = ranked[row]
        text, words = texts.get(row, ("", []))
        by = {"words": ", ".join(words)}
        reasons = tuple(Reason(name, rank, by.get(name, match)) for name, (rank, match) in ranks.items())
        answer.append(Recalled(item.kind, page_names[item.page_number], item.subject, text, score, reasons, document))
    return answer
