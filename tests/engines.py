"""The engines that tests run on, and the fixtures that open a bus on one.

A test that uses `connect`, `bus` or `page` runs once per engine, each time on a new bus. The nearest `engines` marker
(on the test, else on its module) selects the engines:

- No marker: `embedded-4-shards`, the real engine, whose four shards cover everything that one does, and operations
  across shards. `make test-slow` also runs these tests on `memory`.
- `@pytest.mark.engines(*ALL)`: tests of decisions in Lua scripts, such as guards, claims, idempotency keys, room on a
  page and imports. A script may behave differently in the fake engine, in Valkey (here with four shards) and in Redis
  (with one). Only `make test-slow` runs them on the engines named by `slow`, such as `slow=("memory",)`.
- `@pytest.mark.engines(*ONE)`: tests of Python code that processes what it has read, such as archives, pages of the
  past, poison and verification, and tests with hundreds of events, for which the fake engine is several times slower.
- `@pytest.mark.engines("embedded")`, or other names: tests that need features of those engines.

All tests of a process share the engine of each name, including `memory`: each bus has its own name, and a new fake
engine would compile every script again. Tests in which hypothesis or a loop needs many buses open each with `new_bus`,
on the real engine. Servers start once per session, on unix sockets in temporary directories, and stop at its end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from redis import Redis

from scratchbus import Bus, Page
from scratchbus.engine.embedded.server import ensure_running, find_running, stop
from scratchbus.errors import BusClosed
from tests.clock import Clock, ProcessClock, hand_over
from tests.inspection import assert_sound, forget
from tests.waiting import eventually


@dataclass(frozen=True)
class Engine:
    """An engine to test on, and the number of shards of its buses."""

    url: str
    shards: int
    is_real: bool


_TOPOLOGIES = {
    "memory": ("memory", 1),
    "embedded": ("embedded", 1),
    "embedded-4-shards": ("embedded", 4),
    "system": ("system", 1),
}

ALL = ("memory", "embedded-4-shards", "system")
ONE = ("embedded-4-shards",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that needs an engine by its `engines` marker, or by the real and the fake engine."""
    if "topology" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("engines")
        names, slow = (*ONE, "memory"), ("memory",)
        if marker is not None:
            names, slow = marker.args, marker.kwargs.get("slow", ())
        engines = [_as_parameter(name, is_slow=name in slow) for name in names]
        metafunc.parametrize("topology", engines, scope="function", indirect=True)


def _as_parameter(name: str, *, is_slow: bool) -> Any:
    marks = [pytest.mark.slow] if is_slow else []
    if name != "memory":
        marks.append(pytest.mark.real)
    return pytest.param(_TOPOLOGIES[name], id=name, marks=marks)


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for unix sockets."""
    directory = Path(tempfile.mkdtemp(prefix="sb-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def embedded_url(short_directory: Path) -> Iterator[str]:
    directory = short_directory / "embedded"
    running = ensure_running(directory)
    try:
        yield f"embedded:{directory}"
    finally:
        try:
            stop(directory)
        finally:
            if find_running(directory) is not None:
                os.kill(running.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def system_url(short_directory: Path) -> Iterator[str]:
    """Start the machine's `redis-server`; skip the test if there is none, fail it in CI."""
    program = shutil.which("redis-server")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("redis-server is not installed; install it, as .ci/run does")
        pytest.skip("redis-server is not installed")
    socket = short_directory / "system.sock"
    process = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(short_directory)],
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: socket.exists() or process.poll() is not None)
        with Redis(unix_socket_path=str(socket)) as client:
            eventually(client.ping)
        yield f"unix://{socket}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def topology(request: pytest.FixtureRequest) -> tuple[str, int]:
    """The kind of engine that the test runs on, and its number of shards."""
    kind, shards = request.param
    return kind, shards


@pytest.fixture
def engine(request: pytest.FixtureRequest, topology: tuple[str, int]) -> Engine:
    kind, shards = topology
    url = "memory://tests" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    return Engine(url, shards, kind != "memory")


@pytest.fixture
def engine_url(engine: Engine) -> str:
    return engine.url


@pytest.fixture
def bus_name() -> str:
    """A unique name for a bus."""
    return f"test-{token_hex(6)}"


Connect = Callable[..., Bus]


@pytest.fixture
def connect(request: pytest.FixtureRequest, engine: Engine, bus_name: str) -> Iterator[Connect]:
    """Return a function that opens the test's bus, any number of times; check at the end that the bus is sound.

    A test that damages the log on purpose is marked `damages_the_log`.
    """
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path")  # so that it ends later: the bus may have an archive there
    opened: list[Bus] = []

    def new(source: str | None = "tester", **settings: Any) -> Bus:
        mine: dict[str, Any] = {"bus": bus_name, "shards": engine.shards}
        opened.append(Bus.connect(engine.url, source=source, **mine | settings))
        return opened[-1]

    yield new
    try:
        if opened and request.node.get_closest_marker("damages_the_log") is None:
            with _reopened(engine, opened[0]) as bus:
                assert_sound(bus)
    finally:
        for each in opened:
            with _reopened(engine, each) as bus:
                forget(bus)
            each.close()


@contextmanager
def _reopened(engine: Engine, bus: Bus) -> Iterator[Bus]:
    """Yield a bus, or open it again if the test has closed it."""
    try:
        bus.position()
        yield bus
    except BusClosed:
        with Bus.connect(engine.url, bus=bus.core.log.bus) as another:
            yield another


NewBus = Callable[..., AbstractContextManager[Bus]]


@pytest.fixture(scope="session")
def new_bus(embedded_url: str) -> NewBus:
    """Return a function that opens and deletes new buses on the real engine, which is faster than the fake one."""

    @contextmanager
    def new(**settings: Any) -> Iterator[Bus]:
        with Bus.connect(embedded_url, bus=f"test-{token_hex(6)}", source="tester", **settings) as bus:
            try:
                yield bus
            finally:
                forget(bus)

    return new


@pytest.fixture
def real_bus(embedded_url: str, bus_name: str) -> Iterator[Bus]:
    """A bus that other processes can open too."""
    with Bus.connect(embedded_url, bus=bus_name, source="tester") as bus:
        yield bus
        assert_sound(bus)
        forget(bus)


@pytest.fixture
def bus(connect: Connect) -> Bus:
    return connect()


@pytest.fixture
def page(bus: Bus) -> Page:
    return bus.page("main")


@pytest.fixture
def clock(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock for the engine, set by the test."""
    with Clock(engine.url) as clock:
        hand_over(monkeypatch)
        yield clock


@pytest.fixture
def process_clock(monkeypatch: pytest.MonkeyPatch) -> ProcessClock:
    """A clock for the leases of consumers in this process, advanced by the test."""
    clock = ProcessClock()
    clock.hand_over(monkeypatch)
    return clock
