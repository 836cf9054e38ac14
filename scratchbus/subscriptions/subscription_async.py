"""Subscriptions and their deliveries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Self, cast

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import Position
from scratchbus.domain.values import Duration, check_whole
from scratchbus.errors import ArchiveUnavailable, LeaseLost, LogError, ScratchbusError
from scratchbus.eventlog.reader import Stop, check_stop
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.subscriptions.concurrency_async import MAX_AT_ONCE, check_handler, run_together

# blocking only:
# from scratchbus.subscriptions.concurrency_async import check_reply
# end
from scratchbus.subscriptions.consumer import TRANSIENT_ERRORS, Consumer
from scratchbus.subscriptions.delivery_state import CONSUMER_ERRORS, OUT, DeliveryState, reason_of
from scratchbus.subscriptions.event_filters import Filters
from scratchbus.subscriptions.options import Terms, name_reset
from scratchbus.subscriptions.window import DeliveryWindow
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


class AsyncDelivery(DeliveryState):
    """One event delivered by a subscription: `ack` it once it is handled, or `fail` it.

    Use it in an `async with`: leaving it acks; an exception fails it, is logged, and does not propagate.
    """

    __slots__ = ()

    async def ack(self) -> None:
        """Mark it as handled; a second call changes nothing. Raises LeaseLost, or NotDelivered after `fail`."""
        if self.window.ack(self):
            await self.window.owner._write(self.window)

    async def fail(self, reason: str, *, delay: Duration | None = None) -> None:
        """Deliver it again after `delay`, or set it aside as a dead letter after the last attempt.

        Raises LeaseLost, or NotDelivered if it was already acked or failed.
        """
        self.window.fail(self, reason, self.window.owner._consumer.delay(self.attempt, delay))
        await self.window.owner._write(self.window)

    async def __aenter__(self) -> Self:
        self.begin()
        return self

    async def __aexit__(self, kind: Any, problem: BaseException | None, trace: Any) -> bool:
        self.end(problem)
        if problem is None:
            if self.state == OUT:
                with suppress(LeaseLost):  # the iteration notices too, and stands by
                    await self.ack()
            return False
        if not isinstance(problem, Exception):
            return False
        reason = reason_of(problem)
        logger.warning("a handler failed", position=str(self.position), attempt=self.attempt, reason=reason)
        if self.state == OUT:
            with suppress(LeaseLost):
                await self.fail(reason)
        return True


class AsyncSubscription:
    """A durable subscription. Iterate over it in an `async with` to get its events, in order, at least once.

    Entering it records a new name and its cursor. One consumer of a name is active; the others wait in their
    iteration and take over when it closes or dies. An exception that leaves the `async with` fails the last
    delivery. Made by `bus.subscribe`.
    """

    def __init__(
        self, bus: AsyncHost, name: str, filters: Filters, terms: Terms, lease: float, stop: Stop | None = None
    ) -> None:
        self._bus = bus
        self._stop = check_stop(stop)
        self._woken = asyncio.Event()
        # asyncio only:
        self._loop: asyncio.AbstractEventLoop | None = None
        # end
        self._is_closed = False
        self._last: AsyncDelivery | None = None
        self._consumer = Consumer(
            bus.core, name, filters, terms, lease, AsyncDelivery, self, self._wake, bus.feeds.feed
        )
        bus.keeper.add(self._consumer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._bus!r}>"

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self._consumer.name

    @property
    def is_active(self) -> bool:
        """Whether this consumer holds the lease, as far as it knows."""
        window = self._consumer.window
        return window is not None and not window.is_lost and time.monotonic() <= window.valid_until

    async def ack(self, position: Position | str) -> None:
        """Ack the delivery of the event at a position. Raises NotDelivered if it is not out, or LeaseLost."""
        await cast(AsyncDelivery, self._consumer.find(position)).ack()

    async def run(
        self, handler: Callable[[AnyEvent], Awaitable[object]], stop: Stop | None = None, *, concurrency: int = 1
    ) -> None:
        """Pass every event to a handler until `stop` is set; ack it afterwards, or fail it on an exception.

        With `concurrency`, handle this many at once (1,000 at most): they begin in order, and may end in another.
        Raises InvalidInput.
        """
        check_handler(handler)
        self._stop = check_stop(stop) or self._stop
        iteration_lock = asyncio.Lock()

        async def work() -> None:
            while True:
                async with iteration_lock:
                    try:
                        delivery = await self.__anext__()
                    except StopAsyncIteration:
                        return
                async with delivery:
                    # asyncio only:
                    await handler(delivery.event)
                    # end
                    # blocking only:
                    # check_reply(handler(delivery.event))
                    # end

        at_once = check_whole("concurrency", concurrency, maximum=MAX_AT_ONCE)
        await run_together([work] * at_once, self.close)

    async def close(self) -> None:
        """End the iteration, write the acks, and release the lease. Any task may call it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._bus.keeper.remove(self._consumer)
        await self._leave()
        self._wake()

    def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        return self

    async def __anext__(self) -> AsyncDelivery:
        """Return the next delivery; wait for it if there is none."""
        consumer = self._consumer
        # asyncio only:
        self._enter_loop()
        # end
        while not self._is_closed and (self._stop is None or not self._stop.is_set()):
            delivery = consumer.ready()
            if delivery is not None:
                self._last = delivery  # type: ignore[assignment]  # the consumer makes no others
                return delivery  # type: ignore[return-value]  # see above
            self._woken.clear()
            try:
                seconds = await self._bus.converse(consumer.advance())
                if seconds:
                    await self._bus.feeds.wait(consumer.tails(seconds), self._woken, seconds)
                    consumer.reset_backoff()
            except (*TRANSIENT_ERRORS, ArchiveUnavailable) as problem:
                await self._bus.feeds.wait((), self._woken, consumer.pause_after(problem))
            except LogError as problem:
                name_reset(problem, self.name)
                raise
        if self._is_closed:
            await self._leave()  # it may have been closed just before the lease was taken
        raise StopAsyncIteration

    # asyncio only:
    def _enter_loop(self) -> None:
        """Continue in another event loop: the tasks of the last one no longer read the log, nor renew the lease."""
        loop, window = asyncio.get_running_loop(), self._consumer.window
        if loop is self._loop or self._is_closed:
            return
        self._loop, self._woken = loop, asyncio.Event()
        self._bus.keeper.remove(self._consumer)
        self._bus.keeper.add(self._consumer)
        for tail in (window and window.tails) or ():
            tail.feed = self._bus.feeds.feed(tail.feed.shard)
            tail.feed.join(tail)

    # end
    def _wake(self) -> None:
        self._woken.set()

    async def _leave(self) -> None:
        with suppress(ScratchbusError):  # without an engine, or bus, the lease ends by itself
            await self._bus.converse(self._consumer.leave())

    async def _write(self, window: DeliveryWindow) -> None:
        with suppress(*TRANSIENT_ERRORS):  # later calls report these errors
            await self._bus.converse(self._consumer.write(window))

    async def __aenter__(self) -> Self:
        try:
            await self._bus.converse(self._consumer.declare())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        last = self._last
        is_fault = isinstance(problem, Exception) and not isinstance(problem, CONSUMER_ERRORS)
        try:
            if is_fault and last is not None and last.state == OUT:
                with suppress(LeaseLost):
                    await last.fail(reason_of(problem))
        finally:
            await self.close()
