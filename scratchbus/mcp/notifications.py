"""Notify clients when a resource changes, driven by the log.

Clients of protocol version 2026-07-28 and later hold a `subscriptions/listen` request open, and get notifications that
belong to it. Earlier clients call `resources/subscribe`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

import scratchbus
from scratchbus.daemon import stderr_logger
from scratchbus.errors import BusClosed, LogError, ScratchbusError
from scratchbus.mcp.protocol import INTERNAL_ERROR, SUBSCRIPTION_KEY, Client, Params, ProtocolError, Result
from scratchbus.mcp.resources import ACTIVE, NOTEPAD, NOTES, OBSERVATION, TODO, Resources
from scratchbus.mcp.workspace import Workspace

MAX_SUBSCRIPTIONS: Final = 1024
"""The most connections and requests that subscribe at once."""

MAX_PAUSE: Final = 2.0
"""The most seconds between two attempts to follow the log."""

_UPDATED: Final = "notifications/resources/updated"

logger = stderr_logger()


class _Subscriber:
    """A subscriber: its resources, and the notifications still to be sent."""

    def __init__(self, notify: Callable[[str], Awaitable[None]]) -> None:
        self._notify = notify
        self._forms: dict[str, set[str]] = {}  # canonical URI: the forms in which the client wrote it
        self._changed: dict[str, None] = {}
        self._has_changes = anyio.Event()

    @property
    def uris(self) -> set[str]:
        """The URIs of the resources."""
        return set(self._forms)

    def add(self, uri: str, form: str) -> None:
        """Add a resource, with its URI as the client wrote it."""
        self._forms.setdefault(uri, set()).add(form)

    def remove(self, form: str) -> None:
        """Remove a resource."""
        self._changed.pop(form, None)
        for uri, forms in list(self._forms.items()):
            forms.discard(form)
            if not forms:
                del self._forms[uri]

    def record_change(self, uri: str) -> None:
        """Record a change; several changes of one resource become one notification."""
        for form in self._forms.get(uri, ()):
            self._changed[form] = None
            self._has_changes.set()

    async def notify(self) -> None:
        """Send pending notifications as fast as the client accepts them, until cancelled."""
        while True:
            await self._has_changes.wait()
            self._has_changes, changed, self._changed = anyio.Event(), self._changed, {}
            for uri in changed:
                await self._notify(uri)


class ResourceSubscriptions:
    """The subscriptions to the resources of one page."""

    def __init__(self, workspace: Workspace, resources: Resources) -> None:
        self._workspace = workspace
        self._resources = resources
        self._page = workspace.page.name
        self._subscribers: dict[object, _Subscriber] = {}  # by connection, or by request
        self._tasks: TaskGroup
        self._starting = anyio.Lock()
        self._is_following = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve subscriptions until exit."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def listen(self, client: Client, params: Params) -> Result:
        """Notify a client of changes for as long as it keeps its request open. Raises ProtocolError."""
        wanted: dict[str, Any] = {name: value for name, value in params["notifications"].items() if value}
        forms = wanted.get("resourceSubscriptions", [])
        resources = [(await self._resources.check(form), form) for form in forms]
        await self._start_following()
        meta = {"_meta": {SUBSCRIPTION_KEY: client.request_id}}
        subscriber = _Subscriber(lambda uri: client.notify(_UPDATED, {"uri": uri, **meta}, is_of_request=True))
        for uri, form in resources:
            subscriber.add(uri, form)
        self._register(subscriber, subscriber)
        try:
            acknowledged = {"notifications": wanted, **meta}
            await client.notify("notifications/subscriptions/acknowledged", acknowledged, is_of_request=True)
            await subscriber.notify()
        finally:
            del self._subscribers[subscriber]
        return meta

    async def subscribe(self, client: Client, params: Params) -> Result:
        """Subscribe a client to a resource. Raises ProtocolError unless it exists."""
        uri = await self._resources.check(params["uri"])
        await self._start_following()
        subscriber = self._subscribers.get(client.connection)
        if subscriber is None:
            subscriber = _Subscriber(lambda uri: client.notify(_UPDATED, {"uri": uri}))
            self._register(client.connection, subscriber)
            client.ending.callback(self._subscribers.pop, client.connection, None)
            await client.ending.enter_async_context(self._notified(subscriber))
        subscriber.add(uri, params["uri"])
        return {}

    async def unsubscribe(self, client: Client, params: Params) -> Result:
        """Unsubscribe a client from a resource."""
        subscriber = self._subscribers.get(client.connection)
        if subscriber is not None:
            subscriber.remove(params["uri"])
        return {}

    @asynccontextmanager
    async def _notified(self, subscriber: _Subscriber) -> AsyncIterator[None]:
        scope = anyio.CancelScope()

        async def notify() -> None:
            with scope:
                await subscriber.notify()

        self._tasks.start_soon(notify)
        try:
            yield
        finally:
            scope.cancel()

    def _register(self, key: object, subscriber: _Subscriber) -> None:
        if len(self._subscribers) >= MAX_SUBSCRIPTIONS:
            raise ProtocolError(
                INTERNAL_ERROR, f"{MAX_SUBSCRIPTIONS:,} connections and requests subscribe already; try again later"
            )
        self._subscribers[key] = subscriber

    async def _start_following(self) -> None:
        """Start following the page and the session, unless already started. Raises EngineError."""
        async with self._starting:
            if self._is_following:
                return
            identity, workspace = self._workspace.identity, self._workspace
            position = await workspace.bus.position()
            if identity.has("observations"):
                self._tasks.start_soon(self._follow_page, (await workspace.view()).changes())
            if identity.session is not None:
                self._tasks.start_soon(self._follow_memories, identity.session, position)
            self._is_following = True

    async def _follow_page(self, changes: AsyncIterator[scratchbus.Change]) -> None:
        try:
            async for change in changes:
                for uri in self._uris(change):
                    self._publish(uri)
        except ScratchbusError as problem:  # reads of the page raise it to their callers
            logger.error("clients are no longer notified of changes", page=self._page, reason=str(problem))

    async def _follow_memories(self, session: str, after: scratchbus.BusPosition | scratchbus.Position | None) -> None:
        """Publish the changes of a session's memories until the bus is closed; after an error, continue.

        Without a position, as after a rewound log, any memory may have changed.
        """
        bus, page, failures = self._workspace.bus, f"session:{session}", 0
        while True:
            try:
                if after is None:
                    after = await bus.position()
                    for each in _MEMORIES.values():
                        self._publish(each.uri(session))
                async for event in bus.events(after, follow=True, pages=[page]):
                    after, failures = event.position, 0
                    kind = _MEMORIES.get(event.kind.partition("_")[0])
                    if kind is not None:
                        self._publish(kind.uri(session))
            except BusClosed:
                return
            except ScratchbusError as problem:
                if failures == 0:
                    logger.warning("changes of memories cannot be read; trying again", page=page, reason=str(problem))
                if isinstance(problem, LogError):
                    after = None
            failures += 1
            await anyio.sleep(min(MAX_PAUSE, 0.05 * 2 ** min(failures, 6)))

    def _uris(self, change: scratchbus.Change) -> list[str]:
        active = ACTIVE.uri(self._page)
        if change.is_resync:  # any subscribed resource may have changed
            return sorted({active}.union(*(each.uris for each in self._subscribers.values())))
        observation = change.after or change.before
        return [active, OBSERVATION.uri(observation.id)] if observation else [active]

    def _publish(self, uri: str) -> None:
        for subscriber in self._subscribers.values():
            subscriber.record_change(uri)


_MEMORIES = {"note": NOTES, "notepad": NOTEPAD, "todo": TODO}
"""The resources that events change, by the prefix of their kind."""
