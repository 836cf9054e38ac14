"""Export the metrics and the health of a process over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from scratchbus.daemon.metrics import registry_of
from scratchbus.errors import EngineUnreachable, ScratchbusError, SettingsError
from scratchbus.readmodel.status import Status

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from scratchbus.bus import Bus

PATIENCE = 1.0
"""Seconds that a scrape waits for the engine; after that it is answered without the state of the bus."""

_UNAVAILABLE = "503 Service Unavailable"


class _SilentHandler(WSGIRequestHandler):
    """Logs no requests."""

    timeout = 10.0
    """Seconds that a client may take for its request; else idle ones would keep their threads."""

    def handle(self) -> None:
        """Handle a request, unless the client takes too long or goes away."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class Exporter:
    """Serves the metrics and the health of this process over HTTP until the process ends.

    `/metrics` is for Prometheus. `/healthz` answers while the process works, `/readyz` also checks that the engine
    answers. Port 0 picks a free one. Raises SettingsError if the port is not available.
    """

    def __init__(self, host: str, port: int) -> None:
        self._bus: Bus | None = None
        self._pending: Future[Status] | None = None
        self._lock = threading.Lock()
        self._metrics: WSGIApplication = make_wsgi_app(registry_of(self._status))
        self._started_at = time.monotonic()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            kind: type[WSGIServer] = type("_Server", (ThreadingWSGIServer,), {"address_family": family})
            server: WSGIServer = make_server(host, port, self._answer, kind, handler_class=_SilentHandler)
        except (OSError, UnicodeError) as problem:  # of a host that can be no name
            raise SettingsError(
                f"metrics on {host}:{port}: {getattr(problem, 'strerror', None) or problem};"
                " choose another port, 0 for a free one, or another host"
            ) from None
        threading.Thread(target=server.serve_forever, name="metrics server", daemon=True).start()
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"

    def watching(self, connect: Callable[[], Bus]) -> Callable[[], Bus]:
        """Return a function that connects, and report the state of the bus it last opened."""

        def connect_and_watch() -> Bus:
            self._bus = connect()
            return self._bus

        return connect_and_watch

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path in ("/metrics", "/"):
            return self._metrics(environ, start)
        status, document = {"/healthz": self._health, "/readyz": self._readiness}.get(path, _no_such_path)()
        start(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
        return [json.dumps(document).encode() + b"\n"]

    def _health(self) -> tuple[str, dict[str, Any]]:
        return "200 OK", {"status": "ok", "uptime_seconds": round(time.monotonic() - self._started_at, 3)}

    def _readiness(self) -> tuple[str, dict[str, Any]]:
        if self._bus is None:
            return _UNAVAILABLE, {"status": "waiting", "reason": "this process has not connected to the engine yet"}
        try:
            status = self._read(self._bus)
        except (TimeoutError, EngineUnreachable):
            return _UNAVAILABLE, {"status": "waiting", "reason": f"the engine did not answer within {PATIENCE:g} s"}
        except ScratchbusError as problem:
            return _UNAVAILABLE, {"status": "waiting", "reason": str(problem)}
        return "200 OK", {"status": "ok", "engine": f"{status.engine} {status.version}"}

    def _status(self) -> Status | None:
        """Return the status of the bus, or None if it cannot be read within PATIENCE."""
        if self._bus is None:
            return None
        try:
            return self._read(self._bus)
        except (TimeoutError, ScratchbusError):
            return None

    def _read(self, bus: Bus) -> Status:
        """Return the status of the bus. Simultaneous scrapes share one read.

        Raises TimeoutError if it takes longer than PATIENCE, else the errors of reading it.
        """
        with self._lock:
            if self._pending is None or self._pending.done():
                reading: Future[Status] = Future()
                threading.Thread(target=_read_status, args=(bus, reading), name="metrics", daemon=True).start()
                self._pending = reading  # once it is read: perhaps no thread could be started
            pending = self._pending
        return pending.result(PATIENCE)


def _read_status(bus: Bus, pending: Future[Status]) -> None:
    try:
        pending.set_result(bus.status())
    except Exception as problem:  # raised in the scrape
        pending.set_exception(problem)


def _no_such_path() -> tuple[str, dict[str, Any]]:
    return "404 Not Found", {"status": "not found", "paths": ["/metrics", "/healthz", "/readyz"]}
