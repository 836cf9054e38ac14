"""The events after a position, as a blocking program follows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from scratchbus.domain.events import Event
from scratchbus.domain.position import BusPosition, Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.reader import Narrow, Stop, block_ms, decode_wanted, read
from scratchbus.eventlog.tail_readers import Feeds


def follow_events(
    log: Log,
    run: Callable[[Step[Any]], Any],
    feeds: Feeds,
    after: BusPosition | Position | str | None,
    pages: Collection[str] | None,
    narrow: Narrow,
    follow: bool,
    stop: Stop | None,
) -> Iterator[Event]:
    """Yield the events after a position, oldest first; with `follow`, go on as they happen until `stop` is set."""
    places = run(cursors(log, after, pages))
    while stop is None or not stop.is_set():
        ms = block_ms(follow, stop)
        chunks = feeds.run(read(log, places, ms))
        yield from decode_wanted(chunks, narrow)
        if chunks:
            continue
        if ms is None:
            return
        if log.is_spread and len(places) > 1:
            feeds.wait_behind({place.position.shard: place.position for place in places}, ms / 1000)
