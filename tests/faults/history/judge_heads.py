"""Judge claims and versions of each observation: whether some order of operations explains all answers.

Each observation of each log is judged separately. The log contributes only events that no process recorded, such as
expiries, and whether a write before a failover survived it.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from math import inf
from typing import Any

from tests.faults.history.case import Case, Violation, Write
from tests.faults.history.head_model import Act, Head, Kind, step
from tests.faults.history.journal import Record
from tests.faults.history.linearizability import Operation, linearize
from tests.faults.history.logbook import Entry, Logbook
from tests.faults.history.writing import CLAIM_TTL

STEPS = 30_000
"""The steps after which an observation is left undecided."""
SECONDS = 40.0
"""The seconds after which the remaining observations of a round are skipped."""
SLACK = 0.02
"""Seconds by which the engine's clock and ours may differ, including rounding but not its skew."""

KINDS: dict[str, Kind] = {
    "add": "add", "add many": "add", "add, with a key": "add", "update": "update", "link": "link", "claim": "claim",
    "release": "release", "resolve": "resolve", "review": "review", "reopen": "reopen",
}  # fmt: skip

Histories = dict[str, list[Operation]]
"""The operations on each observation, by id."""


def judge_heads(
    case: Case, tally: Counter[str] | None = None, *, steps: int = STEPS, seconds: float = SECONDS
) -> Iterator[Violation]:
    """Yield each observation whose answers no order explains; count decided and undecided ones in `tally`."""
    tally = Counter() if tally is None else tally
    deadline = time.monotonic() + seconds
    for number in range(len(case.reigns)):
        reign = _Reign(case, number)
        for subject, operations in reign.histories().items():
            if time.monotonic() > deadline:
                tally["observations skipped"] += 1
                continue
            verdict = linearize(operations, Head(), step, steps)
            tally["observations undecided" if verdict.answer == "undecided" else "observations linearized"] += 1
            tally["steps of linearization"] += verdict.steps
            if verdict.answer == "no":
                evidence = [str(verdict), "of these operations:", *map(str, operations), *reign.events_of(subject)]
                yield Violation("not linearizable", f"{subject} in log {number}", "\n  ".join(evidence))


