"""What all routes share: the settings of a server, its callers, and an open bus for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Annotated, Any, Final

import anyio
from anyio.abc import TaskGroup
from fastapi import Depends, Request

from scratchbus import AsyncBus
from scratchbus.http.callers import Caller, LocalUser, TokenHolders
from scratchbus.http.parameters import refuse_unknown_parameters

MAX_BUSES: Final = 256
"""The most buses open at once; beyond that, the least recently used idle one is closed."""

RECHECK: Final = 2.0
"""Seconds between checks that a caller who waits is still valid."""

_SELF: Final = Caller("serve", "serve", frozenset(), "daemon", "serve" + token_hex(16))


@dataclass
class _Opened:
    """A caller's bus, and how many requests use it."""

    bus: AsyncBus
    users: int = 0

    def use(self, uses: ExitStack) -> AsyncBus:
        """Count a request as using it until `uses` is closed; return the bus."""
        self.users += 1
        uses.callback(self._release)
        return self.bus

    def _release(self) -> None:
        self.users -= 1


@dataclass
class Server:
    """A server: its callers, and the bus it serves.

    `settings` are the arguments of `AsyncBus.connect`: `url`, `config`, `bus`, and others. `hosts` are the values of
    the header `Host` that it answers to; None for any.
    """

    callers: LocalUser | TokenHolders
    settings: Mapping[str, Any]
    hosts: frozenset[str] | None = None
    allow_private_webhooks: bool = False
    _buses: dict[Caller, _Opened] = field(default_factory=dict)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        """What runs until the server ends."""
        assert self._tasks is not None  # noqa: S101 - it serves only while it runs
        return self._tasks

    async def bus_of(self, caller: Caller, uses: ExitStack) -> AsyncBus:
        """Return the bus on which a caller speaks, opened on first use; it stays open until `uses` is closed.

        Raises EngineError.
        """
        return (await self._opened(caller)).use(uses)

    async def own_bus(self) -> AsyncBus:
        """Return a bus for what no caller asks for, such as whether the engine answers. It stays open."""
        return (await self._opened(_SELF)).bus

    async def _opened(self, caller: Caller) -> _Opened:
        if caller not in self._buses:
            async with self._turn:
                if caller not in self._buses:
                    await self._make_room()
                    identity = {"source": caller.source, "instance": caller.key, "kind": caller.kind}
                    self._buses[caller] = _Opened(await AsyncBus.connect(**self.settings, **identity))
        found = self._buses.pop(caller)
        self._buses[caller] = found  # the one used last is the last
        return found

    async def _make_room(self) -> None:
        """Close idle buses, least recently used first, until there is room or all are in use."""
        while len(self._buses) >= MAX_BUSES:
            idle = (each for each, opened in self._buses.items() if not opened.users and each is not _SELF)
            oldest = next(idle, None)
            if oldest is None:
                break
            await self._buses.pop(oldest).bus.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End all tasks and close all buses at exit."""
        try:
            async with anyio.create_task_group() as self._tasks:
                yield
                self._tasks.cancel_scope.cancel()
        finally:
            while self._buses:  # a request that is still running may open one meanwhile
                await self._buses.popitem()[1].bus.close()


def server_of(request: Request) -> Server:
    """Return the server that a request reached."""
    server: Server = request.app.state.server
    return server


def caller_of(request: Request) -> Caller:
    """Return the caller of a request. Raises Refusal."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


async def _server(request: Request) -> Server:
    return server_of(request)


async def _caller(request: Request) -> Caller:
    refuse_unknown_parameters(request)
    return caller_of(request)


ServerOf = Annotated[Server, Depends(_server)]
CallerOf = Annotated[Caller, Depends(_caller)]


class Need:
    """The dependency of a route on the caller's bus, which needs scopes."""

    def __init__(self, *scopes: str) -> None:
        self.scopes = scopes

    async def __call__(self, request: Request) -> AsyncBus:
        """Return the bus. Raises Refusal without a scope, and for query parameters that the route does not have."""
        refuse_unknown_parameters(request)
        caller = caller_of(request)
        for scope in self.scopes:
            caller.need(scope)
        return await server_of(request).bus_of(caller, request.scope["state"]["uses"])


ReadBus = Annotated[AsyncBus, Depends(Need("read"))]
PublishBus = Annotated[AsyncBus, Depends(Need("publish"))]
ActBus = Annotated[AsyncBus, Depends(Need("act"))]
ConsumeBus = Annotated[AsyncBus, Depends(Need("act", "read"))]
AdminBus = Annotated[AsyncBus, Depends(Need("admin"))]
MemoryBus = Annotated[AsyncBus, Depends(Need("memory"))]
