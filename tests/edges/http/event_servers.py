"""`scratchbus serve` processes over one engine, and clients that stream events from them."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import httpx2

from scratchbus import Bus
from tests import launcher
from tests.waiting import eventually

SHARDS = 4

CLIENT = httpx2.Client(timeout=60, verify=False, limits=httpx2.Limits(max_connections=None))  # loopback
atexit.register(CLIENT.close)


@dataclass
class Served:
    """A server, by the address of its API; `headers` go with each request, and `pid` is its process."""

    api: str
    process: subprocess.Popen[str]
    headers: dict[str, str] = field(default_factory=dict)
    pid: int = 0

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Send a request, with its body as JSON."""
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        return CLIENT.request(method, self.api + path, json=body, headers=self.headers | own)

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """Send a GET."""
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None) -> httpx2.Response:
        """Send a POST."""
        return self.request("POST", path, {} if body is None else body)

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        launcher.kill(self.process)


@dataclass
class ServedBus:
    """A bus on the real engine, and its servers."""

    url: str
    name: str
    bus: Bus

    @contextmanager
    def serve(self, *options: str, **headers: str) -> Iterator[Served]:
        """Run a server until the block ends."""
        command = launcher.command(
            "-m", "scratchbus.cli", "--url", self.url, "serve", "--listen", "0", "--no-open", "--json", *options
        )
        environment = os.environ | {"SCRATCHBUS_BUS": self.name, "SCRATCHBUS_SHARDS": str(SHARDS)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                line = process.stdout.readline()
                assert line, "the server did not start"
                started = json.loads(line)
                yield Served(f"{started['url']}/api/v1", process, headers, started["pid"])
            finally:
                process.kill()


@contextmanager
def open_bus(url: str) -> Iterator[ServedBus]:
    """Open a new bus."""
    name = f"test-{token_hex(6)}"
    with Bus.connect(url, bus=name, shards=SHARDS, source="tester") as bus:
        yield ServedBus(url, name, bus)


class Listener:
    """A client that streams events and, like a browser, remembers the last id."""

    def __init__(self, served: Served, query: str = "", last_id: str | None = None, accept: str = "text/event-stream"):
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.last_id = last_id
        self.is_over = False
        self.ended: Exception | None = None
        self._response: httpx2.Response | None = None
        headers = {"Accept": accept} | served.headers
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        self._thread = threading.Thread(target=self._listen, args=(served.api + "/events" + query, headers))
        self._thread.start()
        eventually(lambda: (self._response is not None and self.last_id is not None) or self.is_over)

    def _listen(self, url: str, headers: dict[str, str]) -> None:
        try:
            with CLIENT.stream("GET", url, headers=headers) as response:
                self._response = response
                response.raise_for_status()
                fields: dict[str, str] = {}
                for line in response.iter_lines():
                    if line:
                        name, _, value = line.partition(":")
                        fields[name] = value.removeprefix(" ")
                        continue
                    if "id" in fields:
                        self.last_id = fields["id"]
                    if "data" in fields:
                        self.events.append((fields["id"], fields["event"], json.loads(fields["data"])))
                    fields = {}
        except Exception as problem:  # the test judges it
            self.ended = problem
        finally:
            self.is_over = True

    @property
    def positions(self) -> list[str]:
        """The positions of the received events."""
        return [data["position"] for _, _, data in self.events]

    def response_header(self, header: str) -> str:
        """Return a header of the answer."""
        assert self._response is not None
        found: str = self._response.headers[header]
        return found

    def leave(self) -> None:
        """Close the connection, once there is one."""
        eventually(lambda: self._response is not None or self.is_over)
        if self._response is not None:
            stream = self._response.extensions["network_stream"]
            found: socket.socket = stream.get_extra_info("socket")
            found.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        assert not self._thread.is_alive()
