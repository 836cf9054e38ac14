"""Import what test processes need, once, into the fork server."""

from __future__ import annotations

from tests.benchmarks import audit, delivery, followers, rebuild
from tests.faults import archivers, consumers, importers, rebuilders, refuters, workers
from tests.faults.history import roles
from tests.preload import warm_up

__all__ = [
    "archivers", "audit", "consumers", "delivery", "followers", "importers", "rebuild", "rebuilders", "refuters",
    "roles", "workers",
]  # fmt: skip

warm_up("scratchbus", but=[f"scratchbus.{name}" for name in ("cli", "daemon", "http", "mcp")])
