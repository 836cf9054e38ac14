"""Pull from a subscription, waiting for events."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from scratchbus.domain.values import Duration, delay_ms
from scratchbus.errors import ScratchbusError
from scratchbus.eventlog.tail import TailCursor
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.pulling import Attempt, Pull, Pulled


async def pull_from(bus: AsyncHost, pull: Pull, wait: Duration) -> Pulled:
    """Return the next batch, waiting up to this long for it. Raises InvalidTTL, and the errors of `pull`."""
    deadline = time.monotonic() + delay_ms(wait, "wait") / 1000
    while True:
        # asyncio only:
        attempt = await _attempt(bus, pull)
        # end
        # blocking only:
        # attempt = bus.converse(pull.attempt())
        # end
        left = deadline - time.monotonic()
        if attempt.pulled.deliveries or (left <= 0 and attempt.seconds):
            return attempt.pulled
        await _wait(bus, attempt, min(left, attempt.seconds))


# asyncio only:
async def _attempt(bus: AsyncHost, pull: Pull) -> Attempt:
    """Return the result of an attempt; if the caller is cancelled, let it finish and give its events back."""
    trying = asyncio.ensure_future(bus.converse(pull.attempt()))
    try:
        return await asyncio.shield(trying)
    except asyncio.CancelledError:
        await asyncio.shield(_undo(bus, pull, trying))
        raise


async def _undo(bus: AsyncHost, pull: Pull, trying: asyncio.Future[Attempt]) -> None:
    await asyncio.wait({trying})
    if not trying.cancelled() and trying.exception() is None and (pulled := trying.result().pulled).deliveries:
        with suppress(ScratchbusError):  # they are delivered again when the lease ends
            await bus.converse(pull.requeue(pulled))


# end
async def _wait(bus: AsyncHost, attempt: Attempt, seconds: float) -> None:
    """Wait for an event that the subscription selects, for at most this many seconds."""
    until, woken = time.monotonic() + seconds, asyncio.Event()
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
            await bus.feeds.wait(shards, woken, min(left, NAP))
    finally:
        for place in places:
            place.feed.leave(place)
