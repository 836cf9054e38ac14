"""Where an identity works: the bus, its page, and the page in memory, from which it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from scratchbus import AsyncBus, AsyncPage, AsyncView
from scratchbus.errors import InvalidField
from scratchbus.mcp.identity import Identity


class Desk:
    """What the tools and resources of one identity have in common."""

    def __init__(self, identity: Identity, bus: AsyncBus, last: AsyncExitStack) -> None:
        self.identity = identity
        self.bus = bus
        self.page: AsyncPage = bus.page(identity.page)
        self._last = last
        self._view: AsyncView | None = None
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, identity: Identity, **settings: Any) -> AsyncIterator[Desk]:
        """Open the bus, as this identity, for as long as this lasts. Raises EngineError."""
        async with (
            AsyncBus.connect(source=identity.agent, kind=identity.kind, **settings) as bus,
            AsyncExitStack() as last,
        ):
            yield cls(identity, bus, last)

    @property
    def session(self) -> str:
        """The session whose memory it has. Tools of a session are there only where there is one."""
        if self.identity.session is None:
            raise InvalidField("session", "there is none; name it with --session")
        return self.identity.session

    async def view(self) -> AsyncView:
        """Return the page in memory, which follows the log from the first time that somebody asks for it."""
        async with self._turn:
            if self._view is None:
                self._view = await self._last.enter_async_context(self.bus.view(self.page.name))
            return self._view

    async def look(self) -> AsyncView:
        """Return the page as it is: with every write in it that was acknowledged by now. Raises Behind, EngineError.

        A look at the end of the log is all that this asks of the engine; a read of the page itself would fold again
        and again what no projector has folded yet.
        """
        view = await self.view()
        end, seen = await self.bus.position(), view.position
        if seen.seq < end.shards[seen.shard].seq:
            await view.wait_for(end)
        return view
