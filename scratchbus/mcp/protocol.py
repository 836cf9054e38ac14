"""The protocol as the server's methods see it, independent of the transport: its messages are JSON values.

The SDK carries it over HTTP (`sdk_server.py`), `json_rpc.py` over standard input and output: there clients wait for the
server to start, and importing the SDK takes longer than the rest of the start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

Params = Mapping[str, Any]
Result = dict[str, Any]

EARLIER: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of the protocol that begin with `initialize`."""

LATER: Final = ("2026-07-28",)
"""The versions in which each request is self-contained."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
UNSUPPORTED_VERSION: Final = -32022

_META: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = f"{_META}protocolVersion"
CAPABILITIES_KEY: Final = f"{_META}clientCapabilities"
SERVER_KEY: Final = f"{_META}serverInfo"
LEVEL_KEY: Final = f"{_META}logLevel"
SUBSCRIPTION_KEY: Final = f"{_META}subscriptionId"


class ProtocolError(Exception):
    """A request is refused, with an error of the protocol instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @property
    def document(self) -> dict[str, Any]:
        """The error as a JSON value."""
        document = {"code": self.code, "message": str(self)}
        return document if self.data is None else {**document, "data": self.data}


def has_version(params: Params) -> bool:
    """Return whether a request states its protocol version."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def check_version(method: str, params: Params) -> None:
    """Raise ProtocolError unless a request states a later version and the client's capabilities."""
    meta = params.get("_meta")
    supported = {"supported": list(LATER)}
    if method == "initialize":
        data = {**supported, "requested": params.get("protocolVersion")}
        raise ProtocolError(UNSUPPORTED_VERSION, f"this connection speaks {LATER[-1]}, without initialize", data)
    if not isinstance(meta, dict) or not (VERSION_KEY in meta and CAPABILITIES_KEY in meta):
        raise ProtocolError(INVALID_PARAMS, f"{method}: params._meta needs {VERSION_KEY} and {CAPABILITIES_KEY}")
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"{method}: {VERSION_KEY} is not a text")
    if version not in LATER:
        raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", {**supported, "requested": version})


class Client(Protocol):
    """Who sent a request: the connection it came over, and its id."""

    @property
    def connection(self) -> object:
        """The connection: the same, weakly referenceable object for all its requests."""

    @property
    def request_id(self) -> str | int | None:
        """The id of the request."""

    @property
    def ending(self) -> AsyncExitStack:
        """The callbacks to run when the connection ends."""

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context in the headers of the request, if it has any."""

    async def notify(self, method: str, params: dict[str, Any], *, is_of_request: bool = False) -> None:
        """Send a notification; with `is_of_request`, on the stream of the request's answer."""


_CACHEABLE: Final = {
    "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read",
}  # fmt: skip
"""The methods whose results say how long they may be cached."""


def completed(method: str, result: Result) -> Result:
    """Return the result of a method in the form of the later protocol versions; clients may not cache it."""
    caching = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE else {}
    return {**result, **caching, "resultType": "complete"}


Method = Callable[[Client, Params], Awaitable[Result]]
"""A method of the server: it answers a request."""
