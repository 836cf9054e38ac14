"""The bus, the page and the in-memory view that the tools of one identity share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from scratchbus import AsyncBus, AsyncPage, AsyncView
from scratchbus.errors import InvalidField
from scratchbus.mcp.identity import Identity


class Workspace:
    """What the tools and resources of one identity share."""

    def __init__(self, identity: Identity, bus: AsyncBus, last: AsyncExitStack) -> None:
        self.identity = identity
        self.bus = bus
        self.page: AsyncPage = bus.page(identity.page)
        self._last = last
        self._view: AsyncView | None = None
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, identity: Identity, **settings: Any) -> AsyncIterator[Workspace]:
        """Open the bus as this identity and close it on exit. Raises EngineError."""
        async with (
            AsyncBus.connect(source=identity.agent, kind=identity.kind, **settings) as bus,
            AsyncExitStack() as last,
        ):
            yield cls(identity, bus, last)

    @property
    def session(self) -> str:
        """The session of this identity. Raises InvalidField without one."""
        if self.identity.session is None:
            raise InvalidField("session", "this identity has no session; name one with --session")
        return self.identity.session

    async def view(self) -> AsyncView:
        """Return the view of the page, which follows the log from the first call on."""
        async with self._turn:
            if self._view is None:
                self._view = await self._last.enter_async_context(self.bus.view(self.page.name))
            return self._view

    async def look(self) -> AsyncView:
        """Return the view once it includes every write acknowledged by now. Raises Behind, EngineError.

        This only asks the engine for the end of the log. Reading the page itself would fold the same events again on
        every call until a projector has committed them.
        """
        view = await self.view()
        end, seen = await self.bus.position(), view.position
        if seen.seq < end.shards[seen.shard].seq:
            await view.wait_for(end)
        return view
