"""Gaps in a log: missing events that were not erased."""

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import PositionLost
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.raw_entries import RawEntry, entry_position, texts_of
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()

ERASED = "erased"
"""The status of a head whose subject was erased."""


def count_erased(keys: ShardKeys, after: int, before: int) -> Step[int]:
    """Return how many of the events between two numbers were erased."""
    if before <= after + 1:
        return 0
    return int((yield from ask(keys.shard, "ZCOUNT", keys.erased, after + 1, before - 1)))


def count_all_erased(keys: ShardKeys) -> Step[int]:
    """Return how many events of a log were erased, ever."""
    return int((yield from ask(keys.shard, "ZCARD", keys.erased)))


def are_erased(keys: ShardKeys, after: int, before: int) -> Step[bool]:
    """Return whether all events between two numbers were erased."""
    return (yield from count_erased(keys, after, before)) == before - after - 1


def erased_between(keys: ShardKeys, first: int, last: int) -> Step[list[int]]:
    """Return the numbers of the events that were erased, from the first of these to the last."""
    found = yield from ask(keys.shard, "ZRANGEBYSCORE", keys.erased, first, last)
    return [int(seq) for seq in found if seq.isdigit()]  # verification reports others


def not_erased(keys: ShardKeys, positions: Sequence[Position]) -> Step[list[Position]]:
    """Return the positions whose events were not erased."""
    if not positions:
        return []
    scores = yield from ask(keys.shard, "ZMSCORE", keys.erased, *(position.seq for position in positions))
    return [position for position, score in zip(positions, scores, strict=True) if score is None]


def read_gaps(flat: Sequence[bytes], shard: int) -> dict[Position, int]:
    """Return the stored gaps of a log in order: how many events are missing before each of these."""
    counts = zip(texts_of(flat[::2]), map(int, flat[1::2]), strict=True)
    return dict(sorted((Position.parse(stream_id)._replace(shard=shard), count) for stream_id, count in counts))


def find_gaps(keys: ShardKeys, after: Position, entries: list[RawEntry]) -> Step[dict[str, int]]:
    """Return the entries before which unerased events are missing, and how many; `status` shows them.

    Raises PositionLost if the log begins after the missing events.
    """
    gaps: dict[str, int] = {}
    before = after
    for entry in entries:
        position = entry_position(entry, keys.shard)
        missing = position.seq - before.seq - 1
        if missing and (missing := missing - (yield from count_erased(keys, before.seq, position.seq))):
            gaps[position.stream_id] = missing
            logger.warning("gap in the log", shard=keys.shard, after=str(before), next=str(position))
        before = position
    if entries[0][0].decode() in gaps:
        first = yield from ask(keys.shard, "XRANGE", keys.log, "-", "+", "COUNT", 1)
        if first and first[0][0] == entries[0][0]:
            raise PositionLost(
                f"shard {keys.shard}: the log was trimmed to {entries[0][0].decode()}, after the checkpoint {after};"
                " restore the events between them from a backup of the engine"
            )
    return gaps
