"""A link between two servers that can be cut one way."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from typing import Any, Literal, Self

from tests.faults.forwarder import Forwarder
from tests.faults.servers import Server

Way = Literal["there", "back"]
"""From the client to the server, or from the server to the client."""


class Relay(Forwarder):
    """Forwards bytes to a server's port. Bytes that are withheld one way are delivered on `release`."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._target = server.port
        self._gates: dict[Way, asyncio.Event] = {"there": asyncio.Event(), "back": asyncio.Event()}

    def lead_to(self, server: Server) -> None:
        """Lead new connections to another server."""
        self._target = server.port

    def withhold(self, way: Way) -> None:
        """Hold back the bytes of one direction from now on."""
        self._loop.call_soon_threadsafe(self._gates[way].clear)

    def release(self) -> None:
        """Deliver all bytes that were held back."""
        for gate in self._gates.values():
            self._loop.call_soon_threadsafe(gate.set)

    def __enter__(self) -> Self:
        super().__enter__()
        self.release()
        return self

    # -- in the thread of the loop ---------------------------------------------------------------------------------

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._target)

    def _pumps(
        self, door: str, client: tuple[StreamReader, StreamWriter], server: tuple[StreamReader, StreamWriter]
    ) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        return self._pump(client[0], server[1], "there"), self._pump(server[0], client[1], "back")

    async def _pump(self, source: StreamReader, sink: StreamWriter, way: Way) -> None:
        while data := await source.read(1 << 20):
            await self._gates[way].wait()
            sink.write(data)
            await sink.drain()
