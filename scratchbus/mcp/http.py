"""Serve any number of clients over HTTP, in a process of its own."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from os import _exit
from typing import Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from scratchbus.errors import SettingsError, shown

PATH: Final = "/mcp"
HOST: Final = "127.0.0.1"

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
            end = threading.Timer(GRACE, _exit, (0,))  # acknowledged writes are in the log, so nothing is lost
            end.daemon = True
            end.start()
            server.should_exit = True


def listen(where: str) -> tuple[socket.socket, str]:
    """Return a socket listening on PORT or HOST:PORT, and its URL. Raises SettingsError."""
    host, _, port = where.rpartition(":")
    host = host.strip("[]") or HOST
    if not port.isdecimal() or int(port) > 65535:
        raise SettingsError(
            f"http: {shown(where)} is not an address to listen on; write PORT or HOST:PORT (port 0 picks a free one)"
        )
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, int(port)), family=family)
    except OSError as problem:
        raise SettingsError(f"http: {where}: {problem.strerror or problem}; choose another host or port") from None
    shown_host = f"[{host}]" if ":" in host else host
    return listener, f"http://{shown_host}:{listener.getsockname()[1]}{PATH}"


def is_local(listener: socket.socket) -> bool:
    """Return whether only this machine can reach it."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback
