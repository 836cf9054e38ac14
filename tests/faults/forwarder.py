"""Forwarding of connections to a server, by a thread of its own: what a proxy and a relay have in common."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from functools import partial
from typing import Any, Literal, Self, TypeVar, cast

_T = TypeVar("_T")

Cut = Literal["request", "reply"]
"""What is held back, or lost when a connection is cut: bytes from the client, or those that the server has sent."""


class Forwarder(ABC):
    """Accepts connections on loopback while a `with` lasts, and pumps their bytes to a server and back."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(self).__name__, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._links: set[asyncio.Task[None]] = set()
        self._gates: dict[tuple[str, Cut], asyncio.Event] = {}
        self.port = 0

    def withhold(self, kind: Cut, name: str = "") -> None:
        """Hold back requests or replies from now on: those of everyone, or of one door."""
        self._loop.call_soon_threadsafe(self._gate(name, kind).clear)

    def release(self, kind: Cut, name: str = "") -> None:
        """Deliver what was held back, even if nobody waits for it any more."""
        self._loop.call_soon_threadsafe(self._gate(name, kind).set)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._run(self._open(""))
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something in the thread of the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    # -- in the thread of the loop ---------------------------------------------------------------------------------

    @abstractmethod
    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        """Connect to the server."""

    @abstractmethod
    async def _pump(
        self, name: str, source: StreamReader, sink: StreamWriter, kind: Cut, replies: StreamReader
    ) -> None:
        """Pump the bytes of a connection through a door, one way, as its gates allow."""

    def _is_kept(self, writer: StreamWriter) -> bool:
        """Return whether a connection to the server stays open when its client's is cut."""
        return False

    def _gate(self, name: str, kind: Cut) -> asyncio.Event:
        gate = self._gates.get((name, kind))
        if gate is None:
            gate = self._gates.setdefault((name, kind), asyncio.Event())
            gate.set()
        return gate

    async def _open(self, door: str) -> int:
        """Accept connections at a new port, and return it."""
        self._servers.append(await asyncio.start_server(partial(self._link, door), "127.0.0.1", 0))
        port: int = self._servers[-1].sockets[0].getsockname()[1]
        return port

    async def _link(self, door: str, reader: StreamReader, writer: StreamWriter) -> None:
        link = cast("asyncio.Task[None]", asyncio.current_task())
        self._links.add(link)
        try:
            up_reader, up_writer = await self._connect()
            pumps = [
                asyncio.ensure_future(self._pump(door, reader, up_writer, "request", up_reader)),
                asyncio.ensure_future(self._pump(door, up_reader, writer, "reply", up_reader)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not self._is_kept(up_writer):
                    up_writer.transport.abort()
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the server is gone, or all connections are cut
        finally:
            writer.transport.abort()
            self._links.discard(link)

    async def _cut_all(self) -> None:
        while links := list(self._links):
            for link in links:
                link.cancel()
            await asyncio.gather(*links, return_exceptions=True)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await self._cut_all()
