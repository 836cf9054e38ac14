"""Follow the events after a position, in a blocking program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.time_checks import When
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.narrow import Narrow, decode_some_at_a_time, decode_wanted
from scratchbus.eventlog.reader import LONGEST_BLOCK_MS, STOPPABLE_BLOCK_MS, Stop, read
from scratchbus.eventlog.tail_readers import Feeds


def follow_events(
    log: Log,
    run: Callable[[Step[Any]], Any],
    feeds: Feeds,
    after: When | None,
    pages: Collection[str] | None,
    narrow: Narrow,
    follow: bool,
    stop: Stop | None,
) -> Iterator[AnyEvent]:
    """Yield the events after a position, oldest first; with `follow`, wait for new ones until `stop` is set."""
    places = run(cursors(log, after, pages))
    while chunks := feeds.run(read(log, places)):
        if stop is not None and stop.is_set():
            return
        for events in decode_some_at_a_time(chunks, narrow):
            yield from events
    while follow and (stop is None or not stop.is_set()):
        ms = LONGEST_BLOCK_MS if stop is None else STOPPABLE_BLOCK_MS
        chunks = feeds.run(read(log, places, ms))
        yield from decode_wanted(chunks, narrow)
        if not chunks and log.is_spread and len(places) > 1:
            feeds.wait_behind({place.position.shard: place.position for place in places}, ms / 1000)
