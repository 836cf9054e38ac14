"""Servers and processes for tests of races and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.processes import Crew
from tests.faults.servers import Server, embedded_binary, system_binary


@pytest.fixture(scope="session")
def binary() -> Path:
    return embedded_binary()


@pytest.fixture(params=["embedded", "system"])
def each_binary(request: pytest.FixtureRequest) -> Path:
    """The binary of the embedded engine, and that of the system's redis-server if there is one."""
    if request.param == "embedded":
        return embedded_binary()
    found = system_binary()
    return found or pytest.skip("redis-server is not installed")


@pytest.fixture
def new_server(binary: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts servers, which are killed and removed at the end."""
    made: list[Server] = []

    def new(use: Path | None = None, *, tcp: bool = False, **config: str) -> Server:
        made.append(Server(use or binary, tcp=tcp, **config))
        return made[-1].start()

    yield new
    for server in made:
        server.close()


@pytest.fixture(scope="session")
def _running_server() -> Iterator[Server]:
    server = Server(embedded_binary(), tcp=True)
    yield server.start()
    server.close()


@pytest.fixture
def shared_server(_running_server: Server) -> Iterator[Server]:
    """A server shared by tests that do not disturb it, flushed after each, since KEYS scans everything."""
    yield _running_server
    with _running_server.client() as client:
        client.flushall()


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Processes of this test; those still running at the end are killed."""
    with Crew() as crew:
        yield crew