class _Reign:
    """The operations of one log, including those inherited from its predecessors."""

    def __init__(self, case: Case, number: int) -> None:
        self._case, self._number = case, number
        self._log: Logbook = case.reigns[number].log
        self._begun = case.reigns[number].begun[1]
        era = case.era_of(number)
        skews = [case.reigns[each].skew for each in era if each <= number]
        ahead = accumulate(skews, max)  # the log's time never goes back, so after a failover it may stand still
        self._frozen = max(maximum - skew for maximum, skew in zip(ahead, skews, strict=True)) / 1000
        self._found: Histories = defaultdict(list)
        self._noted: set[int] = set()  # the seqs of recorded events
        self._spans: list[tuple[int, float, float]] = []  # the times between which these events happened

    def histories(self) -> Histories:
        """Return the operations on each observation that has more than one."""
        for write in self._case.writes:
            self._take_write(write)
        self._bounds = _Bounds(self._spans)
        for job in self._case.of("job"):
            self._take_job(job)
        self._take_events()
        for record in self._case.of("read"):
            if self._case.settled(record.told["begun"], record.t) == self._number:
                for id, version, _ in record.told["rows"]:
                    self._add(id, record.told["begun"], record.t, Act("read", record.who, version=version))
        return {id: found for id, found in self._found.items() if len(found) > 1}

    def events_of(self, id: str) -> list[str]:
        """Return the events of an observation in this log, and whether a process recorded them."""
        return [
            f"{entry}, {'noted' if seq in self._noted else 'not noted'}: {entry.text}"
            for seq, (entry, _, _) in self._log.turns.items()
            if entry.subject == id
        ]

    def _add(self, id: str, call: float, ret: float, act: Act, *, optional: bool = False) -> None:
        if act.kind == "claim" or act.holder:
            known = call >= self._begun  # otherwise the clock may have leapt meanwhile
            act = replace(
                act,
                may_end=call + CLAIM_TTL - SLACK if known else 0.0,
                must_end=ret + CLAIM_TTL + SLACK + self._frozen,
            )
        self._found[id].append(Operation(call, ret, replace(act, call=call, ret=ret), optional))

    def _take_write(self, write: Write) -> None:
        case, number, told = self._case, self._number, write.told
        touched = case.touched(*write.span)
        if write.answer.what == "unknown" or write.is_ambiguous:
            touched = case.touched(write.asked.t, inf)
        era = case.era_of(number)
        if not (told["mark"] or told["event_id"]) or not any(each in era and each <= number for each in touched):
            return  # its events cannot be identified, or it never reached this log
        entries = case.entries_of(write, number)
        settled, answer = case.settled(*write.span) == number, write.answer
        is_unknown = answer.what == "unknown" or (answer.what == "refused" and write.is_ambiguous)
        is_before = all(
            each in era and each <= number for each in touched
        )  # otherwise it may have happened in a later log
        outlives = answer.what == "ok" and told["level"] == "replica" and is_before
        if not (settled or entries or outlives or (is_unknown and number in touched)):
            return  # it was lost or refused before this log began
        if answer.what == "refused" and not is_unknown and not settled:
            return
        ids = {told["id"]} if "id" in told else set(answer.told.get("ids", ())) | {entry.subject for entry in entries}
        for id in ids:
            self._take(write, id, entries, is_unknown=is_unknown)

    def _take(self, write: Write, id: str, entries: list[Entry], *, is_unknown: bool) -> None:
        told, answer = write.told, write.answer
        call, ret = write.asked.t, inf if is_unknown else answer.t
        is_told = answer.what == "ok" and len(answer.told.get("ids", ())) == 1 and not write.is_ambiguous
        version = answer.told["version"] if is_told and "version" in answer.told else None
        fence = answer.told.get("fence") if answer.what == "ok" else None
        if self._case.settled(*write.span) != self._number:
            version = fence = None  # the answer may be about another log
        if version is not None:
            self._add(
                id, call, ret, Act("read", write.who, version=version)
            )  # the answer may be read back after writes of others
        act = Act(
            KINDS[told["call"]], write.who, told.get("fence"), told.get("expected"),
            refused=answer.told.get("why", "Conflict") if answer.what == "refused" and not is_unknown else "",
            at_most=version,
            fence_given=fence,
            keyed=told["call"] == "add, with a key",
        )  # fmt: skip
        self._add(id, call, ret, act, optional=is_unknown)
        if act.kind == "add" and self._log.seqs.get((told["page"], id)):
            self._noted.add(self._log.seqs[told["page"], id][0])
        for entry in entries:
            self._noted.add(entry.seq)
            self._spans.append((entry.seq, call, ret))

    def _take_job(self, job: Record) -> None:
        """Add the claim of a worker's job, at the time of the event that granted its fence.

        The fences of an observation start over after a flush, so the fence of the job may be another's in this log.
        """
        for entry in self._log.claims.get(job.told["id"], []):
            claimed = self._log.turns[entry.seq].after
            is_own = claimed.holder == job.who and claimed.fence == job.told["fence"]
            if is_own and "fence" not in entry.body:
                self._noted.add(entry.seq)
                call, _ = self._bounds.of(entry.seq)
                act = Act("claim", job.who, fence_given=job.told["fence"])
                self._add(job.told["id"], min(call, job.t), job.t, act)

    def _take_events(self) -> None:
        """Add events that no process recorded, each between the recorded events around it."""
        for seq, (entry, _, after) in self._log.turns.items():
            if seq not in self._noted:
                body: dict[str, Any] = entry.body
                holder = {"claimed": body.get("holder"), "released": "", "lapsed": ""}.get(entry.kind)
                call, ret = self._bounds.of(seq)
                act = Act(
                    "add" if after.version == 1 else "event", version=after.version, holder=holder,
                    fence=body.get("fence"), status=body.get("status", "") if entry.kind == "status_changed" else "",
                )  # fmt: skip
                self._add(entry.subject, call, ret, act)


class _Bounds:
    """The times between which each event of a log happened, from recorded events around it."""

    def __init__(self, spans: list[tuple[int, float, float]]) -> None:
        spans = sorted(spans)
        self._seqs = [seq for seq, _, _ in spans]
        self._calls = [0.0, *accumulate((call for _, call, _ in spans), max)]
        self._rets = [*reversed([*accumulate((ret for _, _, ret in reversed(spans)), min)]), inf]

    def of(self, seq: int) -> tuple[float, float]:
        """Return the times between which an event happened."""
        return self._calls[bisect_left(self._seqs, seq)], self._rets[bisect_right(self._seqs, seq)]
