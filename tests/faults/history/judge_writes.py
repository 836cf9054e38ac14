"""Judge writes: lost, duplicated, or refused but written; and the order of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.faults.history.case import Case, Violation, Write
from tests.faults.history.logbook import NEXT, Logbook


def judge_writes(case: Case) -> Iterator[Violation]:
    """Yield violations of writes and of the order of the log."""
    for number, reign in enumerate(case.reigns):
        where = f"log {number}"
        yield from _order(reign.log, where)
        yield from _statuses(reign.log, where)
    for write in case.writes:
        if write.answer.what == "ok":
            yield from _lost(case, write)
        yield from _twice(case, write)
        yield from _refused(case, write)
        yield from _versions(case, write)


def _order(log: Logbook, where: str) -> Iterator[Violation]:
    ms = seq = 0
    for entry in log.entries:
        if entry.ms < ms or entry.seq <= seq:
            yield Violation("non-monotonic", where, f"{entry} after {ms}-{seq}")
        elif entry.seq != seq + 1:
            yield Violation("lost", where, f"{entry} after {ms}-{seq}: there is a gap")
        ms, seq = entry.ms, entry.seq
    for id, times in Counter(entry.id for entry in log.entries).items():
        if times > 1:
            yield Violation("duplicated", where, f"event {id} occurs {times} times")


def _statuses(log: Logbook, where: str) -> Iterator[Violation]:
    for entry, before, after in log.turns.values():
        if entry.kind == "status_changed" and before and after.status not in NEXT.get(before.status, ()):
            yield Violation("transition won twice", where, f"{entry}: to {after.status}, where it was {before.status}")


def _lost(case: Case, write: Write) -> Iterator[Violation]:
    """A write on the replica must survive its primary; any other must be on the primary's disk."""
    if not (write.told["mark"] or write.told["event_id"]):
        return  # it cannot be identified
    touched = case.touched(*write.span)
    if write.told["level"] == "replica":
        touched = [case.era_of(number)[-1] for number in touched]
    if not any(case.entries_of(write, number) for number in touched):
        yield Violation("lost", write.who, f"{write}; not in log {' nor '.join(map(str, touched))}")


def _twice(case: Case, write: Write) -> Iterator[Violation]:
    for number in range(len(case.reigns)):
        found = case.marked(write, number)
        if len(found) > 1:
            evidence = f"{write}; in log {number} as {' and '.join(map(str, found))}"
            yield Violation("duplicated", write.who, evidence)


def _refused(case: Case, write: Write) -> Iterator[Violation]:
    number = case.settled(*write.span)
    if (
        write.answer.what == "refused"
        and not write.is_ambiguous
        and number is not None
        and case.entries_of(write, number)
    ):
        yield Violation("refused and written", write.who, f"{write}; {case.entries_of(write, number)[0]}")


def _versions(case: Case, write: Write) -> Iterator[Violation]:
    expected = write.told.get("expected")
    if expected is None:
        return
    for number, reign in enumerate(case.reigns):
        for entry in case.entries_of(write, number):
            before = reign.log.turns[entry.seq].before
            if before is None or before.version != expected:
                yield Violation("transition won twice", write.who, f"{write}; {entry} in log {number} found {before}")
