"""The HTTP API, against routes of the same shapes on FastAPI and uvicorn that do nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count

from tests import launcher
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.processes import resident
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import ROOM, ROOT, Sizes, Stage, catch_up, fill, given

OPEN = 100
LIMIT = 20
IDLE = 1_000

BUS = "serve"


def measure_serve(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare adding and reading over HTTP with routes that do nothing."""
    bus = stage.bus(BUS)
    fill(bus.page("seen"), OPEN)
    with ExitStack() as last:
        ours = last.enter_context(served(stage.url))
        theirs = last.enter_context(_empty())
        mine, other = (last.enter_context(Client(port)) for port, _ in (ours, theirs))
        numbers = count()
        read, path = f"pages/seen/active?limit={LIMIT}", "pages/added/observations"
        taken = interleave(
            sizes.rounds,
            Side("an empty FastAPI route: POST", sizes.reads, partial(other.post, f"/{path}", numbers, sizes.reads)),
            Side(
                "HTTP `POST` of an observation",
                sizes.reads,
                partial(mine.post, f"/api/v1/{path}", numbers, sizes.reads),
            ),
            Side("an empty FastAPI route: GET", sizes.reads, partial(other.get, f"/{read}", sizes.reads)),
            Side(
                f"HTTP `GET` active, {LIMIT} of {OPEN}",
                sizes.reads,
                partial(mine.get, f"/api/v1/{read}", sizes.reads),
                partial(catch_up, bus),  # as the projector of `scratchbus up` does
            ),
        )
        empty_post, post, empty_get, get = taken
        return [
            times(taken, post, empty_post, floor=Floor("ratio", "at most", 2.5)),
            times(taken, get, empty_get, floor=Floor("ratio", "at most", 1.5)),
            _memory(*ours),
        ]


def _memory(port: int, pid: int) -> Row:
    """Return the bytes of an idle connection."""
    with ExitStack() as last:
        clients = [last.enter_context(Client(port)) for _ in range(IDLE + 100)]
        for client in clients[:100]:
            client.get("/healthz", 1)
        before = resident(pid)
        for client in clients[100:]:
            client.get("/healthz", 1)
        grown = resident(pid) - before
    return Row(f"HTTP memory of an idle connection, of {IDLE:,}", "", "bytes", grown / IDLE)


@contextmanager
def served(url: str, bus: str = BUS) -> Iterator[tuple[int, int]]:
    """Serve a bus; yield the port and the pid of the server."""
    arguments = ("-m", "scratchbus.cli", "serve", "--listen", "0", "--no-open", "--json", "--bus", bus, "--url", url)
    environment = {**os.environ, "SCRATCHBUS_MAX_OBSERVATIONS": str(ROOM)}
    command = launcher.command(*arguments)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            started = json.loads(process.stdout.readline())
            yield int(started["url"].rpartition(":")[2]), started["pid"]
        finally:
            process.terminate()


@contextmanager
def _empty() -> Iterator[tuple[int, int]]:
    """Run the API that does nothing; yield its port and its pid."""
    command = launcher.command("-m", "tests.benchmarks.empty_api")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


class Client:
    """A client with minimal cost: one connection, and requests as bytes."""

    def __init__(self, port: int) -> None:
        self._host = f"Host: 127.0.0.1:{port}\r\n"
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def get(self, path: str, times: int) -> None:
        request = f"GET {path} HTTP/1.1\r\n{self._host}Accept: application/json\r\n\r\n".encode()
        for _ in range(times):
            self._exchange(request, b"200")

    def post(self, path: str, numbers: Iterator[int], times: int) -> None:
        for _ in range(times):
            body = json.dumps(given(next(numbers))).encode()
            head = f"POST {path} HTTP/1.1\r\n{self._host}Content-Type: application/json\r\n"
            self._exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, b"201")

    def _exchange(self, request: bytes, status: bytes) -> None:
        self._socket.sendall(request)
        answer = self._socket.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        if head[9:12] != status:
            raise RuntimeError(answer.decode())
        rest = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(body)
        while rest > 0:
            rest -= len(self._socket.recv(65536))
