"""Streams in one process: a shared reader, shared frames, and clients that fall behind or do not read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any, cast

import pytest

from scratchbus import AsyncBus, BusPosition, Event
from scratchbus.engine.steps import ask
from scratchbus.http import streams as module
from scratchbus.http.frames import EventFilter, vector_of
from scratchbus.http.stream_group import EventStream, Group
from scratchbus.http.streams import Streams
from tests.waiting import PATIENCE


class Client:
    """A client in this process; it reads unless its gate is closed."""

    def __init__(self, streams: Streams, where: BusPosition, wanted: EventFilter | None = None) -> None:
        self.frames: list[dict[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.was_aborted = False
        self.is_valid = True
        self.stream = EventStream(where.shards, lambda: self.is_valid, self._abort)
        self.task = asyncio.create_task(streams.run(self.stream, wanted or EventFilter(), self._send))

    def _abort(self) -> None:
        self.was_aborted = True
        self.gate.set()

    async def _send(self, frames: bytes) -> None:
        await self.gate.wait()
        for text in frames.decode().split("\n\n")[:-1]:
            self.frames.append(dict(line.split(": ", 1) for line in text.split("\n") if ": " in line))

    @property
    def ids(self) -> list[str]:
        """The ids of the received events."""
        return [frame["id"] for frame in self.frames if "data" in frame]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the received events."""
        return [frame["event"] for frame in self.frames if "data" in frame]


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # any condition
            await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[AsyncBus, Streams]]:
    async with AsyncBus.connect(url, bus=f"test-{token_hex(6)}", shards=1, source="tester") as bus:

        async def own() -> AsyncBus:
            return bus

        streams = Streams(own)
        try:
            yield bus, streams
        finally:
            await streams.close()


async def fill(bus: AsyncBus, count: int) -> None:
    for n in range(count):
        await bus.page().add("observation", f"{n}")


async def ids_of(bus: AsyncBus) -> list[str]:
    return [str(event.position) async for event in bus.events()]


async def test_clients_with_the_same_filter_share_frames(embedded_url):
    async with opened(embedded_url) as (bus, streams):
        start = await bus.position()
        clients = [Client(streams, start) for _ in range(50)]
        await until(lambda: streams.count == 50)
        await fill(bus, 20)
        await until(lambda: all(len(client.ids) == 20 for client in clients))
        assert len(streams._groups) == 1
        assert all(client.ids == clients[0].ids for client in clients)
        assert clients[0].ids == await ids_of(bus)


async def test_a_client_that_falls_behind_misses_no_event(embedded_url, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 2_000)
    monkeypatch.setattr(module, "MIN_KEPT", 2_000)
    async with opened(embedded_url) as (bus, streams):
        start = await bus.position()
        slow, quick = Client(streams, start), Client(streams, start)
        await until(lambda: streams.count == 2)
        slow.gate.clear()
        await fill(bus, 60)
        await until(lambda: len(quick.ids) == 60)
        group = next(iter(streams._groups.values()))
        assert group.first > 0
        assert group._size <= 2_000
        slow.gate.set()
        await until(lambda: len(slow.ids) == 60)
        await fill(bus, 5)
        await until(lambda: len(slow.ids) == 65)
        assert slow.ids == await ids_of(bus)


def test_a_group_keeps_its_newest_chunk():
    group, end = Group(EventFilter()), vector_of("5-1", 1)
    for frames in (b"one", b"two"):
        group.add(frames)
        group.flush(end, limit=1)
    assert (group.first, group.next) == (1, 2)
    assert group.take(1) == (b"two", 2, end)


class LateReader:
    """A bus whose followers get no events while its gate is closed, as in a busy process."""

    def __init__(self, bus: AsyncBus) -> None:
        self.gate = asyncio.Event()
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def events(self, *args: Any, follow: bool = False, **more: Any) -> AsyncIterator[Event]:
        async for event in self._bus.events(*args, follow=follow, **more):
            if follow:
                await self.gate.wait()
            yield event


async def test_a_client_ahead_of_this_process_gets_no_event_twice(embedded_url):
    """It comes from a process that has read further."""
    async with opened(embedded_url) as (bus, streams):
        late = LateReader(bus)

        async def own() -> AsyncBus:
            return cast(AsyncBus, late)

        streams._own_bus = own
        first = Client(streams, await bus.position())
        await until(lambda: streams.count == 1)
        await fill(bus, 3)
        resumed = Client(streams, await bus.position())
        await until(lambda: streams.count == 2)
        await fill(bus, 2)
        late.gate.set()
        await until(lambda: len(first.ids) == 5 and len(resumed.ids) >= 2)
        await fill(bus, 1)
        await until(lambda: len(first.ids) == 6 and resumed.ids[-1] == first.ids[-1])
        assert resumed.ids == first.ids[3:]


