"""Servers that tests start, kill and restart."""

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
    """Return the server binary of the embedded engine."""
    return find_binary(None, Path()).path


def system_binary() -> Path | None:
    """Return the system's redis-server, or None."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


_WORKERS = 8


def _own_ports() -> Iterator[int]:
    """Yield the ports of this process in an endless cycle, in an order that does not depend on a test's seed.

    Workers of a test run have different ports, and no port is yielded twice before its server runs. The ports are below
    those that the system gives to clients, so a killed server gets its port again.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(10_000 + worker % _WORKERS, 22_000, _WORKERS))
    SystemRandom().shuffle(ports)
    return cycle(ports)


_ports = _own_ports()


def free_port() -> int:
    """Return a free port that the system does not give to clients."""
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
    """A server in its own directory, on a unix socket and, with `tcp`, on a loopback port."""

    def __init__(self, binary: Path, *, tcp: bool = False, **config: str) -> None:
        self.binary = binary
        self.directory = Path(tempfile.mkdtemp(prefix="scratchbus-"))  # short, since the path of a socket is limited
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
        """Start it, and wait until it answers."""
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
        """Return whether it answers; fail if it has ended."""
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
        """Kill it, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Make it hang, like a machine that swaps or is migrated."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def follow(self, master: Server | Relay) -> None:
        """Become a replica of another server, directly or through a relay, and wait until the link is up."""
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
