"""Claims and fences: who held what, by the log and by what processes were told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.faults.history.case import Case, Violation, Write
from tests.faults.history.journal import Record
from tests.faults.history.logbook import Entry, Logbook

_BY_HAND = {"reviewed", "resolved", "archived", "reopened", "changed"}
"""The reasons of status changes that a live claim of another stands in the way of."""

ROUNDED = 2  # milliseconds that the engine's clock and a process's may differ by when they are written down


def claims(case: Case) -> Iterator[Violation]:
    """Yield claims that were not exclusive, and writes that a fence or a claim should have stopped."""
    for number, reign in enumerate(case.reigns):
        yield from _two_live(reign.log, f"log {number}")
    for write in case.writes:
        yield from _guarded(case, write)
    yield from _two_holders(case)
    yield from _two_believers(case)


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
                if before is None or not before.is_held(entry.ms) or before.fence != fence:
                    yield Violation("fence violated", write.who, evidence)
            elif _is_by_hand(entry) and before and before.is_held(entry.ms) and before.holder != entry.body["by"]:
                yield Violation("fence violated", write.who, evidence)


def _is_by_hand(entry: Entry) -> bool:
    return entry.kind == "updated" or entry.body.get("reason_code") in _BY_HAND


def _told(case: Case) -> Iterator[tuple[str, int, int, Record]]:
    """Yield who was told that a claim is theirs: of what, by which fence, until when (ms)."""
    for write in case.writes:
        if write.told["call"] == "claim" and write.answer.what == "ok":
            yield write.told["id"], write.answer.told["fence"], write.answer.told["until"], write.answer
    for job in case.of("job"):
        yield job.told["id"], job.told["fence"], job.told["until"], job


def _two_holders(case: Case) -> Iterator[Violation]:
    """One fence is for one process, however it came by it."""
    told: dict[tuple[str, int], dict[str, Record]] = defaultdict(dict)
    for id, fence, _, record in _told(case):
        told[id, fence][record.who] = record
    for (id, fence), holders in told.items():
        if len(holders) > 1:
            yield Violation(
                "split claim", id, f"fence {fence} was given to {' and to '.join(map(str, holders.values()))}"
            )


def _two_believers(case: Case) -> Iterator[Violation]:
    """Nobody gets a claim before the one who had it before knows that it is over: by its time, or by giving it up."""
    given_up: dict[tuple[str, str, int], float] = {}
    for write in case.writes:
        if write.told["call"] in ("release", "resolve") and write.told.get("fence") is not None:
            key = write.who, write.told["id"], write.told["fence"]
            given_up[key] = min(write.asked.ms, given_up.get(key, write.asked.ms))
    beliefs: dict[str, dict[tuple[str, int], tuple[float, float, object]]] = defaultdict(dict)
    for id, fence, until, told in _told(case):
        begun = beliefs[id].get((told.who, fence), (told.ms, 0, told))[0]
        ends = min(until - ROUNDED, given_up.get((told.who, id, fence), until))
        beliefs[id][told.who, fence] = begun, ends, told
    for id, held in beliefs.items():
        for (_, ends, first), (begun, _, second) in pairwise(sorted(held.values(), key=lambda belief: belief[0])):
            if begun < ends:
                yield Violation("split claim", id, f"{second}, while another believed to hold it: {first}")
