"""A link between two servers that can be cut one way."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter

from tests.faults.forwarder import Cut, Forwarder
from tests.faults.servers import Server


class Relay(Forwarder):
    """Forwards bytes to a server's port. Bytes that are withheld one way are delivered on `release`."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._target = server.port

    def lead_to(self, server: Server) -> None:
        """Lead new connections to another server."""
        self._target = server.port

    def release_all(self) -> None:
        """Deliver all bytes that were held back."""
        self.release("request")
        self.release("reply")

    # -- in the thread of the loop ---------------------------------------------------------------------------------

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def _pump(
        self, name: str, source: StreamReader, sink: StreamWriter, kind: Cut, replies: StreamReader
    ) -> None:
        while data := await source.read(1 << 20):
            await self._gate(name, kind).wait()
            sink.write(data)
            await sink.drain()
