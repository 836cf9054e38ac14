"""Servers that tests start, kill, and start again; none outlives its test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from scratchbus.engine.embedded.binary import find_binary
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.faults.relay import Relay

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


def embedded_binary() -> Path:
    """Return the server program that the embedded engine runs."""
    return find_binary(None, Path()).path


def system_binary() -> Path | None:
    """Return the system's own Redis, where there is one."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


_WORKERS = 8


def _own_ports() -> Iterator[int]:
    """Yield the ports of this process, again and again, in an order that no test's seed decides.

    No worker of a test run gets those of another, and none gets one twice before its server is there. No client's end
    of a connection is among them, so a killed server gets its port again.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(10_000 + worker % _WORKERS, 22_000, _WORKERS))
    SystemRandom().shuffle(ports)
    return cycle(ports)


_ports = _own_ports()


def free_port() -> int:
    """Return a port that is free, and not one that the system gives to clients."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Server:
    """A server in a directory of its own, on a unix socket, and on a loopback port if asked for."""

    def __init__(self, binary: Path, *, tcp: bool = False, **config: str) -> None:
        self.binary = binary
        self.directory = Path(tempfile.mkdtemp(prefix="scratchbus-"))  # short: the path of a socket may not be long
        self.socket = self.directory / "s"
        self.port = int(config.get("port", 0)) or (free_port() if tcp else 0)
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None
        self.password = config.get("requirepass")
        self.environment: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def tcp_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> Self:
        """Start it, and wait until it has loaded its data."""
        options = {
            "port": str(self.port), "bind": "127.0.0.1", "unixsocket": str(self.socket), "dir": str(self.directory),
            "save": "", "appendonly": "no", "daemonize": "no",
            "repl-diskless-sync": "no", "repl-diskless-load": "swapdb", "hz": "100", **self.config,
        }  # fmt: skip
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=os.environ | self.environment,
            )  # fmt: skip
        if wait:
            eventually(self.answers)
        return self

    def answers(self) -> bool:
        """Say whether it answers yet; fail when it has ended instead."""
        assert self.process.poll() is None, (self.directory / "server.log").read_text()
        try:
            with self.client() as client:
                return bool(client.ping())
        except (RedisError, OSError):
            return False

    def is_loading(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.info("persistence")["loading"])
        except (RedisError, OSError):
            return False

    def client(self) -> Redis:
        return Redis(
            unix_socket_path=str(self.socket),
            password=self.password,
            socket_timeout=10,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,
        )

    def kill(self) -> None:
        """End it as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Make it hang, as a machine does that swaps or is moved."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def follow(self, master: Server | Relay) -> None:
        """Become a replica of another, or of who is behind a relay, and wait until the link is up."""
        with self.client() as client:
            client.replicaof("127.0.0.1", master.port)
            eventually(lambda: client.info("replication").get("master_link_status") == "up")

    def promote(self) -> None:
        with self.client() as client:
            client.replicaof("NO", "ONE")

    def has_caught_up(self, master: Server) -> bool:
        with self.client() as mine, master.client() as its:
            offset = its.info("replication")["master_repl_offset"]
            return int(mine.info("replication").get("slave_repl_offset", -1)) >= int(offset)
