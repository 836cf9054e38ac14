"""How far readers of the log are behind its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.layouts import read_last
from scratchbus.eventlog.raw_entries import entry_position


class Lag(NamedTuple):
    """How many events follow a position, and how old the first of them is (seconds, by the engine's clock).

    The age of archived events is not known; then it is the age of the first event in the log.
    """

    events: int = 0
    seconds: float = 0.0


def read_lags(log: Log, positions: Iterable[Position]) -> Step[dict[Position, Lag]]:
    """Return how far each of these positions is behind the end of its log, in one round trip per shard."""
    by_shard: dict[int, list[Position]] = defaultdict(list)
    for position in dict.fromkeys(positions):
        by_shard[position.shard].append(position)
    lags: dict[Position, Lag] = {}
    for shard, shard_positions in by_shard.items():
        keys = log.keys(shard)
        firsts = [("XRANGE", keys.log, f"({position.stream_id}", "+", "COUNT", 1) for position in shard_positions]
        *found, tail, time = yield from ask_all(shard, [*firsts, ("GET", keys.tail), ("TIME",)])
        end, now = end_of(tail, shard), in_ms(time)
        for position, entries in zip(shard_positions, found, strict=True):
            first = entry_position(entries[0], shard) if entries else end
            if position < first <= end:
                handled_seq = first.seq - 1 if position.ms and not position.seq else position.seq
                lags[position] = Lag(end.seq - handled_seq, max(0, now - first.ms) / 1000)
            else:
                lags[position] = Lag()
    return lags


def end_of(tail: bytes | None, shard: int) -> Position:
    """Return the end of a log by its `tail`, or its lower end by its floor; the start for None."""
    return read_last(tail, shard)[0]


def read_clock(shard: int) -> Step[float]:
    """Return the time of a shard's engine, in milliseconds since the epoch."""
    seconds, micros = yield from ask(shard, "TIME")
    return int(seconds) * 1000 + int(micros) / 1000


def in_ms(time: tuple[bytes, bytes]) -> int:
    """Return the reply of TIME in milliseconds."""
    return int(time[0]) * 1000 + int(time[1]) // 1000
