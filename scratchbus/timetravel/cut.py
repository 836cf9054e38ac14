"""The requested past moment: the end of a page's log, and the time."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.time_checks import When as When
from scratchbus.domain.time_checks import as_when
from scratchbus.domain.values import millis, moment
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidPosition
from scratchbus.eventlog.cursor import check_shards
from scratchbus.eventlog.position_at import batch_end, last_until
from scratchbus.readmodel.page_query import query_page
from scratchbus.readmodel.scope import Core

_APART_MS = 1_000
"""How far the caller's clock may be ahead of the engine's; anything later is in the future."""


class Cut(NamedTuple):
    """The last event on the shard of a page at that moment (START if none), and the time (ms)."""

    position: Position
    ms: int


def cut_at(core: Core, page: str, when: When) -> Step[Cut]:
    """Return the cut for a moment on a page.

    A batch is atomic, so a position in its middle means the end of the batch. A position on another shard counts by its
    time, and one of the bus by the latest time in it. Raises InvalidPosition for a position or time that is impossible
    on this bus or in the future, LogRewound for one that the log does not have, and PositionLost for one that it no
    longer has.
    """
    shard = core.log.shard(page)
    when = as_when(when)
    if isinstance(when, datetime):
        return (yield from _at_time(core, page, millis(when)))
    check_shards(core.log, when)
    if isinstance(when, BusPosition):
        end = yield from batch_end(core.log, when.shards[shard]._replace(shard=shard))
        return Cut(end, max(each.ms for each in when.shards))
    end = yield from batch_end(core.log, when)
    if when.shard == shard:
        return Cut(end, when.ms)
    return Cut((yield from last_until(core.log, shard, when.ms if when.seq else when.ms - 1)), when.ms)


def _at_time(core: Core, page: str, ms: int) -> Step[Cut]:
    now = (yield from query_page(core.log, page, core.fresh, "get")).now
    if ms > now + _APART_MS:
        raise InvalidPosition(
            f"{moment(ms).isoformat(timespec='seconds')} is in the future; the engine has"
            f" {moment(now).isoformat(timespec='seconds')}"
        )
    end = yield from last_until(core.log, core.log.shard(page), ms)
    return Cut(end, min(ms, now))
