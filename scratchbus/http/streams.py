"""Streams of events (SSE): one reader of the log for all streams of a process, each event encoded once per filter.

A group has all streams with the same filters. It keeps the last frames as bytes, and a stream is a number in them. A
stream that has fallen behind them, or has just come with a `Last-Event-ID`, reads the log by itself, up to where the
group stands, and goes on with that: without a gap, since `id` is a position in every shard, and without a duplicate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from scratchbus import AsyncBus, BusPosition, Event
from scratchbus.daemon import stderr_logger
from scratchbus.errors import LogError, LogRewound, ScratchbusError
from scratchbus.http.frames import EventFilter, Vector, frame, moved, name_of, text_of, trouble

HEARTBEAT: Final = 15.0
"""Seconds after which a stream says that it lives, and where it is."""

CHUNK: Final = 32 * 1024
"""The most bytes that are sent at once, unless one event has more."""

KEPT: Final = 8 * 2**20
"""The most bytes of frames that are kept, of all groups; each keeps `LEAST_KEPT`."""

LEAST_KEPT: Final = 64 * 1024

PER_STREAM: Final = 0.0002
"""Seconds for each stream of the process in which events are collected, up to `LONGEST_TICK`, to be sent together."""

LONGEST_TICK: Final = 0.2

LOOK: Final = 2.0
"""Seconds between two looks at what ends streams."""

STUCK: Final = 15.0
"""Seconds for which a client may read nothing."""

logger = stderr_logger()


class _Chunk(NamedTuple):
    frames: bytes
    end: Vector  # the position behind them


class Group:
    """All streams with the same filters, and the last frames of these; `first` is the number of the oldest chunk."""

    def __init__(self, wanted: EventFilter) -> None:
        self.wanted = wanted
        self.streams: set[EventStream] = set()
        self.first = 0
        self._chunks: deque[_Chunk] = deque()
        self._size = 0
        self._new: list[bytes] = []

    @property
    def next(self) -> int:
        """The number of the next chunk."""
        return self.first + len(self._chunks)

    def add(self, frames: bytes) -> None:
        """Take frames that the next flush sends."""
        self._new.append(frames)

    def flush(self, end: Vector, limit: int) -> None:
        """Hand new frames to all streams; drop the oldest ones beyond the limit, in bytes."""
        if not self._new:
            return
        chunk = _Chunk(b"".join(self._new), end)
        self._new.clear()
        self._chunks.append(chunk)
        self._size += len(chunk.frames)
        while self._size > limit and len(self._chunks) > 1:
            self._size -= len(self._chunks.popleft().frames)
            self.first += 1
        for stream in self.streams:
            stream.woken.set()

    def take(self, number: int) -> tuple[bytes, int, Vector]:
        """Return frames from a chunk on, not many at once, and the number and position behind them."""
        found: list[bytes] = []
        size, at, end = 0, number, self._chunks[number - self.first].end
        while at < self.next:
            chunk = self._chunks[at - self.first]
            if found and size + len(chunk.frames) > CHUNK:
                break
            found.append(chunk.frames)
            size, at, end = size + len(chunk.frames), at + 1, chunk.end
        return b"".join(found) if len(found) > 1 else found[0], at, end


class EventStream:
    """One client's stream: where it is, and whether it is to end."""

    __slots__ = ("at", "blocked_since", "end", "group", "is_over", "is_valid", "where", "woken")

    def __init__(self, where: Vector, is_valid: Callable[[], bool], end: Callable[[], object]) -> None:
        self.where = where
        self.is_valid = is_valid
        self.end = end
        self.at = 0
        self.group: Group | None = None
        self.woken = asyncio.Event()
        self.is_over = False
        self.blocked_since: float | None = None

    def close(self) -> None:
        """Let it end."""
        self.is_over = True
        self.woken.set()


