"""Rebuilding: the state is folded again from the whole log beside the live one, and then replaces it in one step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Pause, Step, ask, ask_all
from scratchbus.errors import (
    ArchiveError,
    EngineError,
    InvalidPosition,
    LogError,
    LogGap,
    LogRewound,
    RebuildHeld,
    ScratchbusError,
)
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, checkpoint_key, is_state_too_old
from scratchbus.eventlog.gaps import count_erased, read_gaps
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import CHECKPOINT
from scratchbus.eventlog.raw_entries import entry_position, text_of
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.readmodel.rebuild_lease import RebuildLease, clear, take
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.logs import stderr_logger

CHUNK = 250
"""How many events are folded at once: a commit takes the engine some milliseconds."""

Progress = Callable[[int, int], object]
"""A callback that gets how many events are done, and how many there are; both may grow."""

_MAX_PAUSE_RATIO = 9.0  # times the duration of the preceding work
_MAX_PAUSE = 1.0  # seconds
_TERM = 10.0  # seconds between checks whether the end has come nearer
_NEARER = 0.8  # of the events that were left before
_LOG_INTERVAL = 5.0  # seconds between two log lines about the progress
_WAIT = 0.2  # seconds between checks whether someone else has rebuilt the state

logger = stderr_logger()


class Rebuilt(NamedTuple):
    """The result of a rebuild: how many events it folded, in how many seconds."""

    events: int
    seconds: float


@dataclass(slots=True)
class Pace:
    """How long to pause after each chunk, so that publishing stays nearly as fast as without a rebuild.

    Zero while nobody publishes; less and less if so much is published that the end does not come nearer.
    """

    remaining: int
    since: float
    pause_ratio: float = _MAX_PAUSE_RATIO

    def seconds(self, now: float, took: float, remaining: int, published: int) -> float:
        """Return how many seconds to pause after a chunk, with so many events left, and so many published since."""
        if now - self.since > _TERM:
            is_nearer = remaining < _NEARER * self.remaining
            self.pause_ratio = min(_MAX_PAUSE_RATIO, self.pause_ratio * 2) if is_nearer else self.pause_ratio / 2
            self.remaining, self.since = remaining, now
        return min(_MAX_PAUSE, took * self.pause_ratio) if published else 0.0


@dataclass(slots=True)
class _Work:
    """A rebuild in progress: the number of folded events, how far each shard is, and the last known end of its log."""

    log: Log
    who: str
    progress: Progress | None
    over_gaps: bool
    events: int = 0
    folded: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def record(self, shard: int, folded: int, end: int) -> None:
        """Record how far a shard is, and report the progress."""
        self.folded[shard], self.ends[shard] = folded, max(end, folded)
        if self.progress is not None:
            self.progress(sum(self.folded.values()), sum(self.ends.values()))


def rebuild(core: Core, progress: Progress | None = None, *, over_gaps: bool = False) -> Step[Rebuilt]:
    """Fold the state of all shards again and switch to it; until then readers use the old one.

    Raises RebuildHeld while someone else rebuilds; an aborted rebuild is taken over, and its leftovers are deleted.
    Also raises PositionLost, LogRewound, CodeTooOld, and without `over_gaps` LogGap if the log lost events that the
    live state contains; the live state is then unchanged.
    """
    began, log = time.monotonic(), core.log
    work = _Work(log, core.process, progress, over_gaps)
    for shard in range(log.shards):
        work.record(shard, 0, (yield from _read_end(log, shard)))
    for shard in range(log.shards):
        if work.ends[shard]:
            yield from _rebuild_shard(work, shard)
        elif (yield from _has_state_alone(log, shard)):
            yield from _drop_state(work, shard)
    return Rebuilt(work.events, time.monotonic() - began)


def renew(core: Core) -> Step[None]:
    """Rebuild state that an older version stored in another form, once, or wait for the process that does so.

    If it cannot be rebuilt from here, or a process of that version stores it again, reads raise an error.
    """
    is_logged = False
    while (yield from is_state_too_old(core.log)):
        if not is_logged:
            logger.warning("an older version stored the state; rebuilding it from the log")
            is_logged = True
        try:
            yield from rebuild(core, _log_progress())
            return
        except RebuildHeld:
            yield Pause(_WAIT)
        except (EngineError, LogError, ArchiveError) as problem:
            logger.warning("the state cannot be rebuilt from here", reason=str(problem))
            return


def _log_progress() -> Progress:
    """Return a callback that logs the progress of a rebuild from time to time."""
    last_logged = time.monotonic()

    def log_progress(folded: int, end: int) -> None:
        nonlocal last_logged
        if time.monotonic() - last_logged > _LOG_INTERVAL:
            last_logged = time.monotonic()
            logger.info("rebuilding the state", events=folded, of=end)

    return log_progress


def _read_end(log: Log, shard: int) -> Step[int]:
    return end_of((yield from ask(shard, "GET", log.keys(shard).tail)), shard).seq


def _has_state_alone(log: Log, shard: int) -> Step[bool]:
    """Return whether a shard has state but never had an event: an older version folded an entry added by hand."""
    keys = log.keys(shard)
    names = (checkpoint_key(keys), keys.tail, keys.origin, keys.pages)
    has_state, *others = yield from ask_all(shard, [("EXISTS", name) for name in names])
    return bool(has_state) and not any(others)


def _drop_state(work: _Work, shard: int) -> Step[None]:
    """Delete state without events, and its checkpoint last: until then no one reads the state or adds to it."""
    lease = yield from take(work.log.keys(shard), work.who)
    yield from clear(lease, kept=())
    if not (yield from lease.switch()):
        yield from lease.leave()  # the first event was appended meanwhile
        yield from _rebuild_shard(work, shard)


def _rebuild_shard(work: _Work, shard: int) -> Step[None]:
    lease = yield from take(work.log.keys(shard), work.who)
    try:
        yield from clear(lease, kept=(lease.live,))
        yield from _fold_all(work, lease)
    except RebuildHeld:
        raise
    except ScratchbusError:
        yield from lease.leave()
        raise
    yield from clear(lease, kept=())


def _fold_all(work: _Work, lease: RebuildLease) -> Step[None]:
    """Fold a shard's log from its beginning until the new build can replace the live one, and switch."""
    shard, end = lease.keys.shard, work.ends[lease.keys.shard]
    pace, known, is_live = Pace(end, time.monotonic()), None, False
    last_progress = time.monotonic()
    while not is_live:
        began, previous_end = time.monotonic(), end
        folded, known = yield from fold_once(work.log, shard, known, CHUNK, lease.build, builder=lease.token)
        end = (yield from lease.keep()).seq
        now, folded_seq = time.monotonic(), known.position.seq
        work.events += folded.events
        work.record(shard, folded_seq, end)
        if folded.events:
            last_progress = now
        if folded.outcome is Outcome.DONE and not folded.is_all:
            yield Pause(pace.seconds(now, now - began, end - folded_seq, end - previous_end))
            continue
        if folded.outcome is Outcome.DONE and not work.over_gaps:
            yield from _check_gaps(lease, known)
        is_live = folded.outcome is Outcome.DONE and (yield from lease.switch())
        if not is_live:  # a reply was lost, another server took over, or more was folded meanwhile
            if now - last_progress > _TERM:
                raise _unfinished(known, folded.outcome)
            yield Pause(0.02)


