"""Claims and versions of each observation: whether some order explains all that processes were told.

Each log is judged by itself, each observation of it by itself. From the log come only the events that nobody has noted,
such as what time brought, and whether what was written before a failover has outlived it.
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
"""After so many an observation is left undecided."""
SECONDS = 40.0
"""After so many, all that is left of a round is skipped."""
SLACK = 0.02
"""Seconds that the engine's clock and ours may differ by, rounding included, beside what it is skewed by."""

KINDS: dict[str, Kind] = {
    "add": "add", "add many": "add", "add, with a key": "add", "update": "update", "link": "link", "claim": "claim",
    "release": "release", "resolve": "resolve", "review": "review", "reopen": "reopen",
}  # fmt: skip

Histories = dict[str, list[Operation]]
"""The operations on each observation."""


def judge_heads(
    case: Case, tally: Counter[str] | None = None, *, steps: int = STEPS, seconds: float = SECONDS
) -> Iterator[Violation]:
    """Yield each observation whose operations no order explains; count in `tally` what was decided and what was not."""
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
    """The operations of one log, and of its predecessors as far as it has inherited them."""

    def __init__(self, case: Case, number: int) -> None:
        self._case, self._number = case, number
        self._log: Logbook = case.reigns[number].log
        self._begun = case.reigns[number].begun[1]
        era = case.era_of(number)
        skews = [case.reigns[each].skew for each in era if each <= number]
        ahead = accumulate(skews, max)  # the log's time never goes back, so after a failover it may stand still
        self._frozen = max(maximum - skew for maximum, skew in zip(ahead, skews, strict=True)) / 1000
        self._found: Histories = defaultdict(list)
        self._noted: set[int] = set()  # the seqs of events that someone has noted
        self._spans: list[tuple[int, float, float]] = []  # of these events, when they happened

    def histories(self) -> Histories:
        """Return the operations on each observation that anyone but its author had to do with."""
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
        """Return the events about an observation in this log, and whether an operation is known to be theirs."""
        return [
            f"{entry}, {'noted' if seq in self._noted else 'not noted'}: {entry.text}"
            for seq, (entry, _, _) in self._log.turns.items()
            if entry.subject == id
        ]

    def _add(self, id: str, call: float, ret: float, act: Act, *, optional: bool = False) -> None:
        if act.kind == "claim" or act.holder:
            known = call >= self._begun  # else the clock may have leapt meanwhile
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
            return  # nothing tells its events from others, or it was never here
        entries = case.entries_of(write, number)
        settled, answer = case.settled(*write.span) == number, write.answer
        is_unknown = answer.what == "unknown" or (answer.what == "refused" and write.is_ambiguous)
        is_before = all(each in era and each <= number for each in touched)  # else it may have happened in a later log
        outlives = answer.what == "ok" and told["level"] == "replica" and is_before
        if not (settled or entries or outlives or (is_unknown and number in touched)):
            return  # it was lost, or refused, before this log began
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
            version = fence = None  # told while one log followed another: they may be those of the other
        if version is not None:
            self._add(id, call, ret, Act("read", write.who, version=version))  # it is read back when others wrote too
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
        """What a worker was handed is a claim by it, at the time of the event that gave it this fence.

        An observation that was added again after a flush has its fences anew: then this one may be another's here.
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
        """What nobody has noted has happened all the same, between those before and after it that someone has."""
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
    """When an event of a log can have happened, by those before and after it."""

    def __init__(self, spans: list[tuple[int, float, float]]) -> None:
        spans = sorted(spans)
        self._seqs = [seq for seq, _, _ in spans]
        self._calls = [0.0, *accumulate((call for _, call, _ in spans), max)]
        self._rets = [*reversed([*accumulate((ret for _, _, ret in reversed(spans)), min)]), inf]

    def of(self, seq: int) -> tuple[float, float]:
        """Return the moments between which an event happened."""
        return self._calls[bisect_left(self._seqs, seq)], self._rets[bisect_right(self._seqs, seq)]
