"""Pull from a subscription, waiting for events."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from scratchbus.domain.values import Duration, delay_ms
from scratchbus.engine.waits import finish_or_undo
from scratchbus.errors import ScratchbusError
from scratchbus.eventlog.tail import TailCursor, joined
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.pulled_batches import Attempt, Pull, Pulled


async def pull_from(bus: AsyncHost, pull: Pull, wait: Duration) -> Pulled:
    """Return the next batch, waiting up to this long for it. Raises InvalidTTL, and the errors of `pull`."""
    deadline = time.monotonic() + delay_ms(wait, "wait") / 1000
    while True:
        # asyncio only:
        attempt = await finish_or_undo(bus.converse(pull.attempt()), partial(_give_back, bus, pull))
        # end
        # blocking only:
        # attempt = bus.converse(pull.attempt())
        # end
        seconds_left = deadline - time.monotonic()
        if attempt.pulled.deliveries or (seconds_left <= 0 and attempt.seconds):
            return attempt.pulled
        await _wait(bus, attempt, min(seconds_left, attempt.seconds))


# asyncio only:
async def _give_back(bus: AsyncHost, pull: Pull, attempt: Attempt) -> None:
    if attempt.pulled.deliveries:
        with suppress(ScratchbusError):  # they are delivered again when the lease ends
            await bus.converse(pull.requeue(attempt.pulled))


# end
async def _wait(bus: AsyncHost, attempt: Attempt, seconds: float) -> None:
    """Wait for an event that the subscription selects, for at most this many seconds."""
    until, woken = time.monotonic() + seconds, asyncio.Event()
    tails = [
        TailCursor(bus.feeds.feed(cursor.position.shard), cursor, attempt.wanted, woken.set)
        for cursor in attempt.cursors
    ]
    with joined([(tail.feed, tail) for tail in tails]):
        if any(tail.feed.is_past(tail.cursor.position) for tail in tails):
            return
        shards = [tail.feed.shard for tail in tails]
        while not woken.is_set() and (seconds_left := until - time.monotonic()) > 0:
            await bus.feeds.wait(shards, woken, min(seconds_left, NAP))
