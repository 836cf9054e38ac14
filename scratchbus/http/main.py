"""Run a server: listen, serve, end on a signal."""

from __future__ import annotations

import asyncio
import gc
import getpass
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from starlette.types import ASGIApp

import scratchbus
from scratchbus.daemon import StopSignal, exit_within, listen
from scratchbus.errors import InvalidSource, SettingsError, shown
from scratchbus.http.app import create_app
from scratchbus.http.callers import LocalUser, TokenHolders
from scratchbus.http.client_connections import Protocol
from scratchbus.http.guard import hosts_of
from scratchbus.http.server import Server

GRACE: Final = 1.0
"""Seconds after a signal until the process exits, even if clients are still reading."""

_NAP: Final = 0.1  # seconds between checks whether a server that has not started ever will


@dataclass(frozen=True)
class ServeOptions:
    """How to serve. `where` is PORT or HOST:PORT; `settings` are the arguments of `AsyncBus.connect`."""

    where: str
    settings: dict[str, Any]
    tokens: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    hosts: Sequence[str] = ()
    allow_private_webhooks: bool = False
    source: str | None = None


@dataclass(frozen=True)
class Serving:
    """Where a server listens. `key` is in the URL to open, unless tokens are needed."""

    url: str
    key: str | None = field(default=None, repr=False)

    @property
    def to_open(self) -> str:
        """The URL that a browser has to open."""
        return self.url if self.key is None else f"{self.url}/?key={self.key}"


def run(options: ServeOptions, when_ready: Callable[[Serving], None]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SettingsError, and InvalidInput for settings that no bus can have."""
    config, listener, serving = _prepared(options)

    async def signalled() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            await anext(aiter(signals))
        exit_within(GRACE)

    _run(config, listener, lambda: when_ready(serving), signalled)


@contextmanager
def serving_beside(options: ServeOptions) -> Iterator[Serving]:
    """Serve in a thread while the `with` lasts. Raises SettingsError, and RuntimeError if the server does not start."""
    config, listener, serving = _prepared(options)
    ready, stop = threading.Event(), StopSignal()

    async def stopped() -> None:
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        with stop.calling(lambda: loop.call_soon_threadsafe(is_over.set)):
            await is_over.wait()

    thread = threading.Thread(target=_run, args=(config, listener, ready.set, stopped), name="http", daemon=True)
    thread.start()
    try:
        while not ready.wait(_NAP):
            if not thread.is_alive():
                raise RuntimeError(f"the HTTP server at {serving.url} did not start; its log says why")
        yield serving
    finally:
        stop.set()
        thread.join(GRACE)


def _prepared(options: ServeOptions) -> tuple[uvicorn.Config, socket.socket, Serving]:
    is_secure = options.certificate is not None
    if options.certificate_key is not None and not is_secure:  # all would go unencrypted
        raise SettingsError(f"{options.certificate_key}: a key needs its certificate; give --cert too")
    scratchbus.AsyncBus.connect(**options.settings)  # not awaited: checks the URL and the settings
    listener = listen(options.where)
    callers = _callers(options, is_local=listener.is_local)
    hosts = hosts_of(listener.host, listener.port, options.hosts, is_local=listener.is_local, is_secure=is_secure)
    server = Server(callers, options.settings, hosts, options.allow_private_webhooks)
    tls = _tls(options) if is_secure else None
    config = configured(create_app(server), has_proxy=options.tokens is not None, tls=tls)
    url = listener.url("https" if is_secure else "http")
    return config, listener.socket, Serving(url, callers.key if isinstance(callers, LocalUser) else None)


def configured(app: ASGIApp, *, has_proxy: bool = False, tls: ssl.SSLContext | None = None) -> uvicorn.Config:
    """Return the uvicorn configuration of an application; with `has_proxy` it trusts a proxy on this machine."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # warnings are about what clients send
        access_log=False,
        server_header=False,
        proxy_headers=has_proxy,  # without tokens, the connection identifies the caller
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )


def _run(
    config: uvicorn.Config,
    listener: socket.socket,
    when_ready: Callable[[], None],
    wait_until_stopped: Callable[[], Awaitable[None]],
) -> None:
    async def serve() -> None:
        async with anyio.create_task_group() as tasks:
            server = _NotifyingServer(config, when_ready)
            tasks.start_soon(server.serve, [listener])
            await wait_until_stopped()
            server.should_exit = True
            server.stopped.set()

    anyio.run(serve, backend_options={"use_uvloop": find_spec("uvloop") is not None})


class _NotifyingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_ready = when_ready
        self.stopped = anyio.Event()

    async def main_loop(self) -> None:
        """Set the date of responses once a second, until `stopped`; the base class wakes up ten times as often."""
        while not await self.on_tick(0):
            with anyio.move_on_after(1):
                await self.stopped.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # so that collections skip the objects of the start
        self._when_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are handled below


def _callers(options: ServeOptions, *, is_local: bool) -> LocalUser | TokenHolders:
    if options.tokens is not None:
        tokens = scratchbus.McpTokens(options.tokens)
        tokens.check_any()
        return TokenHolders(tokens)
    if not is_local:
        raise SettingsError(
            f"{shown(options.where)} can be reached from other machines, and so needs tokens: give --tokens FILE, "
            "and add them with `scratchbus mcp token add`; or listen on 127.0.0.1"
        )
    return LocalUser(options.source or _user())


def _user() -> str:
    """Return the name of the current user, as a source."""
    try:
        return scratchbus.check_source(getpass.getuser(), "source")
    except (OSError, KeyError, InvalidSource):
        return "user"


def _tls(options: ServeOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(str(options.certificate), options.certificate_key and str(options.certificate_key))
    except (OSError, ssl.SSLError) as problem:
        raise SettingsError(f"{options.certificate}: {problem}; give PEM files with --cert and --cert-key") from None
    return context
