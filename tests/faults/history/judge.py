"""Decide from its history alone whether a round kept the promises."""

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
    """Return every violation of a round.

    `tally` counts the observations whose operations were linearized, left undecided or skipped.
    """
    return list(violations(history, tally))


def violations(history: History, tally: Counter[str] | None = None) -> Iterator[Violation]:
    """Yield every violation as it is found; the slowest check comes last."""
    case = Case(history)
    for look in _JUDGES:
        yield from look(case)
    yield from judge_heads(case, tally)


def has_refused_new_data(history: History, record: Record) -> bool:
    """Return whether an older version has stopped, as it should, at data that it cannot read."""
    is_older = record.who.partition(".")[0] in history.older
    return is_older and record.what == "crashed" and "CodeTooOld" in record.told["trace"]


def waits_for_upgrade(history: History, problem: str) -> bool:
    """Return whether a process of an older version did not end because its last write has no known outcome.

    It retries that write forever, and is refused each time because the state is of a newer version.
    """
    who = problem.removesuffix(" did not end")
    said = [record for record in history.records if record.who.partition(".")[0] == who]
    return who in history.older and bool(said) and said[-1].told.get("why") == "CodeTooOld"


def judge_end(case: Case) -> Iterator[Violation]:
    """Yield state that differs from the log at the end, stuck processes, and unexpected errors."""
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
