"""The moment of the past that someone asks for: where the log of a page ended, and what time it was."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from scratchbus.domain.checks import as_time
from scratchbus.domain.position import BusPosition, Position, millis, moment
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, InvalidPosition, shown
from scratchbus.eventlog.moments import batch_end, last_until
from scratchbus.readmodel.queries import look
from scratchbus.readmodel.scope import Core

When = BusPosition | Position | datetime | str
"""What names a moment: a position or its text, or a time; text is ISO 8601 then, and a naive time counts as UTC."""

_APART_MS = 1_000
"""How far the clock of who asks may be ahead of the engine's; what is further is in the future."""


class Cut(NamedTuple):
    """The last event that had happened on the shard of a page, START when none had, and the time (ms)."""

    position: Position
    ms: int


def cut_at(core: Core, page: str, when: When) -> Step[Cut]:
    """Return what a moment means for a page.

    A batch is atomic, so no page was ever as of its middle: a position there means the end of the batch. A position on
    another shard counts by its time, and one of the bus by the latest time that it has seen. Raises
    InvalidPosition for a position or time that this bus cannot have or that is in the future, LogRewound for one that
    its log does not have, and PositionLost for one that it no longer has.
    """
    shard = core.log.shard(page)
    when = _read(when) if isinstance(when, str) else when
    if isinstance(when, BusPosition):
        if len(when.shards) != core.log.shards:
            raise InvalidPosition(
                f"{shown(str(when))} is a position of a bus with {len(when.shards)} shards, not {core.log.shards}"
            )
        place = yield from batch_end(core.log, when.shards[shard]._replace(shard=shard))
        return Cut(place, max(each.ms for each in when.shards))
    if isinstance(when, Position):
        if when.shard >= core.log.shards:
            raise InvalidPosition(f"{shown(str(when))} is on shard {when.shard}; the bus has {core.log.shards}")
        place = yield from batch_end(core.log, when)
        if when.shard == shard:
            return Cut(place, when.ms)
        return Cut((yield from last_until(core.log, shard, when.ms if when.seq else when.ms - 1)), when.ms)
    if not isinstance(when, datetime):
        raise InvalidPosition(
            f"{shown(when)} is neither a position nor a time; pass the position of an event, or a datetime"
        )
    return (yield from _at_time(core, page, millis(_time(when))))


def _read(text: str) -> BusPosition | Position | datetime:
    try:
        return BusPosition.parse(text) if "," in text else Position.parse(text)
    except InvalidPosition:
        return _time(text)


def _time(when: datetime | str) -> datetime:
    """Return a time. Raises InvalidPosition."""
    try:
        return as_time("when", when)
    except InvalidField:
        problem = "write a position as <ms>-<seq> or <shard>/<ms>-<seq>, a time as 2026-01-31T12:00:00Z"
        raise InvalidPosition(f"{shown(str(when))} is neither a position nor a time since 1970; {problem}") from None


def _at_time(core: Core, page: str, ms: int) -> Step[Cut]:
    now = (yield from look(core.log, page, core.fresh, "get")).now
    if ms > now + _APART_MS:
        raise InvalidPosition(
            f"{moment(ms).isoformat(timespec='seconds')} is in the future; the engine has"
            f" {moment(now).isoformat(timespec='seconds')}"
        )
    place = yield from last_until(core.log, core.log.shard(page), ms)
    return Cut(place, min(ms, now))
