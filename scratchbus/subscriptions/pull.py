"""Pull from a subscription, waiting for events."""

# Generated from pull_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import threading
import time

from scratchbus.domain.values import Duration, delay_ms
from scratchbus.eventlog.tail import TailCursor, joined
from scratchbus.readmodel.scope import Host
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.pulled_batches import Attempt, Pull, Pulled


def pull_from(bus: Host, pull: Pull, wait: Duration) -> Pulled:
    """Return the next batch, waiting up to this long for it. Raises InvalidTTL, and the errors of `pull`."""
    deadline = time.monotonic() + delay_ms(wait, "wait") / 1000
    while True:
        attempt = bus.converse(pull.attempt())
        seconds_left = deadline - time.monotonic()
        if attempt.pulled.deliveries or (seconds_left <= 0 and attempt.seconds):
            return attempt.pulled
        _wait(bus, attempt, min(seconds_left, attempt.seconds))


def _wait(bus: Host, attempt: Attempt, seconds: float) -> None:
    """Wait for an event that the subscription selects, for at most this many seconds."""
    until, woken = time.monotonic() + seconds, threading.Event()
    tails = [
        TailCursor(bus.feeds.feed(cursor.position.shard), cursor, attempt.wanted, woken.set)
        for cursor in attempt.cursors
    ]
    with joined([(tail.feed, tail) for tail in tails]):
        if any(tail.feed.is_past(tail.cursor.position) for tail in tails):
            return
        shards = [tail.feed.shard for tail in tails]
        while not woken.is_set() and (seconds_left := until - time.monotonic()) > 0:
            bus.feeds.wait(shards, woken, min(seconds_left, NAP))
