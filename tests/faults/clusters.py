"""Groups of real servers on loopback: a cluster, and a replicated master with its sentinels."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from scratchbus import Bus
from tests.faults.servers import Server, embedded_binary, free_port
from tests.waiting import eventually

MASTERS = 3
QUICK_MS, CALM_MS = 1_000, 5_000
"""How long a node may be silent before its replica takes over: while a test kills one, and otherwise.

On a busy machine a node may stall for a second, which must not cause a failover.
"""
SLOTS = 16_384
MASTER_NAME = "scratch"
_DURABLE = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
}


def ask(server: Server, *command: Any) -> Any:
    """Send one command to a server."""
    with server.client() as client:
        return client.execute_command(*command)


def role(server: Server) -> dict[str, Any]:
    """Return a server's INFO replication."""
    with server.client() as client:
        return dict(client.info("replication"))


class Group:
    """Servers that are started and stopped together."""

    def __init__(self) -> None:
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        try:
            self._start()
            for server in self.servers:
                eventually(server.answers)
            self._join()
            eventually(self.is_whole)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all servers and remove their data."""
        for server in self.servers:
            server.close()

    def _add(self, **config: str) -> None:
        port = str(free_port())
        self.servers.append(Server(embedded_binary(), tcp=True, port=port, **_DURABLE, **config).start(wait=False))

    def _start(self) -> None: ...

    def _join(self) -> None: ...

    def is_whole(self) -> bool:
        """Return whether all servers run in their intended roles."""
        try:
            return self._is_whole()
        except (RedisError, OSError):
            return False

    def _is_whole(self) -> bool:
        raise NotImplementedError

    def restart(self, server: Server) -> None:
        """Start a killed server, and wait until the group is whole again."""
        server.start()
        eventually(self.is_whole)


class Cluster(Group):
    """A cluster of masters, by default three, each with a replica by default."""

    def __init__(self, masters: int = MASTERS, *, has_replicas: bool = True, **config: str) -> None:
        super().__init__()
        self._masters, self._has_replicas = masters, has_replicas
        self._config = {
            "cluster-enabled": "yes", "cluster-node-timeout": str(QUICK_MS), "cluster-allow-replica-migration": "no",
            "cluster-replica-validity-factor": "0", "repl-ping-replica-period": "1", **config,
        }  # fmt: skip

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.masters)

    @property
    def masters(self) -> list[Server]:
        """The servers that were masters at the beginning."""
        return self.servers[: self._masters]

    def __enter__(self) -> Self:
        super().__enter__()
        self._wait_for_nodes(CALM_MS)
        return self

    @contextmanager
    def killing(self, server: Server) -> Iterator[None]:
        """Kill a server while the block runs; its replica takes over soon."""
        self._wait_for_nodes(QUICK_MS)
        server.kill()
        try:
            yield
        finally:
            self.restart(server)
            self._wait_for_nodes(CALM_MS)

    def _wait_for_nodes(self, ms: int) -> None:
        for server in self.servers:
            ask(server, "CONFIG", "SET", "cluster-node-timeout", ms)

    def _start(self) -> None:
        for _ in range(self._masters * (1 + self._has_replicas)):
            self._add(**self._config, **{"cluster-port": str(free_port())})

    def _join(self) -> None:
        first, bounds = self.servers[0], [SLOTS * number // self._masters for number in range(self._masters + 1)]
        for number, server in enumerate(self.servers):
            ask(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < self._masters:
                ask(server, "CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            if number:
                ask(server, "CLUSTER", "MEET", "127.0.0.1", first.port, first.config["cluster-port"])
        eventually(lambda: all(len(self._known(server)) == len(self.servers) for server in self.servers))
        for master, replica in zip(self.servers, self.servers[self._masters :], strict=False):
            ask(replica, "CLUSTER", "REPLICATE", id_of(master))

    @staticmethod
    def _known(server: Server) -> list[bytes]:
        nodes: list[bytes] = ask(server, "CLUSTER", "NODES").splitlines()
        return [node for node in nodes if b"handshake" not in node]

    def _is_whole(self) -> bool:
        roles, copies = [role(server) for server in self.servers], int(self._has_replicas)
        nodes = [self._slots(server, slot) for server in self.servers for slot in (0, 8000, 16_000)]
        return (
            all(ask(server, "CLUSTER INFO")["cluster_state"] == "ok" for server in self.servers)
            and all(len(each) == 1 + copies for each in nodes)
            and sum(each["role"] == "master" and each["connected_slaves"] == copies for each in roles) == self._masters
            and sum(each.get("master_link_status") == "up" for each in roles) == copies * self._masters
        )

    @staticmethod
    def _slots(server: Server, slot: int) -> Sequence[int]:
        """Return the ports of the master and the replicas of a slot, as a server knows them."""
        for first, last, *nodes in ask(server, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return [int(node[1]) for node in nodes]
        return []

    def slot_of(self, bus: Bus, page: str = "main") -> int:
        """Return the slot of a page's shard."""
        log = bus.core.log
        return key_slot(log.keys(log.shard(page)).log.encode())

    def master_of(self, slot: int) -> Server:
        """Return the master of a slot, as known to a running server."""
        for server in self.servers:
            if server.process is not None and (ports := self._slots(server, slot)):
                return next(each for each in self.servers if each.port == ports[0])
        raise AssertionError(f"no server has slot {slot}")


