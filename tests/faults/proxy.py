"""A proxy on loopback that loses requests and replies on demand."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from random import Random

import hiredis

from tests.faults.forwarder import Cut, Forwarder
from tests.faults.servers import Server


class Lost(Exception):
    """Raised to cut a connection."""


class Proxy(Forwarder):
    """Forwards to a server's unix socket, and cuts connections or withholds data.

    A client with its own door can be cut off alone. `withhold` holds back one direction until `release` delivers it: a
    network that is down one way delays the data of a connection and loses none.

    `arm` cuts once, at the n-th request or reply from then on; `storm` cuts at random until `calm`. The `meanwhile` of
    a cut runs before the client can notice the cut.
    """

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._target = str(server.socket)
        self._is_lost: Callable[[Cut], bool] = lambda kind: False
        self._meanwhile: Callable[[], object] = lambda: None
        self._keeps = self._is_mute = False
        self._late = 0.0
        self._doors: dict[str, int] = {}
        self._kept: list[tuple[StreamReader, StreamWriter, bytes]] = []
        self._failure: Exception | None = None
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def arm(self, kind: Cut, number: int, meanwhile: Callable[[], object] | None = None, *, keep: bool = False) -> None:
        """Cut at the n-th request or reply from now on. With `keep`, a lost request waits for `deliver`."""
        left = [number]

        def is_lost(passing: Cut) -> bool:
            left[0] -= passing == kind
            return passing == kind and left[0] == 0

        self._meanwhile = meanwhile or (lambda: None)
        self._keeps = keep
        self._is_lost = is_lost
        self.cuts = 0

    def fail_from(self, kind: Cut, number: int) -> None:
        """Cut at the n-th request or reply from now on, and at each one after that until `calm`."""
        left = [number]

        def is_lost(passing: Cut) -> bool:
            left[0] -= passing == kind
            return passing == kind and left[0] <= 0

        self._meanwhile, self._keeps = lambda: None, False
        self._is_lost = is_lost

    def storm(self, random: Random, share: float) -> None:
        """Cut at a random share of all requests and replies."""
        self._meanwhile, self._keeps = lambda: None, False
        self._is_lost = lambda kind: random.random() < share

    def swallow(self) -> None:
        """Lose every reply from now on without cutting connections, like a network that is down."""
        self._is_mute = True

    def slow(self, seconds: float) -> None:
        """Delay every reply from now on."""
        self._late = seconds

    def door(self, name: str) -> str:
        """Return the URL of a door, a port of its own for one client, whose name `withhold` and `release` take."""
        if name not in self._doors:
            self._doors[name] = self._run(self._open(name))
        return f"redis://127.0.0.1:{self._doors[name]}"

    def calm(self) -> None:
        """Stop losing anything."""
        self._is_lost = lambda kind: False
        self._is_mute = False

    def lead_to(self, server: Server) -> None:
        """Lead new connections to another server; existing ones stay."""
        self._target = str(server.socket)

    def fail_over(self, server: Server) -> None:
        """Cut all connections, and lead new ones to another server."""
        self.lead_to(server)
        self._run(self._cut_all())

    def deliver(self) -> None:
        """Send the kept requests to the server, and wait for its replies, which are dropped."""
        self._run(self._deliver())

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self._failure is not None:
            raise self._failure

    # -- in the thread of the loop ---------------------------------------------------------------------------------

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_unix_connection(self._target)

    def _is_kept(self, writer: StreamWriter) -> bool:
        return any(kept[1] is writer for kept in self._kept)

    async def _pump(
        self, name: str, source: StreamReader, sink: StreamWriter, kind: Cut, replies: StreamReader
    ) -> None:
        parser = hiredis.Reader()
        gates = self._gate("", kind), self._gate(name, kind)
        while data := await source.read(1 << 20):
            parser.feed(data)
            while parser.gets() is not False:
                if self._is_lost(kind):
                    self.cuts += 1
                    if self._keeps and kind == "request":
                        self._kept.append((replies, sink, data))
                    self._happen()
                    raise Lost
            for gate in gates:
                await gate.wait()
            if self._late and kind == "reply":
                await asyncio.sleep(self._late)
            if not (self._is_mute and kind == "reply"):
                sink.write(data)
                await sink.drain()

    def _happen(self) -> None:
        try:
            self._meanwhile()
        except Exception as failure:  # raised again where the test sees it
            self._failure = failure

    async def _deliver(self) -> None:
        for reader, writer, data in self._kept:
            writer.write(data)
            await writer.drain()
            await reader.read(1)
            writer.transport.abort()
        self._kept.clear()

    async def _close(self) -> None:
        await super()._close()
        for _, writer, _ in self._kept:
            writer.transport.abort()