class Streams:
    """All streams of this process, and the one reader of the log that feeds them, from the first one on."""

    def __init__(self, own_bus: Callable[[], Awaitable[AsyncBus]]) -> None:
        self._own_bus = own_bus
        self._groups: dict[EventFilter, Group] = {}
        self._count = 0
        self._where: Vector | None = None
        self._bus = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()

    @property
    def count(self) -> int:
        """The number of streams."""
        return self._count

    async def run(self, stream: EventStream, wanted: EventFilter, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the events behind a stream's position, until it is closed. Raises EngineError before the first."""
        async with self._turn:
            if self._where is None:
                await self._start()
        group = self._groups.setdefault(wanted, Group(wanted))
        stream.group = group
        group.streams.add(stream)
        self._count += 1
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
                    stream.where = end
        finally:
            self._count -= 1
            group.streams.discard(stream)
            if not group.streams and self._groups.get(wanted) is group:
                del self._groups[wanted]

    async def close(self) -> None:
        """End all streams, and stop reading."""
        for group in self._groups.values():
            for stream in group.streams:
                stream.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # -- what one stream needs ----------------------------------------------------------------------------------------

    async def _catch_up(self, stream: EventStream, group: Group, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the events between a stream and its group, from the log."""
        wanted, bus = group.wanted, await self._own_bus()
        try:
            await self._wait_for(stream, bus)
            group.flush(self._end(), self._limit())
            until, stream.at = self._end(), group.next  # together: later events are in the group's frames
            if stream.where == until:
                return
            found: list[bytes] = []
            async for event in bus.events(BusPosition(stream.where), **wanted.arguments()):
                if stream.is_over or (len(until) == 1 and event.seq > until[0].seq):
                    break
                if event.seq <= until[event.shard].seq:
                    stream.where = moved(stream.where, event)
                    found.append(frame(event, text_of(stream.where), self._bus, wanted.as_cloud_events))
                if len(found) >= 64 or sum(map(len, found)) >= CHUNK:
                    await self._send(stream, b"".join(found), send)
                    found.clear()
            if found:
                await self._send(stream, b"".join(found), send)
            stream.where = tuple(map(max, stream.where, until))
        except LogError as problem:
            group.flush(self._end(), self._limit())
            stream.where, stream.at = self._end(), group.next
            await self._send(stream, trouble(name_of(problem), text_of(stream.where), problem), send)

    async def _wait_for(self, stream: EventStream, bus: AsyncBus) -> None:
        """Wait until this process has read as much as the one that the client was at before. Raises LogRewound."""
        while not stream.is_over and any(at.seq > end.seq for at, end in zip(stream.where, self._end(), strict=True)):
            for at, end in zip(stream.where, (await bus.position()).shards, strict=True):
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
        assert self._where is not None  # noqa: S101 - `run` has started the reader
        return self._where

    def _limit(self) -> int:
        return max(LEAST_KEPT, KEPT // max(1, len(self._groups)))

    async def _start(self) -> None:
        bus = await self._own_bus()
        self._bus = bus.settings.bus
        self._where = (await bus.position()).shards
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def _read(self) -> None:
        """Read the log for all streams, for as long as there are any."""
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
        """Tell all streams that events are missing, and go on at the end of the log."""
        with suppress(ScratchbusError):
            self._where = (await (await self._own_bus()).position()).shards
            told = trouble(name_of(problem), text_of(self._where), problem)
            for group in self._groups.values():
                group.add(told)
            self._flush()

    def _take(self, event: Event) -> None:
        self._where = moved(self._end(), event)
        encoded: dict[bool, bytes] = {}
        for group in self._groups.values():
            if group.wanted.wants(event):
                how = group.wanted.as_cloud_events
                if how not in encoded:
                    encoded[how] = frame(event, text_of(self._where), self._bus, how)
                group.add(encoded[how])
        if encoded and self._flushing is None:
            seconds = min(LONGEST_TICK, self._count * PER_STREAM)
            self._flushing = asyncio.get_running_loop().call_later(seconds, self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        for group in self._groups.values():
            group.flush(self._end(), self._limit())

    # -- what ends streams --------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """End the streams whose callers are no longer welcome, or do not read; send heartbeats to the others."""
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
