"""Find facts, derive neighbours, paths and timelines from them, and render them as a text for an agent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from scratchbus.commands.memory_reads import fresh_memory
from scratchbus.domain.checks import check_label, check_limit
from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Neighbour, Span, Why
from scratchbus.domain.position import Position
from scratchbus.domain.time_checks import as_time
from scratchbus.domain.tokens import TokenCounter, checked_counter
from scratchbus.domain.values import SCOPE_PAGES, Moment, check_whole, millis
from scratchbus.engine.steps import Step
from scratchbus.errors import IndexFailed, NotFound
from scratchbus.readmodel.fact_index import NOW, FactIndex
from scratchbus.readmodel.known_facts import KnownFacts
from scratchbus.readmodel.memory_cache import CachedMemory
from scratchbus.readmodel.memory_history import history_of
from scratchbus.readmodel.relations import find_pages, gather
from scratchbus.readmodel.relations_in_force import relations_for
from scratchbus.readmodel.scope import Core

T = TypeVar("T")
MAX_DEPTH = 20
"""The largest distance of neighbours, in facts."""

SHORTEST = "a -> b -> c"
"""The shortest possible fact."""

_MORE = "({:,} more left out for lack of room)"


def read_facts(
    core: Core,
    page: str,
    until: Position | None,
    derive: Callable[[KnownFacts], T],
    cached: CachedMemory[FactIndex] | None = None,
    *,
    is_slow: bool = False,
) -> Step[T]:
    """Return the result of a function of the facts known now, or at a position.

    If `cached`, cached facts are fresh enough. A function that `is_slow` does not block other tasks.
    """
    if cached is None:
        yield from relations_for(core)
        cached = yield from fresh_memory(core, core.facts, page)
    read = partial(_read, cached, NOW if until is None else until.seq, derive)
    try:
        return (yield from cached.locked(read, is_slow=is_slow))
    except IndexFailed:
        core.facts.drop(page)
        raise


def _read(cached: CachedMemory[FactIndex], until: int, derive: Callable[[KnownFacts], T]) -> T:
    with cached.lock:
        return derive(KnownFacts(cached.memory, until))


def query(
    core: Core,
    page: str,
    subject: str | None = None,
    relation: str | None = None,
    object: str | None = None,
    at: Moment | None = None,
    until: Position | None = None,
    limit: int | None = None,
    *,
    distinct: bool = False,
) -> Step[list[Fact]]:
    """Return the facts that are true at a time, as far as they were known at a position."""
    check_limit(limit)
    ends = [
        name if name is None else check_label(field, name) for field, name in (("subject", subject), ("object", object))
    ]
    resolved = None if relation is None else (yield from relations_for(core, relation)).find(relation)
    ms = moment_of(at)

    def find(known: KnownFacts) -> list[Fact]:
        return known.find(known.now(ms), ends[0], resolved, ends[1], limit, distinct=distinct)

    return (yield from read_facts(core, page, until, find))


def query_with_contests(core: Core, page: str, limit: int) -> Step[tuple[list[Fact], list[list[Fact]]]]:
    """Return the last facts that are true now, equal ones once, and the contests among the facts asserted as late."""
    return (yield from read_facts(core, page, None, lambda known: known.find_with_contests(known.now(), limit)))


def contested(
    core: Core,
    page: str,
    subject: str,
    relation: str | None,
    object: str | None,
    at: Moment | None,
    until: Position | None,
) -> Step[list[list[Fact]]]:
    """Return the facts about a subject that contest each other at a time, as far as they were known at a position."""
    check_label("subject", subject)
    if object is not None:
        check_label("object", object)
    resolved = None if relation is None else (yield from relations_for(core, relation)).find(relation)
    ms = moment_of(at)
    return (
        yield from read_facts(
            core, page, until, lambda known: known.contests(known.now(ms), subject, resolved, object), is_slow=True
        )
    )


def neighbours(
    core: Core, page: str, entity: str, depth: int, at: Moment | None, until: Position | None, limit: int | None
) -> Step[list[Neighbour]]:
    """Return the entities that are at most `depth` facts away from an entity, the nearest first."""
    check_limit(limit)
    check_label("entity", entity)
    check_whole("depth", depth, maximum=MAX_DEPTH)
    ms = moment_of(at)
    return (
        yield from read_facts(
            core, page, until, lambda known: known.neighbours(entity, depth, known.now(ms), limit), is_slow=True
        )
    )


def path(core: Core, page: str, a: str, b: str, at: Moment | None, until: Position | None) -> Step[list[Fact]]:
    """Return the facts of a shortest path between two entities."""
    check_label("a", a)
    check_label("b", b)
    ms = moment_of(at)
    return (yield from read_facts(core, page, until, lambda known: known.path(a, b, known.now(ms)), is_slow=True))


def timeline(
    core: Core, page: str, subject: str, relation: str, until: Position | None, limit: int
) -> Step[list[Span]]:
    """Return all facts about a subject and a relation, by when they begin."""
    check_whole("limit", limit)
    check_label("subject", subject)
    resolved = (yield from relations_for(core, relation)).find(relation)
    return (yield from read_facts(core, page, until, lambda known: known.timeline(subject, resolved, limit)))


def why(core: Core, page: str, id: str, max_evidence: int | None) -> Step[Why]:
    """Return why a fact is known, with at most this much of its evidence. Raises NotFound."""
    if max_evidence is not None:
        check_whole("max_evidence", max_evidence, minimum=0)
    spans = yield from read_facts(
        core, page, None, lambda known: [known.span(fact.added_seq) for fact in known.facts([id])]
    )
    if not spans:
        raise fact_not_found(page, id)
    events = yield from history_of(core, page, id)
    evidence = spans[0].fact.evidence[:max_evidence]
    found = {}
    if evidence:
        pages = yield from find_pages(core.log, evidence)
        found = yield from gather(core.log, pages, core.fresh)
    return Why(spans[0], events, list(found.values()), len(spans[0].fact.evidence) - len(evidence))


def fact_not_found(page: str, id: str) -> NotFound:
    """Return the error for an unknown fact."""
    return NotFound(f"there is no {id} in scope {page.removeprefix(SCOPE_PAGES)!r}; query its facts for their ids")


def moment_of(at: Moment | None) -> int | None:
    """Return a time in ms, None for the present. Raises InvalidField."""
    return None if at is None else millis(as_time("at", at))


def render(
    core: Core,
    page: str,
    budget: int,
    count: TokenCounter,
    subject: str | None,
    at: Moment | None,
    until: Position | None,
) -> Step[str]:
    """Return the facts that are true now as lines, the last asserted first, in at most `budget` tokens."""
    check_whole("budget", budget)
    count = checked_counter(count)
    name = None if subject is None else check_label("subject", subject)
    ms, maximum = moment_of(at), most_in(budget, count)
    found, total = yield from read_facts(
        core, page, until, lambda known: known.find_and_count(known.now(ms), name, maximum), is_slow=True
    )
    return "\n".join(_fit([fact.triplet for fact in found], total, budget, count))


def most_in(budget: int, count: TokenCounter) -> int:
    """Return the most facts that fit into a budget."""
    return 1 + budget // max(1, count(SHORTEST))


def _fit(lines: list[str], total: int, budget: int, count: TokenCounter) -> list[str]:
    """Return the first lines that fit, and a line that counts the omitted ones; that line uses the budget too."""
    if len(lines) == total and count("\n".join(lines)) <= budget:
        return lines
    tokens_left = budget - count(_MORE.format(total))
    fitting: list[str] = []
    for line in lines:
        tokens_left -= count(f"{line}\n")
        if tokens_left < 0:
            break
        fitting.append(line)
    while fitting and count("\n".join([*fitting, _MORE.format(total - len(fitting))])) > budget:
        fitting.pop()
    shown = [*fitting, _MORE.format(total - len(fitting))]
    return shown if count("\n".join(shown)) <= budget else []
