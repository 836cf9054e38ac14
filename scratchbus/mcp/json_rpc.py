"""The protocol over one stream of JSON-RPC messages, in each supported version, with one task for each request.

Up to version 2025-11-25 a connection begins with `initialize`; since 2026-07-28 each request states its version and the
client's capabilities. The first request decides which of the two a connection speaks. A test compares the answers with
those of the SDK (`tests/edges/mcp/test_session.py`).

The tasks are asyncio's own: those of anyio take longer to start and to end than the rest of this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import Annotated, Any, Final, Literal, NotRequired

import anyio
from anyio.abc import TaskGroup
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.daemon import stderr_logger
from scratchbus.mcp.methods import INFO, Methods
from scratchbus.mcp.protocol import (
    EARLIER,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATER,
    METHOD_NOT_FOUND,
    SERVER_KEY,
    VERSION_KEY,
    Client,
    Method,
    Params,
    ProtocolError,
    Result,
    check_version,
    completed,
    has_version,
)

_EARLIER_METHODS: Final = {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
_LATER_METHODS: Final = {"server/discover", "subscriptions/listen"}

Id = str | int
Message = dict[str, Any]
Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

_BUG: Final = ProtocolError(INTERNAL_ERROR, "internal error, a bug in the server; see its log")

logger = stderr_logger()


class _Initialize(TypedDict):
    protocolVersion: str
    capabilities: dict[str, Any]
    clientInfo: Annotated[dict[str, Any], Field(min_length=1)]


class _List(TypedDict):
    cursor: NotRequired[str | None]


class _CallTool(TypedDict):
    name: str
    arguments: NotRequired[dict[str, Any] | None]


class _GetPrompt(TypedDict):
    name: str
    arguments: NotRequired[dict[str, str] | None]


class _ResourceParams(TypedDict):
    uri: str


class _SetLevel(TypedDict):
    level: Level


class _Prompt(TypedDict):
    type: Literal["ref/prompt"]
    name: str


class _Template(TypedDict):
    type: Literal["ref/resource"]
    uri: str


class _Argument(TypedDict):
    name: str
    value: str


class _Complete(TypedDict):
    ref: _Prompt | _Template
    argument: _Argument


class _NotificationFilter(TypedDict):
    toolsListChanged: NotRequired[bool | None]
    promptsListChanged: NotRequired[bool | None]
    resourcesListChanged: NotRequired[bool | None]
    resourceSubscriptions: NotRequired[list[str] | None]


class _Listen(TypedDict):
    notifications: _NotificationFilter


_PARAMS: Final[Mapping[str, Any]] = {
    "initialize": _Initialize,
    "tools/call": _CallTool,
    "prompts/get": _GetPrompt,
    "resources/read": _ResourceParams,
    "resources/subscribe": _ResourceParams,
    "resources/unsubscribe": _ResourceParams,
    "logging/setLevel": _SetLevel,
    "completion/complete": _Complete,
    "subscriptions/listen": _Listen,
}
"""The parameters of the methods other than lists."""


@cache
def _checks_of(method: str) -> TypeAdapter[Any]:
    return TypeAdapter(_PARAMS.get(method, _List))


class McpSession:
    """A client and its pending requests, which are cancelled at its `ending`; `send` sends it a message.

    An error of `send` is raised in the task group.
    """

    def __init__(self, methods: Methods, group: TaskGroup, send: Callable[[Message], Awaitable[None]]) -> None:
        self.ending = AsyncExitStack()
        self.ending.push_async_callback(self._cancel_all)
        self._methods = methods
        self._group = group
        self._send = send
        self._is_later: bool | None = None  # until the first request
        self._is_initialized = False
        self._handshake: dict[str, Method] = {"initialize": self._initialize, "server/discover": self._discover}
        self._requests: dict[Id | None, _Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered = anyio.Event()

    def take(self, message: Message) -> None:
        """Handle a message from the client. Responses are ignored, since the server sends no requests."""
        method, params, id = message.get("method"), message.get("params") or {}, message.get("id")
        if method is None:
            return
        if id is not None:
            if self._is_later is None:
                self._is_later = method != "initialize" and has_version(params)
            self._requests[id] = request = _Request(self, id, is_endless=method == "subscriptions/listen")
            request.task = asyncio.create_task(self._answer(request, method, params))
            self._tasks.add(request.task)
        elif method == "notifications/cancelled":
            cancelled = self._request(params.get("requestId"))
            if cancelled is not None and not cancelled.is_answered:
                cancelled.task.add_done_callback(self._tasks.discard)  # it may not even have begun
                cancelled.task.cancel()
                self.settle(cancelled.request_id)  # the protocol wants no answer

    def settle(self, id: Id | None) -> None:
        """Note that a request has been answered, or need not be."""
        self._requests.pop(id, None)
        self._answered.set()

    def _request(self, id: object) -> _Request | None:
        """Return the pending request with an id; some clients cancel 5 as "5"."""
        pending = self._requests.values()
        same = (each for each in pending if each.request_id == id)
        return next(same, None) or next((each for each in pending if str(each.request_id) == str(id)), None)

    async def wait_until_answered(self, patience: float | None = None) -> None:
        """Wait until all requests are answered, except those that last as long as their client.

        With `patience`, wait no longer than so many seconds for any next answer.
        """
        while not all(request.is_endless for request in self._requests.values()):
            self._answered = anyio.Event()
            with anyio.move_on_after(patience) as waited:
                await self._answered.wait()
            if waited.cancelled_caught:
                return

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def _answer(self, request: _Request, method: str, params: Params) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": request.request_id}
        try:
            answer["result"] = await self._result(request, method, params)
        except ProtocolError as problem:
            answer["error"] = problem.document
        except Exception:
            logger.exception("a request failed", method=method)
            answer["error"] = _BUG.document
        request.is_answered = True
        try:
            await self._send(answer)
        except Exception as error:
            self._group.start_soon(_raise, error)
        self._tasks.discard(request.task)

    async def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _result(self, client: Client, method: str, params: Params) -> Result:
        """Return the result of a request. Raises ProtocolError."""
        if self._is_later:
            check_version(method, params)
        elif has_version(params) and method != "initialize":
            raise ProtocolError(INVALID_REQUEST, f"this connection began with initialize; leave {VERSION_KEY} out")
        handle = self._handshake.get(method) or self._methods.by_name.get(method)
        if handle is None or method in (_EARLIER_METHODS if self._is_later else _LATER_METHODS):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", method)
        if not isinstance(params.get("_meta") or {}, dict):
            raise ProtocolError(INVALID_PARAMS, f"{method}: params._meta is not an object")
        try:
            _checks_of(method).validate_python(params)
        except ValidationError as problem:
            first = problem.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise ProtocolError(INVALID_PARAMS, f"{method}: params.{field}: {first['msg']}") from None
        if not (self._is_later or self._is_initialized or method in ("initialize", "ping")):
            raise ProtocolError(INVALID_PARAMS, f"{method}: initialize the connection first")
        result = await handle(client, params)
        if not self._is_later:
            return result
        return {**completed(method, result), "_meta": {**result.get("_meta", {}), SERVER_KEY: INFO}}

    async def _initialize(self, _: Client, params: Params) -> Result:
        requested = params["protocolVersion"]
        self._is_initialized = True
        return {
            "protocolVersion": requested if requested in EARLIER else EARLIER[-1],
            "capabilities": self._capabilities(),
            "serverInfo": INFO,
            "instructions": self._methods.instructions,
        }

    async def _discover(self, _: Client, __: Params) -> Result:
        return {
            "supportedVersions": list(LATER),
            "capabilities": self._capabilities(),
            "instructions": self._methods.instructions,
        }

    def _capabilities(self) -> dict[str, Any]:
        """Return the server's capabilities; later versions have no `listChanged` per list."""
        has_resources = "resources/list" in self._methods.by_name
        changes = {"listChanged": bool(self._is_later) and has_resources}
        capabilities: dict[str, Any] = {"completions": {}, "logging": {}, "prompts": changes, "tools": changes}
        return capabilities | ({"resources": {**changes, "subscribe": True}} if has_resources else {})


class _Request:
    """A request from the client of a session; once it `is_answered`, it is too late to cancel it."""

    task: asyncio.Task[None]

    def __init__(self, session: McpSession, id: Id, *, is_endless: bool = False) -> None:
        self.connection = session
        self.request_id = id
        self.ending = session.ending
        self.traceparent = None  # there are no headers
        self.is_answered = False
        self.is_endless = is_endless

    async def notify(self, method: str, params: dict[str, Any], *, is_of_request: bool = False) -> None:
        await self.connection.notify(method, params)


async def _raise(error: Exception) -> None:
    raise error
