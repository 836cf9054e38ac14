"""Import what test processes need, once, into the fork server."""

from __future__ import annotations

from tests.benchmarks import auditing, crowd, delivering, rebuilding
from tests.faults import archivers, consumers, importers, rebuilders, refuters, workers
from tests.faults.history import roles
from tests.preload import warm_up

__all__ = [
    "archivers", "auditing", "consumers", "crowd", "delivering", "importers", "rebuilders", "rebuilding", "refuters",
    "roles", "workers",
]  # fmt: skip

warm_up("scratchbus", but=[f"scratchbus.{name}" for name in ("cli", "daemon", "http", "mcp")])
