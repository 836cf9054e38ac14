"""The metrics of requests, counted when they are answered, by route and status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scratchbus.daemon import counts

NO_ROUTE: Final = "none"
"""The route of requests that no route has, or that were refused before one was looked for."""


class Counted:
    """Counts the requests of an application, and how long each takes until its answer begins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        found: dict[str, str] = {}
        scope["found"] = found  # inner applications may get a copy of the scope

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                method, route = scope["method"], found.get("route", NO_ROUTE)
                counts.requests[method, route, str(message["status"])] += 1
                counts.request_took[method, route].add(perf_counter() - began)
            await send(message)

        await self._app(scope, receive, counted)


@contextmanager
def open_stream() -> Iterator[None]:
    """Count a stream of events to a client as open while the `with` lasts."""
    counts.open_streams += 1
    try:
        yield
    finally:
        counts.open_streams -= 1
