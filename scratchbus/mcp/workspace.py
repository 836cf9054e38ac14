"""The bus, the page and the in-memory view that the tools of one identity share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import scratchbus
from scratchbus import AsyncBus
from scratchbus.daemon import LimitedLogger, stderr_logger
from scratchbus.errors import Conflict, EngineError, InvalidField, NotFound, ScratchbusError, for_clients
from scratchbus.mcp.identity import Identity

logger = LimitedLogger(stderr_logger())


class Workspace:
    """What the tools and resources of one identity share."""

    def __init__(self, identity: Identity, bus: AsyncBus, exit_stack: AsyncExitStack, is_shared: bool = False) -> None:
        self.identity = identity
        self.is_shared = is_shared
        self.bus = bus
        self._entered: list[str] = []
        self._ended: dict[str, tuple[str, str | None]] = {}
        self.page: scratchbus.AsyncPage = bus.page(identity.page)
        self._exit_stack = exit_stack
        self._view: scratchbus.AsyncView | None = None
        self._view_lock = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, identity: Identity, *, is_shared: bool = False, **settings: Any) -> AsyncIterator[Workspace]:
        """Open the bus as this identity and close it on exit; `is_shared` if it serves several clients.

        Raises EngineError.
        """
        async with (
            AsyncBus.connect(source=identity.agent, kind=identity.kind, **settings) as bus,
            AsyncExitStack() as exit_stack,
        ):
            yield cls(identity, bus, exit_stack, is_shared)

    def told(self, error: ScratchbusError) -> str:
        """Return the message of an error for the client; where the engine is, the log tells if clients are remote."""
        if self.is_shared and isinstance(error, EngineError):
            logger.warning("the engine failed or refused", problem=str(error))
            return for_clients(error)
        return str(error)

    @property
    def session(self) -> str:
        """The session whose memory the tools use: the session entered last, else the identity's own.

        Raises InvalidField without one.
        """
        session = self.known_session
        if session is None:
            raise InvalidField("session", "your connection has no session; ask the person who configured it for one")
        return session

    @property
    def known_session(self) -> str | None:
        """The session whose memory the tools use, or None without one."""
        return self._entered[-1] if self._entered else self.identity.session

    @property
    def own_values(self) -> dict[str, str | None]:
        """The page, the session and the agent of the connection, as the URIs of resources name them."""
        return {"page": self.identity.page, "session": self.known_session, "agent": self.identity.agent}

    @property
    def context_arguments(self) -> dict[str, Any]:
        """The arguments of `bus.context.assemble` that say whose context it is."""
        return {**self.own_values, "scopes": self.identity.knowledge}

    async def enter(self, session: str) -> None:
        """Use the memory of a session that was started from the current one. Raises NotFound for any other.

        To enter the current one again, as a retry does, changes nothing.
        """
        child = await self.bus.session(session)
        is_entered = self._entered[-1:] == [session]
        if child is None or not (is_entered or child.parent == self.session):
            raise NotFound(
                f"session: {session!r} was not started from your session {self.session}; start one with spawn_session"
                " or fork_session"
            )
        if child.ended:
            raise NotFound(f"session: {session!r} has ended; start another with spawn_session or fork_session")
        if not is_entered:
            self._entered.append(session)

    async def leave(self, event_id: str | None) -> tuple[str, str | None]:
        """End the session entered last; return it and the session it was entered from, the same for a retry.

        Raises Conflict for the connection's own session, without which it could remember nothing.
        """
        if event_id is not None and event_id in self._ended:
            return self._ended[event_id]
        ended = self.session
        if not self._entered:
            raise Conflict(
                f"session {ended} is your connection's own and stays open; you can end only a session that you"
                " entered with enter_session"
            )
        await self.bus.end_session(ended, event_id=event_id)
        if self._entered[-1:] == [ended]:
            self._entered.pop()
        result = ended, self.known_session
        if event_id is not None:
            self._ended[event_id] = result
        return result

    async def view(self) -> scratchbus.AsyncView:
        """Return the view of the page, which follows the log from the first call on."""
        async with self._view_lock:
            if self._view is None:
                self._view = await self._exit_stack.enter_async_context(self.bus.view(self.page.name))
            return self._view

    async def read_observation(self, id: str) -> scratchbus.Observation | None:
        """Return an observation of the page, and log the read. Raises InvalidId, Behind, EngineError."""
        found = (await self.look()).get(id)
        if found is None:
            return await self.page.get(id)  # the view drops observations some time after they are final
        await self.page.log_read([found])
        return found

    async def look(self) -> scratchbus.AsyncView:
        """Return the view once it includes every write acknowledged by now. Raises Behind, EngineError.

        This only asks the engine for the end of the log. Reading the page itself would fold the same events again on
        every call until a projector has committed them.
        """
        view = await self.view()
        end, position = await self.bus.position(), view.position
        if position.seq < end.shards[position.shard].seq:
            await view.wait_for(end)
        return view
