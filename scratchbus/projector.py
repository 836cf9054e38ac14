"""The projector: keeps the projection up with the log, so that readers need not."""

from __future__ import annotations

import random
import threading

from scratchbus.core import Host
from scratchbus.folding import fold_once
from scratchbus.log.commit import Checkpoint, Outcome


def run_projector(bus: Host, stop: threading.Event) -> None:
    """Fold every shard as events come, until `stop` is set. Raises EngineError when the engine goes away."""
    log = bus.core.log
    known: dict[int, Checkpoint] = {}
    while not stop.is_set():
        is_idle = True
        for shard in range(log.shards):
            folded, known[shard] = bus.run(fold_once(log, shard, known.get(shard)))
            if folded.outcome is not Outcome.DONE:
                stop.wait(random.uniform(0.002, 0.03))  # jitter: another projector is at it
            is_idle = is_idle and folded.is_all and folded.outcome is Outcome.DONE
        if is_idle:
            bus.wait_for_events({shard: done.position for shard, done in known.items()})
