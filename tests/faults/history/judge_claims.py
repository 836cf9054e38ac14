"""Judge claims and fences, by the log and by the answers that processes got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

from tests.faults.history.case import Case, Violation, Write
from tests.faults.history.journal import Record
from tests.faults.history.logbook import Entry, Logbook

_BY_HAND = {"reviewed", "resolved", "archived", "reopened", "changed"}
"""The reason codes of status changes that a live claim of another process must stop."""

CLAIMED = 10.0  # seconds: the maximum time for which a process may rely on one answer about its claim
ROUNDED = 2  # milliseconds by which recorded times of engine and processes may differ


def judge_claims(case: Case) -> Iterator[Violation]:
    """Yield claims that were not exclusive, and writes that a fence or claim should have stopped."""
    for number, reign in enumerate(case.reigns):
        yield from _two_live(reign.log, f"log {number}")
    for write in case.writes:
        yield from _guarded(case, write)
    beliefs = list(_beliefs(case))
    yield from _unwritten(beliefs)
    yield from _two_holders(beliefs)
    yield from _two_believers(case, beliefs)


def _two_live(log: Logbook, where: str) -> Iterator[Violation]:
    for entry, before, _ in log.turns.values():
        if entry.kind == "claimed" and "fence" not in entry.body and before and before.is_held(entry.ms):
            yield Violation("split claim", where, f"{entry} while {before.holder} held it until {before.until}")


def _guarded(case: Case, write: Write) -> Iterator[Violation]:
    fence = write.told.get("fence")
    for number, reign in enumerate(case.reigns):
        for entry in case.entries_of(write, number):
            before = reign.log.turns[entry.seq].before
            evidence = f"{write}; {entry} in log {number} found {before}"
            if fence is not None:
                is_own = before is not None and before.holder == write.who
                if before is None or not is_own or not before.is_held(entry.ms) or before.fence != fence:
                    yield Violation("fence violated", write.who, evidence)
            elif _is_by_hand(entry) and before and before.is_held(entry.ms) and before.holder != entry.body["by"]:
                yield Violation("fence violated", write.who, evidence)


def _is_by_hand(entry: Entry) -> bool:
    return entry.kind == "updated" or entry.body.get("reason_code") in _BY_HAND


class Belief(NamedTuple):
    """An answer that granted a claim to a process: the observation, the fence, and the end (ms).

    A retry may add a flushed observation again, whose fences then start over: `era` tells the two apart.
    """

    era: int
    id: str
    fence: int
    until: int
    told: Record


def _beliefs(case: Case) -> Iterator[Belief]:
    told = [
        (write.told["id"], write.answer.told["fence"], write.answer.told["until"], write.answer)
        for write in case.writes
        if write.told["call"] == "claim" and write.answer.what == "ok"
    ]
    told += [(job.told["id"], job.told["fence"], job.told["until"], job) for job in case.of("job")]
    eras = _eras_of_claims(case)
    for id, fence, until, record in told:
        yield Belief(eras.get((id, fence, until), -1), id, fence, until, record)


def _eras_of_claims(case: Case) -> dict[tuple[str, int, int], int]:
    return {
        (entry.subject, after.fence, after.until): era
        for era, numbers in enumerate(case.eras)
        for number in numbers
        for entry, _, after in case.reigns[number].log.turns.values()
        if entry.kind == "claimed"
    }


def _unwritten(beliefs: list[Belief]) -> Iterator[Violation]:
    for belief in beliefs:
        if belief.era < 0:
            yield Violation("lost", belief.told.who, f"{belief.told}; no log has such a claim")


def _two_holders(beliefs: list[Belief]) -> Iterator[Violation]:
    """Yield fences that were granted to more than one process."""
    told: dict[tuple[int, str, int], dict[str, Record]] = defaultdict(dict)
    for belief in beliefs:
        told[belief.era, belief.id, belief.fence][belief.told.who] = belief.told
    for (_, id, fence), holders in told.items():
        if len(holders) > 1:
            given = " and to ".join(map(str, holders.values()))
            yield Violation("split claim", id, f"fence {fence} was given to {given}")


def _two_believers(case: Case, beliefs: list[Belief]) -> Iterator[Violation]:
    """Yield claims granted before the previous holder knew of the end of its own, by time or by release."""
    given_up: dict[tuple[str, str, int], float] = {}
    for write in case.writes:
        if write.told["call"] in ("release", "resolve") and write.told.get("fence") is not None:
            key = write.who, write.told["id"], write.told["fence"]
            given_up[key] = min(write.asked.ms, given_up.get(key, write.asked.ms))
    held: dict[tuple[int, str], dict[tuple[str, int], tuple[float, float, Record]]] = defaultdict(dict)
    for era, id, fence, until, told in beliefs:
        begun = held[era, id].get((told.who, fence), (told.ms, 0, told))[0]
        ends = min(until - _skew(case, told.t) - ROUNDED, given_up.get((told.who, id, fence), inf))
        if begun < ends:  # otherwise it had ended before the answer, as after a retry
            held[era, id][told.who, fence] = begun, ends, told
    for (_, id), spans in held.items():
        for (_, ends, first), (begun, _, second) in pairwise(sorted(spans.values(), key=lambda span: span[0])):
            if begun < ends:
                yield Violation("split claim", id, f"{second}, while another believed to hold it: {first}")


def _skew(case: Case, told: float) -> float:
    """Return the maximum number of ms by which an engine's clock was ahead of ours while a claim lasted.

    A primary whose clock is ahead of its predecessor's ends claims early: then only fences keep holders apart.
    """
    return max(case.reigns[number].skew for number in case.touched(told - CLAIMED, told + CLAIMED))
