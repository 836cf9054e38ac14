"""Serve any number of clients over HTTP, in a process of its own."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from scratchbus.daemon import exit_within

PATH: Final = "/mcp"

GRACE: Final = 0.8
"""Seconds after a signal until the process exits, even if clients are still reading."""


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are handled below


async def serve_http(
    app: AbstractAsyncContextManager[ASGIApp], listener: socket.socket, when_ready: Callable[[], None]
) -> None:
    """Serve an application at `PATH` until SIGTERM or SIGINT, also if one comes while the application starts."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks, app as endpoint:
            routed = Starlette(routes=[Route(PATH, endpoint)])
            config = uvicorn.Config(
                routed, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
            )
            server = _Uvicorn(config)
            tasks.start_soon(server.serve, [listener])
            when_ready()
            await anext(aiter(signals))
            exit_within(GRACE)
            server.should_exit = True
