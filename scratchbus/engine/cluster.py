"""The master of a Redis Cluster that serves each shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.redirects import Address, Learning, Sending, Topology, is_lost
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.slots import hash_tag, slot_of


class Cluster(Topology):
    """The slots of a cluster as one of its nodes last reported them, with the moves seen since."""

    def __init__(self, seeds: Sequence[Address], bus: str) -> None:
        self._bus = bus
        self._seeds = self._nodes = list(seeds)
        self._suspect: Address | None = None
        self._slots: dict[int, int] = {}
        self._owners: dict[int, Address] = {}

    def address(self, shard: int) -> Address | None:
        """Return the master that has the shard's slot."""
        return self._owners.get(self.slot_of(shard))

    def slot_of(self, shard: int) -> int:
        """Return the slot of a shard."""
        slot = self._slots.get(shard)
        if slot is None:
            slot = self._slots[shard] = slot_of(hash_tag(self._bus, shard)[1:-1].encode())
        return slot

    def learn(self) -> Learning[None]:
        """Ask the nodes for the slots until one answers; the node that failed last is asked last."""
        last_problem: Exception | None = None
        for node in sorted(JITTER.sample(self._nodes, len(self._nodes)), key=lambda node: node == self._suspect):
            try:
                (rows,) = yield Sending(node, (("CLUSTER", "SLOTS"),))
            except (redis_errors.RedisError, OSError) as problem:
                is_busy = isinstance(problem, redis_errors.BusyLoadingError) or str(problem).startswith("BUSY ")
                if not is_busy and not is_lost(problem):
                    raise
                last_problem = problem
                continue
            self._store_slots(node, rows)
            return
        raise redis_errors.ConnectionError(str(last_problem))

    def _store_slots(self, node: Address, rows: list[list[Any]]) -> None:
        owners: dict[int, Address] = {}
        nodes: dict[Address, None] = {}
        for first, last, *servers in rows:
            addresses = [_address(server, node) for server in servers]
            owners |= dict.fromkeys(range(first, last + 1), addresses[0])
            nodes |= dict.fromkeys(addresses)
        self.has_answered = True
        self._owners = owners
        self._nodes = list(nodes | dict.fromkeys(self._seeds))

    def note(self, failure: Exception, address: Address | None) -> bool:
        """Record a slot that moved; forget all slots when a node fails. Return whether the failure is transient."""
        if isinstance(failure, redis_errors.MovedError):
            self._owners[failure.slot_id] = (failure.host or (address or ("",))[0], failure.port)
        elif not isinstance(failure, redis_errors.AskError | redis_errors.TryAgainError) and self.is_transient(failure):
            self._owners, self._suspect = {}, address
        return self.is_transient(failure)


def _address(server: list[Any], node: Address) -> Address:
    """Return the address of a node; one listed without a host is on the host of the node that was asked."""
    host = server[0].decode() if server[0] else ""
    return (host if host not in ("", "?") else node[0], server[1])
