"""Judge reads, views and followers: each saw the state at one position of the log, and never an earlier one later."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

from tests.faults.history.case import Case, Violation
from tests.faults.history.journal import Record
from tests.faults.history.logbook import Logbook
from tests.faults.history.roles import SHOWN

PAGE = "main"
GRACE = 5.0
"""Seconds in which a view must notice that the log was replaced."""


class SeqRange(NamedTuple):
    """The range of seqs of a log at which a page has certain observations; empty if `low > high`."""

    low: float
    high: float


def judge_reads(case: Case) -> Iterator[Violation]:
    """Yield stale, torn and backward reads, and skipped events."""
    yield from _fresh(case)
    for told in case.by_process("saw"):
        yield from _views(case, told)
    for told in case.by_process("change", "resync", "changes begin"):
        yield from _changes(case, told)
    for told in case.by_process("followed", "log error"):
        yield from _followers(case, told)


def range_of(log: Logbook, rows: list[list[object]]) -> SeqRange | None:
    """Return where in a log the newest of the page are these (id, version, seq); None if one is not in the log."""
    low, high, added = 0.0, inf, list[int]()
    for id, version, seq in rows:
        seqs = log.seqs.get((PAGE, str(id)), [])
        if not isinstance(version, int) or version > len(seqs) or seqs[version - 1] != seq:
            return None
        low = max(low, seqs[version - 1])
        high = min(high, seqs[version] - 1 if version < len(seqs) else inf)
        added.append(seqs[0])
    all_added = log.added.get(PAGE, [])
    end = bisect_right(all_added, max(added, default=0))
    if end < len(all_added):
        high = min(high, all_added[end] - 1)
    if added != all_added[max(0, end - SHOWN) : end][::-1]:
        return SeqRange(inf, 0)
    return SeqRange(low, high)


def _fresh(case: Case) -> Iterator[Violation]:
    floors = [_Floor(case, number) for number in range(len(case.reigns))]
    lows: dict[tuple[str, int], tuple[float, Record]] = {}
    for record in case.of("read"):
        begun = record.told["begun"]
        seen = {number: range_of(case.reigns[number].log, record.told["rows"])
                for number in case.touched(begun, record.t)}  # fmt: skip
        whole = {number: span for number, span in seen.items() if span and span.low <= span.high}
        if not whole:
            yield Violation("torn read", record.who, f"{record}: no log ever had this state: {seen}")
        elif all(span.high < floors[number].at(begun) for number, span in whole.items()):
            floor = {number: floors[number].at(begun) for number in whole}
            yield Violation("stale read", record.who, f"{record}: {whole}, but acknowledged before: {floor}")
        number = case.settled(begun, record.t)
        if number is not None and number in whole:
            low, before = lows.get((record.who, number), (0, record))
            if whole[number].high < low:
                yield Violation("non-monotonic", record.who, f"{record} after {before}")
            lows[record.who, number] = max((low, before), (whole[number].low, record), key=lambda pair: pair[0])


class _Floor:
    """The seq that a read must include: that of the last write acknowledged before the read began."""

    def __init__(self, case: Case, number: int) -> None:
        era, begun = case.era_of(number), case.reigns[number].begun[1]
        acked = [
            (write.answer.t, entries[-1].seq)
            for write in case.writes
            if write.answer.what == "ok" and write.told["page"] == PAGE
            if write.answer.t > begun or (write.told["level"] == "replica" and era.index(number))
            if (entries := case.entries_of(write, number))
        ]
        self._times = [t for t, _ in acked]
        self._seqs = list(accumulate((seq for _, seq in acked), max))

    def at(self, t: float) -> int:
        """Return the highest seq acknowledged before a time."""
        known = bisect_right(self._times, t)
        return self._seqs[known - 1] if known else 0


def _views(case: Case, told: list[Record]) -> Iterator[Violation]:
    before: Record | None = None
    logs_before: list[Logbook] = []
    for record in told:
        _, seq = record.told["at"]
        logs = [case.reigns[number].log for number in case.touched(0, record.t)]
        logs = [log for log in logs if not seq or log.has(record.told["at"])]
        places = [range_of(log, record.told["rows"]) for log in logs]
        logs = [log for log, place in zip(logs, places, strict=True) if place and place.low <= seq <= place.high]
        if not logs:
            yield Violation("torn read", record.who, f"{record}: no log ever had this state: {places}")
        elif seq and not any(log.by_seq[seq].is_batch_end for log in logs):
            yield Violation("torn read", record.who, f"{record}: in the middle of a batch")
        floor, asked = record.told["floor"], record.told["asked"]
        if floor and seq < floor and case.settled(asked - GRACE, record.t) is not None:
            yield Violation("stale read", record.who, f"{record}: after it had reached {floor}")
        if before and logs and seq < before.told["at"][1] and logs[-1] in logs_before:
            yield Violation("non-monotonic", record.who, f"{record} after {before}")
        before, logs_before = record, logs


def _changes(case: Case, told: list[Record]) -> Iterator[Violation]:
    for one, other in pairwise(told):
        if one.what != "change" or other.what != "change":
            continue
        (first, second), evidence = (one.told["at"][1], other.told["at"][1]), f"{one}, then {other}"
        if second <= first:
            yield Violation("non-monotonic", one.who, evidence)
        elif not any(
            log.has(one.told["at"], one.told["id"]) and log.has(other.told["at"], other.told["id"])
            and all(seq in log.by_seq and log.by_seq[seq].page != PAGE for seq in range(first + 1, second))
            for log in (reign.log for reign in case.reigns)
        ):  # fmt: skip
            yield Violation("skipped", one.who, evidence)


def _followers(case: Case, told: list[Record]) -> Iterator[Violation]:
    for one, other in pairwise([told[0]._replace(what="log error"), *told]):
        if other.what != "followed":
            continue
        seq, before = other.told["at"][1], 0 if one.what == "log error" else one.told["at"][1]
        if seq <= before:
            yield Violation("non-monotonic", one.who, f"{one}, then {other}")
        elif seq != before + 1 or not any(
            log.has(other.told["at"], other.told["id"]) and (not before or log.has(one.told["at"], one.told["id"]))
            for log in (reign.log for reign in case.reigns)
        ):
            yield Violation("skipped", one.who, f"{one}, then {other}")
