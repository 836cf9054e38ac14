"""The protocol as the methods of the server know it, whatever carries it: its messages are JSON values.

The SDK carries it over HTTP (`sdk_server.py`), and `json_rpc.py` over standard input and output: clients wait for that
server to start, and importing the SDK takes longer than all else they wait for.
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
"""The versions in which each request stands for itself."""

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
        """The error as it is sent."""
        document = {"code": self.code, "message": str(self)}
        return document if self.data is None else {**document, "data": self.data}


class Client(Protocol):
    """Who sent a request: the connection it came over, and its id."""

    @property
    def connection(self) -> object:
        """The connection, which is the same object for all of its requests, and can be referred to weakly."""

    @property
    def request_id(self) -> str | int | None:
        """The id of the request."""

    @property
    def ending(self) -> AsyncExitStack:
        """What is to be done when the connection ends."""

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context in the headers of the request, if it has any."""

    async def notify(self, method: str, params: dict[str, Any], *, is_of_request: bool = False) -> None:
        """Send a notification; one that `is_of_request` goes where the answer to the request will go."""


_CACHEABLE: Final = {
    "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read",
}  # fmt: skip
"""The methods whose results say for how long they may be kept."""


def completed(method: str, result: Result) -> Result:
    """Return the result of a method in the form of the later protocol versions; clients may not cache it."""
    kept = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE else {}
    return {**result, **kept, "resultType": "complete"}


Method = Callable[[Client, Params], Awaitable[Result]]
"""A method of the server: what answers a request."""
