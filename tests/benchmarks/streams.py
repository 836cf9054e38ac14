"""Streams of events over HTTP: the delay of events at the clients of one server, and the memory of a client."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection

from tests.benchmarks.http_api import served
from tests.benchmarks.measure import percentile
from tests.benchmarks.processes import resident, running
from tests.benchmarks.rows import Floor, Row
from tests.benchmarks.stage import Sizes, Stage, given

PER_SECOND = 100
_AT = re.compile(rb'"at":"([^"]+)"')


def measure_streams(stage: Stage, sizes: Sizes) -> list[Row]:
    """Publish at a steady rate to a server with many clients: 1,000 in the full measurement."""
    count = 5 * sizes.followers
    bus = stage.bus("streams", room=10 * sizes.published)
    page = bus.page()
    with served(stage.url, "streams") as (port, pid), running(_listen, port) as clients:
        clients.send(1)
        clients.receive()
        before = resident(pid)
        clients.send(count)
        clients.receive()
        begin = time.monotonic()
        for number in range(sizes.published):
            page.add(**given(number))
            time.sleep(max(0.0, begin + (number + 1) / PER_SECOND - time.monotonic()))
        clients.send(sizes.published)
        delays = clients.receive()
        each = (resident(pid) - before) / count
    what = f"{count:,} clients of one server, {PER_SECOND} events a second"
    return [
        Row(f"{what}: an event at a client, p99", "", "seconds", percentile(delays, 99),
            floor=Floor("ours", "at most", 1.0), note=f"median {percentile(delays, 50) * 1e3:,.0f} ms"),
        Row(f"{what}: memory of the server for a client", "", "bytes", each, floor=Floor("ours", "at most", 100_000)),
    ]  # fmt: skip


def _listen(pipe: Connection, port: int) -> None:
    asyncio.run(_Crowd(pipe, port).listen())


class _Crowd:
    """All clients: first one, then many, then their delays once each has received all events."""

    def __init__(self, pipe: Connection, port: int) -> None:
        self._pipe = pipe
        self._port = port
        self._clients: list[_Client] = []

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            wanted = await asyncio.to_thread(self._pipe.recv)
            while len(self._clients) < wanted:
                is_timed = len(self._clients) % 20 == 0  # timing all would slow the server
                make = partial(_Client, self._port, is_timed)
                self._clients.append((await loop.create_connection(make, "127.0.0.1", self._port))[1])
            await self._until(lambda client: client.is_open)
            self._pipe.send("open")
        events = await asyncio.to_thread(self._pipe.recv)
        await self._until(lambda client: client.events >= events)
        self._pipe.send([delay for client in self._clients for delay in client.delays])

    async def _until(self, condition: Callable[[_Client], bool]) -> None:
        while not all(map(condition, self._clients)):  # noqa: ASYNC110  # a condition of all clients
            await asyncio.sleep(0.02)


class _Client(asyncio.Protocol):
    def __init__(self, port: int, is_timed: bool) -> None:
        self._port = port
        self._is_timed = is_timed
        self.is_open = False
        self.events = 0
        self.delays: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        lines = ("GET /api/v1/events HTTP/1.1", f"Host: 127.0.0.1:{self._port}", "Accept: text/event-stream", "", "")
        transport.write("\r\n".join(lines).encode())

    def data_received(self, data: bytes) -> None:
        self.is_open = self.is_open or b"retry: " in data
        self.events += data.count(b"event: added")
        if self._is_timed:
            now = time.time()
            self.delays += [now - datetime.fromisoformat(at.decode()).timestamp() for at in _AT.findall(data)]
