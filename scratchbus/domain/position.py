"""Positions of events in their logs."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple, Protocol

from scratchbus.errors import InvalidPosition, shown
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):  # it imports pydantic
    from scratchbus.domain import values

_TEXT = re.compile(r"(?:(\d{1,5})/)?(\d{1,15})-(\d{1,15})", re.ASCII)


class Position(NamedTuple):
    """An event's position in its log: the stream id ``<ms>-<seq>``, and the shard of the log.

    ``seq`` counts 1, 2, 3 … over the whole log; ``ms`` is the engine's time in milliseconds and never goes back.
    Positions of one shard compare in the order of the log. The text form is ``<ms>-<seq>`` on shard 0 and
    ``<shard>/<ms>-<seq>`` elsewhere.
    """

    ms: int
    seq: int
    shard: int = 0

    @classmethod
    def parse(cls, text: object) -> Position:
        """Return the position with this text form. Raises InvalidPosition."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidPosition(f"{shown(text)} is not a position; write it as <ms>-<seq> or <shard>/<ms>-<seq>")
        shard, ms, seq = match.groups()
        return cls(int(ms), int(seq), int(shard or 0))

    def checked(self) -> Position:
        """Return this position. Raises InvalidPosition unless its parts are whole numbers of up to 15 digits."""
        if not all(type(part) is int and 0 <= part < 10**15 for part in self):
            raise InvalidPosition(f"{shown(self)} is not a position; its parts are whole numbers of up to 15 digits")
        return self

    @classmethod
    def before(cls, at: datetime) -> Position:
        """Return the position before all events at or after a time, on shard 0; a naive time counts as UTC."""
        return cls(max(0, values.millis(at)), 0)

    @property
    def at(self) -> datetime:
        """The engine's time when the event was appended (UTC)."""
        return values.time_of_position(self.ms)

    @property
    def stream_id(self) -> str:
        """The id of the entry in its Redis Stream."""
        return f"{self.ms}-{self.seq}"

    def __str__(self) -> str:
        return f"{self.shard}/{self.ms}-{self.seq}" if self.shard else f"{self.ms}-{self.seq}"


START = Position(0, 0)


def event_range(first: int, last: int) -> str:
    """Return what to call the events with these numbers: `event 3`, `events 3 to 5`."""
    return f"event {first}" if first == last else f"events {first} to {last}"


class _Positioned(Protocol):
    """A position, or an event."""

    @property
    def ms(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def shard(self) -> int: ...


def in_time(positioned: _Positioned) -> tuple[int, int, int]:
    """Return the sort key of positions or events of several shards: by time, then by shard and order in the log."""
    return positioned.ms, positioned.shard, positioned.seq


class BusPosition(NamedTuple):
    """A position in every shard of a bus. Opaque to users: keep its text and pass it as ``after=``."""

    shards: tuple[Position, ...]

    @classmethod
    def parse(cls, text: object) -> BusPosition:
        """Return the position with this text form: one position per shard, joined by commas. Raises InvalidPosition."""
        if not isinstance(text, str):
            raise InvalidPosition(f"{shown(text)} is not a position of a bus; pass what `bus.position()` returned")
        return cls(tuple(Position.parse(part)._replace(shard=shard) for shard, part in enumerate(text.split(","))))

    def __str__(self) -> str:
        return ",".join(position.stream_id for position in self.shards)
