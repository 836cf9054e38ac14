"""A round: processes play their parts for some seconds during faults, then recover and end; returns the history."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from scratchbus import Bus
from scratchbus.domain.values import millis
from scratchbus.readmodel.status import read_subscriptions
from tests.faults.checker import check
from tests.faults.history.archives import Archives
from tests.faults.history.arena import Arena
from tests.faults.history.case import History
from tests.faults.history.journal import read_journals
from tests.faults.history.logbook import State, Subject
from tests.faults.history.older import Older, OlderProcess
from tests.faults.history.plan import Fault, draw, playable
from tests.faults.history.roles import BUS, CREW, SUBSCRIPTIONS, Part, play
from tests.faults.processes import Crew, kill
from tests.inspection import documents, project
from tests.waiting import eventually

UNDONE = (
    "pause", "drop replies", "delay replies",
    "cut requests", "cut replies", "cut requests of one", "cut replies of one", "cut to replica", "cut from replica",
    "foreign entry",
)  # fmt: skip
"""The faults that last, beside others, until they are undone."""

RECOVERED = {
    "publisher": 60,
    "claimer": 60,
    "worker": 20,
    "subscriber": 60,
    "viewer": 20,
    "reader": 20,
    "follower": 60,
    "observer": 10,
    "archiver": 2,
}
"""The number of records that each role must write after the last fault, which shows that it has recovered."""

PATIENCE = 60.0
"""Seconds without progress after which a process is stuck; many, for slow machines."""


@contextmanager
def short_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="scratchbus-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def play_round(
    seconds: float,
    seed: int,
    kinds: Collection[str] | None = None,
    sabotage: Collection[str] = (),
    tell: Callable[[str], None] = lambda line: None,
    older: Path | None = None,
) -> History:
    """Play a round with these kinds of faults, by default all possible ones, and return its history.

    Half of the processes run the code in the directory `older`, if it is given. No process outlives this call.
    """
    kinds = playable() if kinds is None else kinds
    if older is not None:
        kinds = [kind for kind in kinds if kind != "foreign entry"]  # which older code does not know
    faults = draw(seed, seconds, CREW, kinds)
    with (
        short_directory() as directory,
        Arena(seed, directory / "archive") as arena,
        Crew() as crew,
        Older(older) as older_processes,
    ):
        cast = Cast(arena, crew, older_processes, directory, seed, sabotage)
        cast.start()
        for moment, act in cast.script(faults):
            cast.wait_until(moment)
            act()
            tell(cast.progress(seconds))
        cast.wait_until(seconds)
        return cast.finish()


class Cast:
    """The processes of a round."""

    def __init__(
        self,
        arena: Arena,
        crew: Crew,
        older_processes: Older,
        directory: Path,
        seed: int,
        sabotage: Collection[str],
        pace: float = 1.0,
    ) -> None:
        self.did: Counter[str] = arena.did
        self._arena, self._crew, self._older_processes, self._directory = arena, crew, older_processes, directory
        self._seed, self._sabotage, self._pace = seed, sabotage, pace
        self._starts: Counter[str] = Counter()
        self._processes: dict[str, BaseProcess | OlderProcess] = {}
        self._begun = 0.0

    def start(self) -> None:
        """Start all processes, and wait until each has a journal."""
        for role, count in {**CREW, "observer": 1}.items():
            for number in range(count):
                self._start(f"{role}-{number}")
        eventually(lambda: len(self._journals()) == len(self._processes), within=PATIENCE)
        self._begun = time.monotonic()

    def _start(self, member: str) -> None:
        role, _, number = member.partition("-")
        part = Part(
            self._arena.proxy.door(member), self._directory, role, int(number), self._starts[member], self._seed,
            self._sabotage, self._pace,
        )  # fmt: skip
        self._starts[member] += 1
        self._processes[member] = self._older_processes.start(part) or self._crew.start(play, part)

    def script(self, faults: list[Fault]) -> list[tuple[float, Callable[[], None]]]:
        """Return the times and actions of a round: each fault, and the end of lasting ones."""
        acts: list[tuple[float, Callable[[], None]]] = []
        for fault in faults:
            acts.append((fault.at, partial(self._do, fault)))
            if fault.kind in UNDONE:
                acts.append((fault.at + fault.lasts, partial(self._undo, fault)))
        return sorted(acts, key=lambda act: act[0])

    def _do(self, fault: Fault) -> None:
        if fault.kind == "kill":
            self.did[f"kill {fault.target.partition('-')[0]}"] += 1
            kill(self._processes[fault.target])
            self._start(fault.target)
        elif fault.kind == "pause":
            self.did["pause"] += 1
            self._signal(fault.target, signal.SIGSTOP)
        else:
            self._arena.do(fault.kind, fault.lasts, fault.target)

    def _undo(self, fault: Fault) -> None:
        if fault.kind == "pause":
            self._signal(fault.target, signal.SIGCONT)
        else:
            self._arena.undo(fault.kind, fault.target)

    def _signal(self, member: str, number: int) -> None:
        process = self._processes[member]
        if process.pid and process.is_alive():  # otherwise it has crashed and recorded why
            os.kill(process.pid, number)

    def wait_until(self, moment: float) -> None:
        """Wait until this many seconds after the start."""
        time.sleep(max(0.0, self._begun + moment - time.monotonic()))

    def progress(self, seconds: float) -> str:
        kills = sum(count for kind, count in self.did.items() if kind.startswith("kill "))
        return (
            f"{time.monotonic() - self._begun:.0f} of {seconds:.0f} s, {sum(self.did.values())} faults, {kills} kills"
        )

    def pids(self) -> dict[str, int]:
        """Return the process id of each member."""
        return {member: process.pid or 0 for member, process in self._processes.items()}

    def finish(self, *, recover: bool = True) -> History:
        """Let the processes recover, end them, writers first, and return the history.

        Without `recover` the time to recover is skipped.
        """
        self._arena.repair()
        stuck = self._recover() if recover else []
        (self._directory / "stop").touch()
        stuck += self._end_by_themselves("publisher", "claimer")
        self._kill("worker", "expirer")
        with Bus.connect(self._arena.primary.url, bus=BUS, source="judge") as bus:
            bus.core.log.archive = Archives(self._directory / "archive", BUS)
            stuck += self._consume_all(bus)
            self._kill(*CREW, "observer")
            project(bus)
            unsound = [f"{finding.kind}: {finding.what}" for finding in check(bus)]
            held = documents_of(bus)
            dead = {name: {_seq(one.position) for one in bus.dead_letters(name)} for name in _names(bus)}
        self.did["dropped"], self.did["unsynced"] = self._arena.proxy.cuts, self._arena.unsynced
        self._arena.end()
        return History(
            read_journals(self._directory), self._arena.reigns, held, dead, unsound, stuck, self.did,
            frozenset(self._older_processes.members),
        )  # fmt: skip

    def _recover(self) -> list[str]:
        """Wait until every role has written enough records; return a problem for each that has not."""
        before = self._notes()

        def idle() -> list[str]:
            since = self._notes() - before
            return [f"the {role}s make no progress" for role, enough in RECOVERED.items() if since[role] < enough]

        return _wait(idle)

    def _journals(self) -> list[Path]:
        return list(self._directory.glob("*.jsonl"))

    def _notes(self) -> Counter[str]:
        """Return the number of records of each role."""
        notes = Counter[str]()
        for path in self._journals():
            notes[path.name.partition("-")[0]] += path.read_bytes().count(b"\n")
        return notes

    def _members(self, *roles: str) -> dict[str, BaseProcess | OlderProcess]:
        return {member: each for member, each in self._processes.items() if member.partition("-")[0] in roles}

    def _end_by_themselves(self, *roles: str) -> list[str]:
        members = self._members(*roles)
        return _wait(lambda: [f"{member} did not end" for member, each in members.items() if each.is_alive()])

    def _kill(self, *roles: str) -> None:
        for process in self._members(*roles).values():
            kill(process)

    def _consume_all(self, bus: Bus) -> list[str]:
        """Wait until all subscriptions are at the end of the log; return a problem for each that is not."""

        def late() -> list[str]:
            lags = {each.name: each.lag for each in bus.converse(read_subscriptions(bus.core))}
            return [f"subscription {name} did not reach the end" for name in SUBSCRIPTIONS if lags.get(name, 1)]

        return _wait(late)


def _wait(stuck: Callable[[], list[str]]) -> list[str]:
    """Wait until no problem is left; return those that remain after the timeout."""
    deadline = time.monotonic() + PATIENCE
    while (still := stuck()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return still


def documents_of(bus: Bus) -> dict[Subject, State]:
    """Return the stored observations as states of the logbook."""
    return {
        subject: State(
            one.version, one.status, one.content, one.occurrences, tuple(one.links), one.fence,
            one.claim.by if one.claim else "", millis(one.claim.until) if one.claim else 0,
        )
        for subject, one in documents(bus).items()
    }  # fmt: skip


def _names(bus: Bus) -> list[str]:
    return [each.name for each in bus.converse(read_subscriptions(bus.core))]


def _seq(position: str) -> int:
    return int(position.rpartition("-")[2])
