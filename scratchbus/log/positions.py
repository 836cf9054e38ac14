"""The history index: where the events of one page stand in the log of its shard.

A page's positions are kept in one string, 16 bytes each, in order: a fold appends what it folded, and a reader finds
its place by halving. About 16 bytes an event, however long the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from scratchbus.domain.position import Position
from scratchbus.log.steps import Step, ask

_RECORD = struct.Struct(">QQ")
WIDTH = _RECORD.size


def pack(places: Sequence[int]) -> bytes:
    """Return the stored form of positions, given as the ms and seq of one after the other."""
    return struct.pack(f">{len(places)}Q", *places)


def read_positions(shard: int, key: str, after: Position, limit: int) -> Step[list[Position]]:
    """Return up to `limit` positions of a page behind one of them; none when the build they are of goes meanwhile."""
    low, _ = yield from count_positions(shard, key, after)
    rows = yield from ask(shard, "GETRANGE", key, low * WIDTH, (low + limit) * WIDTH - 1)
    return [Position(ms, seq, shard) for ms, seq in _RECORD.iter_unpack(rows[: len(rows) // WIDTH * WIDTH])]


def count_positions(shard: int, key: str, until: Position) -> Step[tuple[int, int]]:
    """Return how many events of a page there are up to a position, and how many in all; 0 when the build goes."""
    size: int = yield from ask(shard, "STRLEN", key)
    low, high = 0, size // WIDTH
    while low < high:
        middle = (low + high) // 2
        row = yield from ask(shard, "GETRANGE", key, middle * WIDTH, middle * WIDTH + WIDTH - 1)
        if not row:
            return 0, 0
        if _RECORD.unpack(row) <= (until.ms, until.seq):
            low = middle + 1
        else:
            high = middle
    return low, size // WIDTH
