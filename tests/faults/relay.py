"""A link between two servers that can be cut one way."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Literal, Self, cast

from tests.faults.servers import Server

Way = Literal["there", "back"]
"""From the client to the server, or from the server to the client."""


class Relay:
    """Forwards bytes to a server's port. Bytes that are withheld one way are delivered on `release`."""

    def __init__(self, server: Server) -> None:
        self._target = server.port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._gates: dict[Way, asyncio.Event] = {"there": asyncio.Event(), "back": asyncio.Event()}
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0

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
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._link, "127.0.0.1", 0), self._loop
        ).result(30)
        self.port = self._server.sockets[0].getsockname()[1]
        self.release()
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the thread of the loop ---------------------------------------------------------------------------------

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = cast("asyncio.Task[None]", asyncio.current_task())
        self._links.add(link)
        try:
            with suppress(OSError, asyncio.CancelledError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
                pumps = [
                    asyncio.ensure_future(self._pump(reader, up_writer, "there")),
                    asyncio.ensure_future(self._pump(up_reader, writer, "back")),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    up_writer.transport.abort()
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            writer.transport.abort()
            self._links.discard(link)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way) -> None:
        while data := await source.read(1 << 20):
            await self._gates[way].wait()
            sink.write(data)
            await sink.drain()

    async def _close(self) -> None:
        self._server.close()
        while links := list(self._links):
            for link in links:
                link.cancel()
            await asyncio.gather(*links, return_exceptions=True)
