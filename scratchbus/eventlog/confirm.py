"""Wait until replicas have what is in the log."""

from __future__ import annotations

from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import NotReplicated
from scratchbus.eventlog.bus_log import Log


@lua_script("eventlog/confirm")
def _write_tail(*, tail: Key, never: Key) -> None:
    """Write the end of the log again."""


def confirm(log: Log, shard: int) -> Step[None]:
    """Wait for the replicas that `ack=replica` requires to have all earlier writes to a shard. Raises NotReplicated."""
    if not log.replicas:
        return
    keys = log.keys(shard)
    commands = (_write_tail(tail=keys.tail, never=keys.ids), ("WAIT", log.replicas, log.replica_ms))
    _, copies = yield Call(keys.shard, commands)  # safe to send twice
    if copies < log.replicas:
        raise NotReplicated(copies, log.replicas)