async def test_a_client_that_does_not_read_is_dropped(embedded_url, monkeypatch):
    monkeypatch.setattr(module, "STUCK", 0.3)
    monkeypatch.setattr(module, "LOOK", 0.1)
    async with opened(embedded_url) as (bus, streams):
        start = await bus.position()
        dead, alive = Client(streams, start), Client(streams, start)
        await until(lambda: streams.count == 2)
        dead.gate.clear()
        await fill(bus, 10)
        await until(lambda: len(alive.ids) == 10)
        await until(lambda: dead.was_aborted)
        await until(lambda: streams.count == 1)
        assert not alive.stream.is_over


async def test_the_stream_of_a_caller_that_became_invalid_ends(embedded_url, monkeypatch):
    monkeypatch.setattr(module, "LOOK", 0.05)
    async with opened(embedded_url) as (bus, streams):
        client = Client(streams, await bus.position())
        await until(lambda: streams.count == 1)
        client.is_valid = False
        await until(client.task.done)
        assert not client.was_aborted
        assert streams._groups == {}


async def test_heartbeats_move_the_id_past_filtered_events(embedded_url, monkeypatch):
    monkeypatch.setattr(module, "LOOK", 0.05)
    monkeypatch.setattr(module, "HEARTBEAT", 0.1)
    async with opened(embedded_url) as (bus, streams):
        client = Client(streams, await bus.position(), EventFilter(types=frozenset({"risk_alert"})))
        await fill(bus, 3)
        end = str(await bus.position())
        await until(lambda: client.frames and client.frames[-1]["id"] == end)
        assert client.ids == []


async def test_a_stream_reports_a_trimmed_log_and_continues(embedded_url):
    async with opened(embedded_url) as (bus, streams):
        start = await bus.position()
        await fill(bus, 5)
        keys = bus.core.log.keys(0)
        await bus.converse(_ask("XTRIM", keys.log, "MAXLEN", 1))
        client = Client(streams, start)
        await until(lambda: client.kinds == ["position-lost"])
        await fill(bus, 1)
        await until(lambda: client.kinds == ["position-lost", "added"])
        assert client.ids[0] != str(start)


async def test_a_stream_that_lost_its_position_gets_no_event_from_before_the_new_one(embedded_url, monkeypatch):
    for name in ("PER_STREAM", "MAX_TICK", "HEARTBEAT"):
        monkeypatch.setattr(module, name, 3_600)
    async with opened(embedded_url) as (bus, streams):

        async def fill_and_read() -> str:
            await fill(bus, 1)
            end = await bus.position()
            await until(lambda: streams._position == end.shards)
            return str(end)

        class BusyLog(LateReader):
            """A log that gets another event while its start is read."""

            async def events(self, *args: Any, follow: bool = False, **more: Any) -> AsyncIterator[Event]:
                if not follow:
                    await fill_and_read()
                async for event in self._bus.events(*args, follow=follow, **more):
                    yield event

        async def own() -> AsyncBus:
            return cast(AsyncBus, BusyLog(bus))

        streams._own_bus = own
        start = await bus.position()
        await fill(bus, 5)
        await bus.converse(_ask("XTRIM", bus.core.log.keys(0).log, "MAXLEN", 1))
        client = Client(streams, start)
        await until(lambda: client.kinds == ["position-lost"])
        end = await fill_and_read()
        streams._flush()
        await until(lambda: "added" in client.kinds)
        assert client.kinds == ["position-lost", "added"]
        assert client.ids[-1] == end


async def test_a_stream_reports_a_flushed_log_and_continues(embedded_url):
    async with opened(embedded_url) as (bus, streams):
        await fill(bus, 5)
        client = Client(streams, await bus.position())
        await until(lambda: streams.count == 1)
        keys = bus.core.log.keys(0)
        names = await bus.converse(_ask("KEYS", f"{keys.tag}*"))
        await bus.converse(_ask("DEL", *names))
        await fill(bus, 1)
        await until(lambda: "rewound" in client.kinds or "position-lost" in client.kinds)
        seen = len(client.kinds)
        await fill(bus, 1)
        await until(lambda: len(client.kinds) > seen)


def _ask(*command: Any) -> Any:
    return ask(0, *command)


@pytest.mark.parametrize(
    ("text", "shards", "expected"),
    [
        (None, 2, ("0-0", "1/0-0")),
        ("5-1,6-2", 2, ("5-1", "1/6-2")),
        ("1/6-2", 2, ("6-0", "1/6-2")),
        ("6-2", 1, ("6-2",)),
    ],
)
def test_a_position_is_resolved_in_every_shard(text, shards, expected):
    assert tuple(map(str, vector_of(text, shards))) == expected
