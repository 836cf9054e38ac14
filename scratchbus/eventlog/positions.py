"""The history index: the positions of one page's events in the log of its shard.

A page's positions are kept in one string, 16 bytes each, in order: a fold appends, an archiver cuts off trimmed
positions, and a reader finds its position by binary search. About 16 bytes an event of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Step, ask
from scratchbus.eventlog.layouts import LUA

_RECORD = struct.Struct(">QQ")
WIDTH = _RECORD.size


@lua_script("eventlog/position_search", "eventlog/positions", only_reads=True, constants=LUA)
def _read(*, positions: Key, ms: int, seq: int, limit: int) -> None:
    """Read the positions of a page after one of them."""


def pack(numbers: Sequence[int]) -> bytes:
    """Return the stored form of positions, given as alternating ms and seq."""
    return struct.pack(f">{len(numbers)}Q", *numbers)


def unpack(rows: bytes, shard: int) -> list[Position]:
    """Return positions from their stored form, without an incomplete last one."""
    return [Position(ms, seq, shard) for ms, seq in _RECORD.iter_unpack(rows[: len(rows) // WIDTH * WIDTH])]


def read_positions(shard: int, key: str, after: Position, limit: int) -> Step[list[Position]]:
    """Return up to `limit` positions of a page after one of them; none if their build is removed meanwhile."""
    _, _, rows = yield from _read_one(shard, key, after, limit)
    return unpack(rows, shard)


def count_many_positions(shard: int, wanted: Sequence[tuple[str, Position]]) -> Step[list[tuple[int, Position | None]]]:
    """Return how many events of a page there are up to each position, and the next one, in one round trip."""
    commands = [_read(positions=key, ms=until.ms, seq=until.seq, limit=1) for key, until in wanted]
    replies = yield Call(shard, tuple(commands))
    return [(low, next(iter(unpack(rows, shard)), None)) for low, _, rows in replies]


def read_positions_back(shard: int, key: str, until: Position, limit: int) -> Step[list[Position]]:
    """Return the last positions of a page up to one of them, at most `limit`, oldest first."""
    low, _, _ = yield from _read_one(shard, key, until, 0)
    if not low:
        return []
    rows = yield from ask(shard, "GETRANGE", key, max(0, low - limit) * WIDTH, low * WIDTH - 1)
    return [each for each in unpack(rows, shard) if each <= until]  # an archiver may have cut in between


def count_positions(shard: int, key: str, until: Position) -> Step[tuple[int, int]]:
    """Return how many events of a page there are up to a position, and how many in all; 0 if the build is removed.

    Events that were archived and trimmed do not count.
    """
    low, size, _ = yield from _read_one(shard, key, until, 0)
    return low, size


def _read_one(shard: int, key: str, after: Position, limit: int) -> Step[tuple[int, int, bytes]]:
    (reply,) = yield Call(shard, (_read(positions=key, ms=after.ms, seq=after.seq, limit=limit),))
    return reply[0], reply[1], reply[2]
