"""The projector: keeps the projection up to date, so that readers need not."""

from __future__ import annotations

import threading
from collections import Counter

from scratchbus.engine.retry_limits import JITTER
from scratchbus.errors import ArchiveError, LogError, ScratchbusError, StateTooOld
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome
from scratchbus.eventlog.log_wait import LogWait, waiting
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.catch_up import MAX_CHUNKS, fold_once
from scratchbus.readmodel.commits import FoldStep
from scratchbus.readmodel.rebuild import renew
from scratchbus.readmodel.scope import Host

_MAX_PAGES = 10_000  # pages whose events are counted


def run_projector(bus: Host, stop: threading.Event) -> None:
    """Fold every shard as events arrive, until `stop` is set. Raises EngineError if the engine is lost.

    If a shard's log or archive cannot be read, raises that error after a turn over the other shards.
    """
    with waiting(bus.core.log, bus.feeds, stop) as log_wait:
        _project(bus, stop, log_wait)


def _project(bus: Host, stop: threading.Event, log_wait: LogWait) -> None:
    log = bus.core.log
    checkpoints: dict[int, Checkpoint] = {}
    since: Counter[str] = Counter()
    while not stop.is_set():
        is_idle = True
        failure: ScratchbusError | None = None
        for shard in range(log.shards):
            try:
                folded, checkpoints[shard] = _fold(bus, shard, checkpoints.get(shard))
            except (LogError, ArchiveError) as problem:
                failure = failure or problem
                continue
            since.update(folded.pages)
            if folded.outcome is not Outcome.DONE:
                stop.wait(JITTER.uniform(0.002, 0.03))  # jitter: another projector is folding
            is_idle = is_idle and folded.is_all and folded.outcome is Outcome.DONE
        if failure is not None:
            raise failure
        if is_idle:
            _take_snapshots(bus, since, stop)
            log_wait.wait({shard: checkpoint.position for shard, checkpoint in checkpoints.items()})


def _fold(bus: Host, shard: int, known: Checkpoint | None) -> tuple[FoldStep, Checkpoint]:
    try:
        return bus.converse(fold_once(bus.core.log, shard, known, max_chunks=MAX_CHUNKS))
    except StateTooOld:
        bus.converse(renew(bus.core))
        return bus.converse(fold_once(bus.core.log, shard, max_chunks=MAX_CHUNKS))


def _take_snapshots(bus: Host, since: Counter[str], stop: threading.Event) -> None:
    """Write a snapshot of each page that has had enough events since the last check that one may be due."""
    log = bus.core.log
    minimum = min(snapshots.OPEN_MIN_EVENTS, snapshots.MIN_EVENTS)
    for page in [page for page, events in since.items() if events >= minimum]:
        keys = log.keys(log.shard(page))
        bus.converse(snapshots.take_open(keys, page))
        bus.converse(snapshots.take(keys, page, lambda: not stop.is_set()))
        del since[page]
    if len(since) > _MAX_PAGES:
        since.clear()