def _check_gaps(lease: RebuildLease, new: Checkpoint) -> Step[None]:
    """Raise LogGap if the log has lost events that the live state contains, and the new state lacks."""
    keys = lease.keys
    names = (keys.page("", build).gaps for build in (lease.build, lease.live))
    found, known, live, floor = yield from ask_all(
        keys.shard, [*(("HGETALL", name) for name in names), ("GET", keys.live), ("GET", keys.floor)]
    )
    end = _end_in(live, new.origin, keys.shard) if found else None
    if end is None:
        return
    known_gaps = read_gaps(known, keys.shard)
    for position in read_gaps(found, keys.shard):
        before = yield from ask(keys.shard, "XREVRANGE", keys.log, f"({position.stream_id}", "-", "COUNT", 1)
        start = entry_position(before[0], keys.shard).seq if before else end_of(floor, keys.shard).seq
        stop = min(end.seq + 1, position.seq)  # the live state contains no later ones
        lost = stop - start - 1 - (yield from count_erased(keys, start, stop))
        missing = lost - sum(known_gaps[at] for at in known_gaps if start < at.seq <= position.seq)
        if missing > 0:
            raise LogGap(
                f"shard {keys.shard}: the log has lost {missing} of the events before {position} that the state in use"
                " contains; restore the engine from a backup, or give up what they said with"
                " `scratchbus rebuild --over-gaps`"
            )


def _end_in(live: bytes | None, origin: str, shard: int) -> Position | None:
    """Return how far a state of any form is folded; None unless it is the state of the log with this origin."""
    stored = CHECKPOINT.regex.fullmatch(text_of(live or b""))
    stream_id, *_, state_origin, _ = stored.groups() if stored else ("", "", "")
    try:
        return Position.parse(stream_id)._replace(shard=shard) if state_origin == origin else None
    except InvalidPosition:
        return None


def _unfinished(known: Checkpoint, outcome: Outcome) -> LogError:
    """Return the error for a log that ends too early, or whose events cannot be folded."""
    shard, advice = known.position.shard, "restore the engine from a backup"
    if outcome is Outcome.DONE:
        return LogGap(
            f"shard {shard}: the log ends at {known.position}, before its tail or the state in use; events are missing:"
            f" {advice}"
        )
    return LogRewound(f"shard {shard}: the origin of the log, or its event behind {known.position}, is lost; {advice}")
