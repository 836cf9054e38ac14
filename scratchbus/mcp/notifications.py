"""Notify clients when a resource changes, driven by the log.

Clients of protocol version 2026-07-28 and later hold a `subscriptions/listen` stream, which the SDK serves from a bus
of its own. Earlier clients call `resources/subscribe` and get `notifications/resources/updated`, which we implement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from scratchbus import Change
from scratchbus.daemon import stderr_logger
from scratchbus.errors import ScratchbusError
from scratchbus.mcp.workspace import Workspace

Request = ServerRequestContext[Any, Any]

logger = stderr_logger()


def active_uri(page: str) -> str:
    """Return the URI of the active observations of a page."""
    return f"scratch://{quote(page, safe='')}/active"


def observation_uri(id: str) -> str:
    """Return the URI of an observation."""
    return f"observation://{id}"


class _Client:
    """A client of an earlier protocol version: its subscriptions and pending notifications."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self.uris: set[str] = set()
        self._changed: dict[str, None] = {}
        self._woken = anyio.Event()

    def hear(self, uri: str) -> None:
        """Record a change; several changes of one resource become one notification."""
        if uri in self.uris:
            self._changed[uri] = None
            self._woken.set()

    async def tell(self) -> None:
        """Send pending notifications as fast as the client accepts them, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken, changed, self._changed = anyio.Event(), self._changed, {}
            for uri in changed:
                await self._session.send_resource_updated(uri)


class ResourceSubscriptions:
    """The subscriptions to the resources of one page."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._page = workspace.page.name
        self._listeners = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._listeners)
        self._clients: dict[object, _Client] = {}
        self._tasks: TaskGroup
        self._has_begun = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve subscriptions until exit."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def listen(self, context: Request, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve a stream of changes for as long as the client keeps it open."""
        await self._begin()
        return await self._listen(context, params)

    async def subscribe(self, context: Request, params: SubscribeRequestParams) -> EmptyResult:
        """Subscribe a client to a resource."""
        await self._begin()
        connection = context.session._connection  # private in the SDK, but nothing else tells when it ends
        client = self._clients.get(connection)
        if client is None:
            client = self._clients[connection] = _Client(context.session)
            connection.exit_stack.callback(self._clients.pop, connection, None)
            await connection.exit_stack.enter_async_context(self._told(client))
        client.uris.add(params.uri)
        return EmptyResult()

    async def unsubscribe(self, context: Request, params: UnsubscribeRequestParams) -> EmptyResult:
        """Unsubscribe a client from a resource."""
        client = self._clients.get(context.session._connection)  # see above
        if client is not None:
            client.uris.discard(params.uri)
        return EmptyResult()

    @asynccontextmanager
    async def _told(self, client: _Client) -> AsyncIterator[None]:
        telling = anyio.CancelScope()

        async def tell() -> None:
            with telling:
                await client.tell()

        self._tasks.start_soon(tell)
        try:
            yield
        finally:
            telling.cancel()

    async def _begin(self) -> None:
        """Start following the page, unless that has been done already."""
        view = await self._workspace.view()
        if not self._has_begun:
            self._has_begun = True
            self._tasks.start_soon(self._follow, view.changes())

    async def _follow(self, changes: AsyncIterator[Change]) -> None:
        try:
            async for change in changes:
                for uri in self._uris(change):
                    await self._publish(uri)
        except ScratchbusError as problem:  # reads of the page raise it to their callers
            logger.error("clients are no longer notified of changes", page=self._page, reason=str(problem))

    def _uris(self, change: Change) -> list[str]:
        if change.is_resync:  # any subscribed resource may have changed
            return sorted({uri for client in self._clients.values() for uri in client.uris} | {active_uri(self._page)})
        observation = change.after or change.before
        uris = [observation_uri(observation.id)] if observation else []
        return [active_uri(self._page), *uris]

    async def _publish(self, uri: str) -> None:
        for client in list(self._clients.values()):
            client.hear(uri)
        await self._listeners.publish(ResourceUpdated(uri))
