"""What processes of tests need, loaded once into the server that they are forked off."""

from __future__ import annotations

import gc

from scratchbus.readmodel.registry_files import as_registry
from scratchbus.settings import shipped
from tests.benchmarks import auditing, crowd, delivering, rebuilding
from tests.faults import archivers, consumers, importers, rebuilders, refuters, workers
from tests.faults.history import roles

__all__ = [
    "archivers", "auditing", "consumers", "crowd", "delivering", "importers", "rebuilders", "rebuilding", "refuters",
    "roles", "workers",
]  # fmt: skip

as_registry(shipped("observation_types.yaml"))  # and JSON Schema with it
gc.collect()
gc.freeze()
