"""The history of a round, indexed for the judge."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tests.faults.history.arena import Reign
from tests.faults.history.journal import Record
from tests.faults.history.logbook import Entry, State, Subject
from tests.faults.marks import traced

ANSWERED = 1.5
"""Seconds after which a client may have retried by itself: less than its timeout."""

_WORD = re.compile(r'"([0-9A-Z]{26})"')


@dataclass
class History:
    """Everything known about a round: the records of all processes, the logs, and the data of the engine at the end.

    `older` names the processes that ran an earlier version of the code, as role and number. `dead` has the seqs of the
    dead letters of each subscription; `unsound` the data that contradicts the log; `stuck` the processes that made no
    progress after the last fault.
    """

    records: list[Record]
    reigns: list[Reign]
    documents: dict[Subject, State]
    dead: dict[str, set[int]]
    unsound: list[str]
    stuck: list[str]
    did: Counter[str] = field(default_factory=Counter)
    older: frozenset[str] = frozenset()


class Violation(NamedTuple):
    """A broken promise: the kind of breach, where it occurred, and its evidence."""

    kind: str
    where: str
    evidence: str


@dataclass
class Write:
    """A write and its answer: "ok", "refused" or "unknown"."""

    asked: Record
    answer: Record
    retries: int = 0

    @property
    def who(self) -> str:
        return self.asked.who

    @property
    def told(self) -> dict[str, Any]:
        return self.asked.told

    @property
    def span(self) -> tuple[float, float]:
        return self.asked.t, self.answer.t

    @property
    def is_ambiguous(self) -> bool:
        """Whether another attempt may still be in flight, or may have been executed first."""
        return self.retries > 0 or self.answer.t - self.asked.t > ANSWERED

    def __str__(self) -> str:
        return f"{self.asked}; {self.answer}"


class Case:
    """A history, with its writes located in the logs."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.reigns = history.reigns

    @cached_property
    def writes(self) -> list[Write]:
        """All writes in the order of their answers; one without an answer is "unknown" at the time of its call."""
        writes = dict[tuple[str, int], Write]()
        for record in self.history.records:
            if record.what == "invoke":
                writes[record.who, record.told["n"]] = Write(record, record._replace(what="unknown", told={}))
            elif record.what in ("ok", "refused", "unknown"):
                write = writes[record.who, record.told["n"]]
                write.answer, write.retries = record, write.retries + (record.what == "unknown")
        return sorted(writes.values(), key=lambda write: write.answer.t)

    @cached_property
    def eras(self) -> list[list[int]]:
        """The numbers of the reigns between flushes."""
        eras: list[list[int]] = [[]]
        for number, reign in enumerate(self.reigns):
            eras[-1].append(number)
            if reign.by == "flush":
                eras.append([])
        return eras

    def era_of(self, number: int) -> list[int]:
        return next(era for era in self.eras if number in era)

    def touched(self, begun: float, ended: float) -> list[int]:
        """Return the reigns in which an operation between two times may have happened."""
        return [
            number for number, reign in enumerate(self.reigns)
            if reign.begun[0] <= ended and (begun <= reign.over[1] or reign.by == "end")
        ]  # fmt: skip

    def settled(self, begun: float, ended: float) -> int | None:
        """Return the reign that contains the whole period, if there is one."""
        touched = self.touched(begun, ended)
        return touched[0] if len(touched) == 1 else None

    def entries_of(self, write: Write, number: int) -> list[Entry]:
        """Return the events of a write in the log of a reign."""
        event_id, by_id = write.told["event_id"], self.reigns[number].log.by_id
        found = {entry.seq: entry for entry in self.marked(write, number)}
        if event_id in by_id:
            found[by_id[event_id].seq] = by_id[event_id]
        return [found[seq] for seq in sorted(found)]

    def marked(self, write: Write, number: int) -> list[Entry]:
        """Return the events in the log of a reign with the mark of a write; there should be one."""
        return self._marked[number].get(write.told["mark"], [])

    @cached_property
    def _marked(self) -> list[dict[str, list[Entry]]]:
        marks = {write.told["mark"] for write in self.writes} - {""}
        return [_find(marks, reign.log.entries) for reign in self.reigns]

    def of(self, *kinds: str) -> Iterator[Record]:
        """Yield the records of these kinds in order of time."""
        return (record for record in self.history.records if record.what in kinds)

    def by_process(self, *kinds: str) -> Iterable[list[Record]]:
        """Return the records of these kinds, grouped by process."""
        told = defaultdict(list)
        for record in self.of(*kinds):
            told[record.who].append(record)
        return told.values()


def _find(marks: set[str], entries: list[Entry]) -> dict[str, list[Entry]]:
    found = defaultdict(list)
    for entry in entries:
        for word in {*_WORD.findall(entry.text), *traced(entry.text)} & marks:
            found[word].append(entry)
    return dict(found)
