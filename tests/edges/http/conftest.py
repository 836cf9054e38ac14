"""`scratchbus serve` in a process or a thread, and its clients."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import httpx2
import pytest
import uvicorn

from scratchbus import Bus, McpIdentity, McpTokens
from scratchbus.http.app import create_app
from scratchbus.http.callers import LocalUser
from scratchbus.http.guard import hosts_of
from scratchbus.http.main import configured
from scratchbus.http.server import Server
from tests import launcher
from tests.edges.conftest import ROOT
from tests.edges.http.answers import check_answer
from tests.waiting import PATIENCE


class Served(NamedTuple):
    """A running server of the bus at `engine`; `key` is the key of its user."""

    url: str
    key: str
    engine: str
    process: subprocess.Popen[str]

    @property
    def api(self) -> str:
        return f"{self.url}/api/v1"

    def client(self, secret: str | None = None, **more: Any) -> httpx2.Client:
        """Return a client of the API, with a secret as its token or else as the user who runs the tests."""
        headers = {**({} if secret is None else {"Authorization": f"Bearer {secret}"}), **more.pop("headers", {})}
        more = {"verify": False} | more  # without TLS: to load the certificates takes longer than most tests
        hooks = {"response": [check_answer]}
        return httpx2.Client(base_url=self.api, headers=headers, timeout=PATIENCE, event_hooks=hooks, **more)


class Tokens:
    """A tokens file, and the tokens in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = McpTokens(path)
        self.held: dict[str, str] = {}

    def add(self, name: str, *scopes: str, agent: str = "worker", seconds: float | None = None) -> str:
        """Add a token, which expires after `seconds` if they are given."""
        until = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        self.held[name] = self.file.add(name, McpIdentity.of(agent, kind="daemon"), until, scopes=scopes)
        return self.held[name]

    def without(self, scope: str) -> str:
        """Return a token with all scopes but one."""
        name = f"without-{scope}"
        others = ("read", "publish", "act", "admin", "memory")
        return self.held.get(name) or self.add(name, *(each for each in others if each != scope))


@contextmanager
def serving(engine: str, *options: str, **environment: str) -> Iterator[Served]:
    """Run a server until the block ends."""
    arguments = ["serve", "--listen", "0", "--no-open", "--url", engine, "--json", *options]
    process = subprocess.Popen(
        launcher.command("-m", "scratchbus.cli", *arguments),
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            line = process.stdout.readline()
            assert line, "the server did not start"
            started = json.loads(line)
            yield Served(started["url"], started["open"].partition("key=")[2], engine, process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served(embedded_url: str) -> Iterator[Served]:
    """A server of the user who runs the tests."""
    with serving(embedded_url) as running:
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    """A client of the user."""
    with served.client() as client:
        yield client


@pytest.fixture
def page() -> str:
    """The name of a page of the test's own."""
    return f"http-{token_hex(6)}"


@pytest.fixture
def bus(served: Served) -> Iterator[Bus]:
    """The served bus, opened beside the server."""
    with Bus.connect(served.engine, source="beside") as opened:
        yield opened


@contextmanager
def serving_here(engine: str, tls: ssl.SSLContext | None = None, **settings: str) -> Iterator[Served]:
    """Run a server in a thread of this process, so that a test can change its limits."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        callers = LocalUser("here")
        hosts = hosts_of("127.0.0.1", port, (), is_local=True, is_secure=tls is not None)
        server = InThread(configured(create_app(Server(callers, {"url": engine, **settings}, hosts)), tls=tls))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield Served(f"{'http' if tls is None else 'https'}://127.0.0.1:{port}", callers.key, engine, None)  # type: ignore[arg-type]
        finally:
            server.should_exit = True
            thread.join()


class InThread(uvicorn.Server):
    """A server that leaves signals to the tests."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals."""
        yield
