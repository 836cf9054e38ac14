"""Follow the events after a position, in a blocking program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.time_checks import When
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.entry_filter import EntryFilter, decode_in_chunks, decode_wanted
from scratchbus.eventlog.reader import MAX_BLOCK_MS, STOPPABLE_BLOCK_MS, Stop, read
from scratchbus.eventlog.tail_readers import Feeds


def follow_events(
    log: Log,
    run: Callable[[Step[Any]], Any],
    feeds: Feeds,
    after: When | None,
    pages: Collection[str] | None,
    entry_filter: EntryFilter,
    follow: bool,
    stop: Stop | None,
) -> Iterator[AnyEvent]:
    """Yield the events after a position, oldest first; with `follow`, wait for new ones until `stop` is set."""
    log_cursors = run(cursors(log, after, pages))
    while chunks := feeds.run(read(log, log_cursors)):
        if stop is not None and stop.is_set():
            return
        for events in decode_in_chunks(chunks, entry_filter):
            yield from events
    while follow and (stop is None or not stop.is_set()):
        ms = MAX_BLOCK_MS if stop is None else STOPPABLE_BLOCK_MS
        chunks = feeds.run(read(log, log_cursors, ms))
        yield from decode_wanted(chunks, entry_filter)
        if not chunks and log.is_spread and len(log_cursors) > 1:
            feeds.wait_behind({cursor.position.shard: cursor.position for cursor in log_cursors}, ms / 1000)
