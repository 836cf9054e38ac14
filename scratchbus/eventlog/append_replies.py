"""What the append script answers, by name."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Wrote
from scratchbus.eventlog.append_script import APPEND
from scratchbus.eventlog.writes import Write, refusal
from scratchbus.telemetry.counters import counts


class Written(NamedTuple):
    """What became of one write. One that mode "each" skipped has a position without `seq`, and the reason as kind."""

    position: Position
    version: int
    kind: str
    subject: str
    fence: int


class Idle(NamedTuple):
    """Why nothing was picked: what is free has less than the least priority, or something may be free at `soonest`.

    Times are ms, 0 for never; `priority` is -1 when nothing is free. `below` is the score to look on below, if any.
    """

    now: int
    soonest: int
    below: str
    priority: int


class Appended(NamedTuple):
    """The outcome of an append. `recalled`: the events were in the log before, and only their positions are known."""

    written: list[Written]
    recalled: list[Position] | None = None
    idle: Idle | None = None


def wrote_by(event_id: str, outcome: Appended) -> Wrote | None:
    """Return what is to be told of a write should what follows it fail."""
    if outcome.recalled:
        return Wrote(event_id, outcome.recalled[0])
    for row in outcome.written:
        if row.position.seq:
            return Wrote(event_id, row.position, row.fence if row.kind == "claimed" else None)
    return None


def read_reply(shard: int, page: str, room: int, writes: list[Write], reply: list[Any]) -> Appended:
    """Return what became of these writes. Raises what the first refused event was refused for."""
    match reply[0]:
        case b"written":
            return _read_written(shard, reply[1], reply[2:])
        case b"added":
            _, ms, first = reply
            written = [
                Written(Position(ms, seq, shard), 1, write.event.kind, write.event.subject, 0)
                for seq, write in enumerate(writes, first)
            ]
            return Appended(written)
        case b"known":
            return Appended([], [_position(row, shard) for row in reply[1:] if row])
        case b"refused" if reply[2] == b"idle":
            now, soonest, below, priority = reply[3:]
            return Appended([], idle=Idle(now, soonest, below.decode(), priority))
        case b"refused":
            index = reply[1] - 1
            _refuse(page, room, writes[index], index, len(writes), reply[2:])
    raise APPEND.unknown(reply)


def _read_written(shard: int, ms: int, rows: list[Any]) -> Appended:
    return Appended(
        [
            Written(Position(ms, seq, shard), version, kind.decode(), subject.decode(), fence)
            for seq, version, kind, subject, fence in zip(*[iter(rows)] * 5, strict=True)
        ]
    )


def _position(row: bytes, shard: int) -> Position:
    return Position.parse(row.decode())._replace(shard=shard)


def _refuse(page: str, room: int, write: Write, index: int, total: int, why: list[object]) -> NoReturn:
    reason, *details = [part.decode() if isinstance(part, bytes) else part for part in why]
    error = refusal(page, room, write, str(reason), details)
    error.index = index  # type: ignore[attr-defined]  # which item of a batch
    counts.refused[type(error).__name__] += 1
    if total > 1:
        error.args = (f"item {index + 1} of {total}: {error}; nothing was written",)
    raise error
