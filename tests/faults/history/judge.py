"""Decides whether a round kept the promises, from its history alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.faults.history.case import Case, History, Violation
from tests.faults.history.journal import Record
from tests.faults.history.judge_claims import judge_claims
from tests.faults.history.judge_deliveries import judge_deliveries
from tests.faults.history.judge_heads import judge_heads
from tests.faults.history.judge_reads import judge_reads
from tests.faults.history.judge_writes import judge_writes

KINDS = (
    "lost",
    "duplicated",
    "non-monotonic",
    "skipped",
    "split claim",
    "fence violated",
    "transition won twice",
    "not linearizable",
    "stale read",
    "torn read",
    "refused and written",
    "state != fold",
    "stuck",
    "unexpected error",
)
"""Every kind of violation."""


def judge(history: History, tally: Counter[str] | None = None) -> list[Violation]:
    """Return every violation; none is what a round should end with.

    `tally` is told for how many observations an order was looked for, and for how many none was in the time there is.
    """
    return list(violations(history, tally))


def violations(history: History, tally: Counter[str] | None = None) -> Iterator[Violation]:
    """Yield every violation, as it is found; those that take longest to look for come last."""
    case = Case(history)
    for look in _JUDGES:
        yield from look(case)
    yield from judge_heads(case, tally)


def has_refused_new_data(history: History, record: Record) -> bool:
    """Say whether an older version has stopped as it should before data that it cannot read."""
    is_older = record.who.partition(".")[0] in history.older
    return is_older and record.what == "crashed" and "CodeTooOld" in record.told["trace"]


def waits_for_upgrade(history: History, problem: str) -> bool:
    """Say whether someone did not end who runs an older version, and cannot know what became of its last write.

    It asks again and again, as it was told to, and each time is told that the state is of a newer version.
    """
    who = problem.removesuffix(" did not end")
    said = [record for record in history.records if record.who.partition(".")[0] == who]
    return who in history.older and bool(said) and said[-1].told.get("why") == "CodeTooOld"


def judge_end(case: Case) -> Iterator[Violation]:
    """Yield what the engine held in the end and its log does not say, who is stuck, and what nobody expected."""
    folded = {turn.entry.about: turn.after for turn in case.reigns[-1].log.turns.values()}
    held = case.history.documents
    for subject in folded.keys() | held.keys():
        if folded.get(subject) != held.get(subject):
            yield Violation("state != fold", str(subject), f"{held.get(subject)} instead of {folded.get(subject)}")
    for problem in case.history.unsound:
        yield Violation("state != fold", "the end", problem)
    for problem in case.history.stuck:
        if not waits_for_upgrade(case.history, problem):
            yield Violation("stuck", "the end", problem)
    for record in case.of("crashed", "damaged"):
        if not has_refused_new_data(case.history, record):
            yield Violation("unexpected error", record.who, str(record))


_JUDGES: list[Callable[[Case], Iterator[Violation]]] = [
    judge_writes,
    judge_claims,
    judge_deliveries,
    judge_reads,
    judge_end,
]