def id_of(server: Server) -> str:
    """Return the node id of a server in a cluster."""
    return str(ask(server, "CLUSTER", "MYID").decode())


class Move:
    """A migration of a slot to the next master, key by key; leaving the block moves the remaining keys."""

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot
        self.source = cluster.master_of(slot)
        masters = [server for server in cluster.servers if role(server)["role"] == "master"]
        self.target = masters[(masters.index(self.source) + 1) % len(masters)]
        self._masters = masters

    def __enter__(self) -> Self:
        ask(self.target, "CLUSTER", "SETSLOT", self._slot, "IMPORTING", id_of(self.source))
        ask(self.source, "CLUSTER", "SETSLOT", self._slot, "MIGRATING", id_of(self.target))
        return self

    def keys(self, wanted: Callable[[str], bool]) -> None:
        """Move these keys."""
        for key in ask(self.source, "CLUSTER", "GETKEYSINSLOT", self._slot, 1000):
            if wanted(key.decode()):
                ask(self.source, "MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def refusals(self) -> int:
        """Return the number of TRYAGAIN errors."""
        with self.source.client() as client:
            stats = client.info("errorstats").get("errorstat_TRYAGAIN", {})
        return int(stats.get("count", 0))

    def __exit__(self, *exc: object) -> None:
        while ask(self.source, "CLUSTER", "COUNTKEYSINSLOT", self._slot):
            self.keys(lambda key: True)
        for server in [self.target, self.source, *self._masters]:
            ask(server, "CLUSTER", "SETSLOT", self._slot, "NODE", id_of(self.target))


class Watched(Group):
    """A master and its replica, watched by three sentinels."""

    def __init__(self, **config: str) -> None:
        super().__init__()
        self._config = {"repl-ping-replica-period": "1", **config}
        self.sentinels: list[Server] = []

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{places}/{MASTER_NAME}"

    def _start(self) -> None:
        for _ in range(2):
            self._add(**self._config)

    def _join(self) -> None:
        master, replica = self.servers
        replica.follow(master)
        for _ in range(3):
            self.sentinels.append(Sentinel(master))
        for sentinel in self.sentinels:
            eventually(sentinel.answers)

    def _is_whole(self) -> bool:
        roles = [role(server) for server in self.servers]
        return (
            sorted(each["role"] for each in roles) == ["master", "slave"]
            and any(each.get("master_link_status") == "up" for each in roles)
            and all(self._sees_all(sentinel) for sentinel in self.sentinels)
        )

    @staticmethod
    def _sees_all(sentinel: Server) -> bool:
        with sentinel.client() as client:
            state = client.sentinel_master(MASTER_NAME)
        return (state["num-other-sentinels"], state["num-slaves"], state["flags"]) == (2, 1, "master")

    @property
    def master(self) -> Server:
        """The server that the sentinels name."""
        _, port = ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
        return next(server for server in self.servers if server.port == int(port))

    @property
    def replica(self) -> Server:
        """The other server."""
        return next(server for server in self.servers if server is not self.master)

    def fail_over(self) -> None:
        """Have the sentinels promote the replica, as for maintenance: nothing is lost."""
        before = self.master

        def has_happened() -> bool:
            if self.master is before:
                with suppress(
                    ResponseError
                ):  # a failover is running or not possible yet; ask again in case one gave up
                    ask(self.sentinels[0], "SENTINEL", "FAILOVER", MASTER_NAME, "COORDINATED")
            return self.master is not before

        eventually(has_happened)

    def restart(self, server: Server) -> None:
        """Start a killed server as a replica; sentinels would take ten seconds to make it one."""
        server.start()
        server.follow(self.master)

    def close(self) -> None:
        """Stop all servers and remove their data."""
        super().close()
        for sentinel in self.sentinels:
            sentinel.close()


class Sentinel(Server):
    """A sentinel process."""

    def __init__(self, master: Server) -> None:
        super().__init__(embedded_binary(), tcp=True, port=str(free_port()))
        (self.directory / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\nunixsocket {self.socket}\ndir {self.directory}\n"
            f"sentinel monitor {MASTER_NAME} 127.0.0.1 {master.port} 2\n"
            f"sentinel down-after-milliseconds {MASTER_NAME} 1200\n"
            f"sentinel failover-timeout {MASTER_NAME} 3000\n"
        )
        self._run([self.binary, self.directory / "sentinel.conf", "--sentinel"])

    def _run(self, command: list[Path | str]) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
