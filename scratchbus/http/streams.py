"""Streams of events (SSE): one reader of the log for all streams of a process, each event encoded once per filter.

A group has all streams with the same filters. It keeps the last frames as bytes, in numbered chunks, and a stream is
the number of its next one. A stream that has fallen behind them, or is new and has a `Last-Event-ID`, reads the log by
itself up to the position of the group, then continues with the chunks: without a gap, since `id` is a position in every
shard, and without a duplicate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from scratchbus import AsyncBus, BusPosition, Event
from scratchbus.daemon import stderr_logger
from scratchbus.errors import LogError, LogRewound, ScratchbusError
from scratchbus.http.frames import EventFilter, Vector, frame, moved, problem_frame, text_of
from scratchbus.http.stream_group import CHUNK, EventStream, Group

HEARTBEAT: Final = 15.0
"""The seconds between two heartbeats; a heartbeat has the current position."""

KEPT: Final = 8 * 2**20
"""The most bytes of frames kept for all groups together; each group may keep `MIN_KEPT`."""

MIN_KEPT: Final = 64 * 1024

PER_STREAM: Final = 0.0002
"""The seconds for which events are collected to be sent together, per stream of the process, up to `MAX_TICK`."""

MAX_TICK: Final = 0.2

LOOK: Final = 2.0
"""The seconds between two checks for streams to end."""

STUCK: Final = 15.0
"""The seconds for which a client may read nothing before its stream ends."""

logger = stderr_logger()


class Streams:
    """All streams of this process, and the one reader of the log that feeds them; the first stream starts it."""

    def __init__(self, own_bus: Callable[[], Awaitable[AsyncBus]]) -> None:
        self._own_bus = own_bus
        self._groups: dict[EventFilter, Group] = {}
        self.count = 0
        """The number of streams."""
        self._position: Vector | None = None
        self._bus = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()

    async def run(
        self, stream: EventStream, event_filter: EventFilter, send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Send the events after a stream's position until it is closed. Raises EngineError only before the first."""
        async with self._turn:
            if self._position is None:
                await self._start()
        group = self._groups.setdefault(event_filter, Group(event_filter))
        stream.group = group
        group.streams.add(stream)
        self.count += 1
        try:
            await self._catch_up(stream, group, send)
            while not stream.is_over:
                if stream.at < group.first:
                    await self._catch_up(stream, group, send)
                elif stream.at == group.next:
                    stream.woken.clear()
                    await stream.woken.wait()
                else:
                    frames, stream.at, end = group.take(stream.at)
                    await self._send(stream, frames, send)
                    stream.position = end
        finally:
            self.count -= 1
            group.streams.discard(stream)
            if not group.streams and self._groups.get(event_filter) is group:
                del self._groups[event_filter]

    async def close(self) -> None:
        """End all streams, and stop reading."""
        for group in self._groups.values():
            for stream in group.streams:
                stream.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # -- one stream ---------------------------------------------------------------------------------------------------

    async def _catch_up(self, stream: EventStream, group: Group, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the events between the positions of a stream and of its group, read from the log."""
        event_filter, bus = group.event_filter, await self._own_bus()
        try:
            await self._wait_for(stream, bus)
            group.flush(self._end(), self._limit())
            target, stream.at = self._end(), group.next  # together: later events are in the group's frames
            if stream.position == target:
                return
            found: list[bytes] = []
            async for event in bus.events(BusPosition(stream.position), **event_filter.arguments()):
                if stream.is_over or (len(target) == 1 and event.seq > target[0].seq):
                    break
                if event.seq <= target[event.shard].seq:
                    stream.position = moved(stream.position, event)
                    found.append(frame(event, text_of(stream.position), self._bus, event_filter.as_cloud_events))
                if len(found) >= 64 or sum(map(len, found)) >= CHUNK:
                    await self._send(stream, b"".join(found), send)
                    found.clear()
            if found:
                await self._send(stream, b"".join(found), send)
            stream.position = tuple(map(max, stream.position, target))
        except LogError as problem:
            group.flush(self._end(), self._limit())
            stream.position, stream.at = self._end(), group.next
            await self._send(stream, problem_frame(problem, text_of(stream.position)), send)

    async def _wait_for(self, stream: EventStream, bus: AsyncBus) -> None:
        """Wait until this process has read up to the client's position, which may come from another server.

        Raises LogRewound if the log ends before it.
        """
        while not stream.is_over and any(
            at.seq > end.seq for at, end in zip(stream.position, self._end(), strict=True)
        ):
            for at, end in zip(stream.position, (await bus.position()).shards, strict=True):
                if at.seq > end.seq:
                    raise LogRewound(
                        f"shard {at.shard}: the log ends at {end}, before {at}; it was rewound or replaced"
                    )
            await asyncio.sleep(0.02)

    async def _send(self, stream: EventStream, frames: bytes, send: Callable[[bytes], Awaitable[None]]) -> None:
        stream.blocked_since = asyncio.get_running_loop().time()
        try:
            await send(frames)
        finally:
            stream.blocked_since = None

    # -- the reader ---------------------------------------------------------------------------------------------------

    def _end(self) -> Vector:
        assert self._position is not None  # noqa: S101 - `run` has started the reader
        return self._position

    def _limit(self) -> int:
        return max(MIN_KEPT, KEPT // max(1, len(self._groups)))

    async def _start(self) -> None:
        bus = await self._own_bus()
        self._bus = bus.settings.bus
        self._position = (await bus.position()).shards
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def _read(self) -> None:
        """Read the log for all streams until cancelled, retrying after errors."""
        failures = 0
        while True:
            try:
                bus = await self._own_bus()
                async for event in bus.events(BusPosition(self._end()), follow=True):
                    failures = 0
                    self._take(event)
            except LogError as problem:
                await self._begin_again(problem)
            except Exception as problem:  # all streams depend on this task
                if failures == 0:
                    logger.warning("event streams cannot read the log; retrying", reason=str(problem))
            failures += 1
            await asyncio.sleep(min(2.0, 0.05 * 2 ** min(failures, 6)))

    async def _begin_again(self, problem: LogError) -> None:
        """Tell all streams that events are missing, and continue at the end of the log."""
        with suppress(ScratchbusError):
            self._position = (await (await self._own_bus()).position()).shards
            frame = problem_frame(problem, text_of(self._position))
            for group in self._groups.values():
                group.add(frame)
            self._flush()

    def _take(self, event: Event) -> None:
        self._position = moved(self._end(), event)
        encoded: dict[bool, bytes] = {}
        for group in self._groups.values():
            if group.event_filter.wants(event):
                how = group.event_filter.as_cloud_events
                if how not in encoded:
                    encoded[how] = frame(event, text_of(self._position), self._bus, how)
                group.add(encoded[how])
        if encoded and self._flushing is None:
            seconds = min(MAX_TICK, self.count * PER_STREAM)
            self._flushing = asyncio.get_running_loop().call_later(seconds, self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        for group in self._groups.values():
            group.flush(self._end(), self._limit())

    # -- heartbeats and ends ------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """End the streams whose callers are no longer authorized or do not read; send heartbeats to the others."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(LOOK)
            now = loop.time()
            for stream in [each for group in self._groups.values() for each in group.streams]:
                since = stream.blocked_since
                if since is not None and now - since > STUCK:
                    stream.close()
                    stream.end()
                elif not stream.is_valid():
                    stream.close()
            if now - last >= HEARTBEAT:
                last = now
                self._beat()

    def _beat(self) -> None:
        self._flush()
        beat = b"id: %b\n: \n\n" % text_of(self._end()).encode()
        for group in self._groups.values():
            group.add(beat)
        self._flush()
