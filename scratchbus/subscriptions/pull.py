"""Pull from a subscription, waiting for events."""

# Generated from pull_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import threading
import time

from scratchbus.domain.values import Duration, delay_ms
from scratchbus.eventlog.tail import TailCursor
from scratchbus.readmodel.scope import Host
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.pulling import Attempt, Pull, Pulled


def pull_from(bus: Host, pull: Pull, wait: Duration) -> Pulled:
    """Return the next batch, waiting up to this long for it. Raises InvalidTTL, and the errors of `pull`."""
    deadline = time.monotonic() + delay_ms(wait, "wait") / 1000
    while True:
        attempt = bus.converse(pull.attempt())
        left = deadline - time.monotonic()
        if attempt.pulled.deliveries or (left <= 0 and attempt.seconds):
            return attempt.pulled
        _wait(bus, attempt, min(left, attempt.seconds))


def _wait(bus: Host, attempt: Attempt, seconds: float) -> None:
    """Wait for an event that the subscription selects, for at most this many seconds."""
    until, woken = time.monotonic() + seconds, threading.Event()
    places = [
        TailCursor(bus.feeds.feed(cursor.position.shard), cursor, attempt.wanted, woken.set)
        for cursor in attempt.cursors
    ]
    for place in places:
        place.feed.join(place)
    try:
        if any(place.feed.is_past(place.cursor.position) for place in places):
            return
        shards = [place.feed.shard for place in places]
        while not woken.is_set() and (left := until - time.monotonic()) > 0:
            bus.feeds.wait(shards, woken, min(left, NAP))
    finally:
        for place in places:
            place.feed.leave(place)
