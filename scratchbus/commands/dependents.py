"""Refutation: the dependents of wrong evidence are sent to review, or retracted, on every page.

Observations are sent to review, facts retracted. The process that refutes writes one batch per page. If it is
interrupted, any process that follows the log continues: all of them derive the same event ids, so each observation is
sent to review once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from scratchbus.commands.observations import lifecycle_of, type_or_none
from scratchbus.domain.fact_events import FactRetracted
from scratchbus.domain.facts import Fact
from scratchbus.domain.lifecycle import Lifecycle
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import StatusChanged
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Pause, Step, batches
from scratchbus.errors import Conflict, EventIdReused, NotFound
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import MAX_BATCH, Op, Write
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.relations import Relations, Resting, gather, ids_by_page, open_relations, resting_on
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):  # few observations are evidence of facts
    from scratchbus.commands import contested_facts

_REVIEW = "pending_review"
_MAX_CHAIN = 20
_MAX_REASON = 500
_MAX_STALLS = 50  # tries without progress, within a second
_CLOCK_SKEW_MS = 10_000
"""The most by which the clocks of two shards may differ; a newer observation was added after the refutation."""


class Dependent(NamedTuple):
    """An open observation that rests on a refuted one, the chain that leads to it, and its lifecycle."""

    observation: Observation
    chain: list[str]
    lifecycle: Lifecycle


def dependents(core: Core, relations: Relations, id: str) -> Step[tuple[Resting, list[Dependent]]]:
    """Return the dependents of an observation, and the open ones among them, the nearest first."""
    resting = yield from resting_on(relations, id)
    found = yield from gather(core.log, resting.pages, core.fresh, finds_paged_out=False)  # these are not open
    parents: dict[str, str] = {}
    for start, ends in resting.beneath.items():
        for end in ends:
            parents.setdefault(end, start)
    open_dependents = []
    for observation in found.values():
        if observation.is_open:
            lifecycle = lifecycle_of((yield from type_or_none(core, observation.type)))
            open_dependents.append(Dependent(observation, _chain(parents, id, observation.id), lifecycle))
    return resting, open_dependents


def _chain(parents: dict[str, str], first: str, last: str) -> list[str]:
    """Return the ids from the refuted one to the one before the last; of a long chain the first and the nearest."""
    chain: list[str] = []
    current = parents[last]
    while current != first and len(chain) < _MAX_CHAIN - 1:
        chain.append(current)
        current = parents[current]
    return [first, *reversed(chain)]


def review(refuted: StatusChanged, dependent: Dependent) -> Write:
    """Return the write that sends an observation to review, and says why.

    If its lifecycle has no review, or it waits for review already, it keeps its status and gets the reason.
    """
    observation, chain, lifecycle = dependent
    status = _REVIEW if lifecycle.statuses.get(_REVIEW) == "open" else observation.status
    event = StatusChanged(
        id=_review_id(refuted, observation),
        page=observation.page,
        subject=observation.id,
        type=observation.type,
        by=refuted.by,
        cause=str(refuted.position) if refuted.seq else refuted.cause,
        traceparent=refuted.traceparent,
        status=status,
        status_class="open",
        reason_code="reviewed",
        reason=_reason(refuted, chain),
        chain=chain,
    )
    return Write(
        event, Op.SETTLE, "refutation", allowed=frozenset({observation.status}), status=status, status_class="open",
        verb="reviewed", lifecycle=lifecycle,
    )  # fmt: skip


def _review_id(refuted: StatusChanged, observation: Observation) -> str:
    return f"{refuted.id}/{observation.id}"


def _reason(refuted: StatusChanged, chain: Collection[str]) -> str:
    first, *intermediate = chain
    text = refuted.reason or ""
    if len(text) > _MAX_REASON:
        text = text[: _MAX_REASON - 1] + "…"
    through = f"{intermediate[-1]}, which rests on " if intermediate else ""
    return f"rests on {through}{first}, which was refuted: {text}"


def complete(core: Core, refuted: StatusChanged) -> Step[int]:
    """Send the remaining dependents of a refuted observation to review, and retract the facts that rest on it.

    Returns how many events that took. Observations added after the refutation are not touched. A retry means that
    another process made progress. Without progress, what the engine accepts is sent to review, and Conflict or NotFound
    is raised for the rest.
    """
    reviewed: set[str] = set()  # sent to review before, and reviewed since
    last: set[str] = set()
    count = stalls = 0
    while True:
        relations = yield from open_relations(core.log)
        resting, found = yield from dependents(core, relations, refuted.subject)
        pending = [
            each for each in found if _is_affected(refuted, each) and _review_id(refuted, each[0]) not in reviewed
        ]
        ids = {each.observation.id for each in pending}
        stalls, last = stalls + 1 if ids == last else 0, ids
        try:
            for page, writes in _batches(refuted, pending):
                if stalls == _MAX_STALLS:
                    appended = yield from append(core.log, page, writes, mode="each")
                    count += sum(row.position.seq > 0 for row in appended.written)
                else:
                    yield from append(core.log, page, writes)
            if stalls == _MAX_STALLS:
                continue
            return count + len(pending) + (yield from _retract_facts(core, refuted, resting.facts))
        except (Conflict, NotFound) as error:
            if isinstance(error, EventIdReused) and error.event_id not in reviewed:
                reviewed.add(error.event_id)
                continue
            if stalls > _MAX_STALLS:
                raise
            yield Pause(JITTER.uniform(0.001, 0.02))  # jitter: another process continues the same refutation


def _is_affected(refuted: StatusChanged, dependent: Dependent) -> bool:
    """Return whether an observation existed when another was refuted, and does not record the refutation yet."""
    observation = dependent.observation
    if observation.reason_code == "reviewed" and observation.chain[:1] == [refuted.subject]:
        return False
    if observation.shard == refuted.shard:
        return observation.added_seq < refuted.seq
    return observation.added_ms <= refuted.ms + _CLOCK_SKEW_MS


def _batches(refuted: StatusChanged, pending: list[Dependent]) -> Iterator[tuple[str, list[Write]]]:
    by_page: dict[str, list[Write]] = defaultdict(list)
    for dependent in pending:
        by_page[dependent.observation.page].append(review(refuted, dependent))
    for page, writes in by_page.items():
        yield from ((page, [*batch]) for batch in batches(writes, MAX_BATCH))


def _retract_facts(core: Core, refuted: StatusChanged, facts: Mapping[str, str]) -> Step[int]:
    """Retract the facts that rest on a refuted observation; return how many were still standing."""
    count, withdrawn = 0, defaultdict[str, list[Fact]](list)
    for page, ids in ids_by_page(facts).items():
        for batch in batches(ids, MAX_BATCH):
            found = yield from recollect(core, page, batch)
            facts_found = [each for each in found.values() if isinstance(each, Fact)]
            withdrawn[page] += facts_found
            writes = [_retraction(refuted, page, fact) for fact in facts_found if fact.retraction is None]
            if writes:
                yield from append(core.log, page, writes)
                count += len(writes)
    for page, gone in withdrawn.items():  # also if a process was killed before it could
        yield from contested_facts.review_withdrawn(core, page, gone)
    return count


def _retraction(refuted: StatusChanged, page: str, fact: Fact) -> Write:
    event = FactRetracted(
        id=f"{refuted.id}/{fact.id}",
        page=page,
        subject=fact.id,
        by=refuted.by,
        cause=str(refuted.position),
        traceparent=refuted.traceparent,
        reason=_reason(refuted, [refuted.subject]),
        refuted=refuted.subject,
    )
    return Write(event, Op.PUT, "refutation", version=fact.version)
