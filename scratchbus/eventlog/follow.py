"""The events after a position, as a blocking program follows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from scratchbus.domain.events import Event
from scratchbus.domain.position import BusPosition, Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.cursor import Cursor, cursors
from scratchbus.eventlog.read_ahead import read_ahead
from scratchbus.eventlog.reader import (
    LONGEST_BLOCK_MS,
    STOPPABLE_BLOCK_MS,
    Chunks,
    Narrow,
    Stop,
    decode_some_at_a_time,
    decode_wanted,
    read,
)
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
    read_next = partial(_read_next, log, feeds, places)
    for chunks in read_ahead(read_next, lambda: any(place.has_more for place in places)):
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


def _read_next(log: Log, feeds: Feeds, places: list[Cursor]) -> Chunks | None:
    return feeds.run(read(log, places)) or None
