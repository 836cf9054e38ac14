"""Judge subscriptions: no event is skipped, or delivered again after the engine knew its ack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.faults.history.case import Case, Violation
from tests.faults.history.journal import Record
from tests.faults.history.logbook import Entry
from tests.faults.history.roles import SUBSCRIPTIONS


def judge_deliveries(case: Case) -> Iterator[Violation]:
    """Yield skipped and repeated deliveries, and cursors that went back."""
    for name in SUBSCRIPTIONS:
        yield from _skipped(case, name)
        yield from _again(case, name)
        yield from _rewound(case, name)


def is_wanted(name: str, entry: Entry) -> bool:
    """Return whether a subscription must deliver an event."""
    filters = SUBSCRIPTIONS[name]
    return entry.kind in filters.get("kinds", [entry.kind]) and entry.type in filters.get("types", [entry.type])


def _of(case: Case, name: str, *kinds: str) -> list[Record]:
    return [record for record in case.of(*kinds) if record.told.get("sub") == name]


def _skipped(case: Case, name: str) -> Iterator[Violation]:
    """Yield events that were never delivered; in a flushed log, only those before the last delivered one."""
    handed = {(*record.told["at"], record.told["id"]) for record in _of(case, name, "handed")}
    for era in case.eras:
        reign = case.reigns[era[-1]] if era else None
        if reign is None:
            continue
        wanted = [entry for entry in reign.log.entries if is_wanted(name, entry)]
        last = max((entry.seq for entry in wanted if entry[:3] in handed), default=0)
        dead = case.history.dead.get(name, set()) if reign.by == "end" else set()
        for entry in wanted:
            is_due = reign.by == "end" or entry.seq < last
            if is_due and entry[:3] not in handed and entry.seq not in dead:
                yield Violation("skipped", name, f"{entry} in log {era[-1]} was never delivered, others up to {last}")


def _again(case: Case, name: str) -> Iterator[Violation]:
    """Yield deliveries of events that the engine knew to be acked when the session began."""
    samples, sessions = _of(case, name, "sample"), dict[str, Record]()
    resets = _resets(case, name)
    known: dict[str, Record | None] = {}
    for record in _of(case, name, "session", "handed"):
        if record.what == "session":
            sessions[record.who] = record
            before = [sample for sample in samples if sample.t < record.t]
            known[record.who] = before[-1] if before else None
            continue
        sample = known.get(record.who)
        if sample is None or sample.told["seq"] < record.told["at"][1]:
            continue
        begun = sample.told["begun"]
        if _may_go_back(case, resets, begun, record.t):
            continue
        evidence = f"{record}, in the session of {sessions[record.who].t:.3f}; but {sample}"
        yield Violation("duplicated", name, evidence)


def _rewound(case: Case, name: str) -> Iterator[Violation]:
    resets = _resets(case, name)
    for one, other in pairwise(_of(case, name, "sample")):
        is_back = other.told["seq"] < one.told["seq"]
        if is_back and not _may_go_back(case, resets, one.told["begun"], other.t):
            yield Violation("non-monotonic", name, f"the cursor went back: {one}, then {other}")


def _resets(case: Case, name: str) -> list[tuple[float, float]]:
    """Return the periods in which a consumer may have reset the cursor: from its start to its next record or lease."""
    told = defaultdict[str, list[Record]](list)
    for record in _of(case, name, "session", "handed", "log error", "ended"):
        told[record.who.partition(".")[0]].append(record)  # a killed process is over when its successor begins
    samples, skew = _of(case, name, "sample"), max(reign.skew for reign in case.reigns)
    return [
        (one.t, min([other.t if other else inf, *(sample.t for sample in samples if _has_taken(one, sample, skew))]))
        for records in told.values()
        for one, other in pairwise([*records, None])
        if one and one.what == "session" and one.told["reset"]
    ]


def _has_taken(session: Record, sample: Record, skew: float) -> bool:
    """Return whether a sample shows that the process of a session has got the lease since the session began.

    The time in a sample is by an engine's clock, which was at most `skew` ms ahead of ours.
    """
    holder, since = sample.told["holder"] or "", sample.told["since"] or 0
    return bool(holder.startswith(f"{session.who}@") and since * 1000 - skew > session.ms)


def _may_go_back(case: Case, resets: list[tuple[float, float]], begun: float, ended: float) -> bool:
    """Return whether the engine may know fewer acks than before, after a failover, flush or reset."""
    return case.settled(begun, ended) is None or any(since < ended and begun < until for since, until in resets)
