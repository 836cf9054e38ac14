"""Following a page: its events as they come, and a moment now and then to look around."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from scratchbus.domain.events import Event
from scratchbus.domain.position import BusPosition

if TYPE_CHECKING:
    from scratchbus import Bus

_NAP = 0.1  # seconds that a stop may go unnoticed
_WAITING = 1_000  # events that may wait for the one who follows


def follow(
    bus: Bus,
    stop: threading.Event,
    *,
    after: BusPosition,
    page: str,
    every: float,
    types: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
) -> Generator[Event | None, None, None]:
    """Yield the events of a page after a position as they come, and None every `every` seconds, until stopped.

    None is the time to look at the page as a whole. Raises what reading the log raises.
    """
    inbox: queue.Queue[Event | Exception] = queue.Queue(_WAITING)
    over = threading.Event()
    events = bus.events(after, follow=True, pages=[page], types=types, kinds=kinds, stop=over)
    threading.Thread(target=_read, args=(events, inbox, over), name=f"follow {page}", daemon=True).start()
    try:
        look_around = time.monotonic() + every
        while not stop.is_set():
            try:
                item = inbox.get(timeout=_NAP)
            except queue.Empty:
                item = None
            if isinstance(item, Exception):
                raise item
            if item is not None:
                yield item
            if time.monotonic() >= look_around:
                yield None
                look_around = time.monotonic() + every
    finally:
        over.set()


def _read(events: Iterator[Event], inbox: queue.Queue[Event | Exception], over: threading.Event) -> None:
    """Put the events into the inbox, and last what went wrong with reading them."""
    try:
        for event in events:
            _put(inbox, event, over)
            if over.is_set():
                return
    except Exception as problem:
        _put(inbox, problem, over)


def _put(inbox: queue.Queue[Event | Exception], item: Event | Exception, over: threading.Event) -> None:
    while not over.is_set():
        try:
            inbox.put(item, timeout=_NAP)
            return
        except queue.Full:
            continue
