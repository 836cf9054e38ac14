"""The shared state of one open bus: its settings, its log, its registry, and its identity."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from scratchbus.domain.lifecycle import ARCHIVED
from scratchbus.domain.page_events import TypesChanged
from scratchbus.engine.queues import Queues
from scratchbus.engine.renewal import AsyncKeeper, Keeper
from scratchbus.engine.steps import Step, Within, ask, ask_all, batches
from scratchbus.errors import (
    EngineLoading,
    EngineUnreachable,
    InvalidInput,
    InvalidTransition,
    ScratchbusError,
    TypeInUse,
)
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.lag import end_of, in_ms
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.tail_readers import AsyncFeeds, Feeds
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.published_registries import UNPUBLISHED, Version, publish, read_published
from scratchbus.readmodel.queries import page_names
from scratchbus.settings import Settings, shipped
from scratchbus.telemetry.lazy import imported_on_first_use, once

if TYPE_CHECKING:
    from scratchbus.domain.registry import ObservationType, Registry
    from scratchbus.domain.relation_registry import RelationRegistry
    from scratchbus.projections import conversation, item_index, memory_index, notebook

with imported_on_first_use(__name__):
    from scratchbus.domain import registry_yaml
    from scratchbus.readmodel import fact_index, memory_cache, memory_kinds, registry_files

T = TypeVar("T")

TYPES = "types"
"""The subject on the system page whose last event is the registry in force."""

REGISTRY_AGE = 5.0
"""Seconds after which a process checks for a newer published registry."""

_PATIENCE = 1.0  # seconds


@dataclass
class Core:
    """An open bus, without its connections.

    `registry_checked` is when the published registry was last read, `registry_unreachable` when that failed on a
    cluster, both in monotonic seconds. `recalled` has, by page and subject, the last observation that answered a retry,
    and its last event then.
    `pick_hints` has, by what is picked, the hint of the last pick, if there was one; see `Appended`.
    """

    settings: Settings
    log: Log
    types_file: Path
    by: str
    instance: str = field(repr=False)
    fresh: Freshness
    queues: Queues = field(default_factory=Queues)
    registry_version: Version = UNPUBLISHED
    registry_checked: float = 0.0
    registry_unreachable: float = 0.0
    relations_version: Version = UNPUBLISHED
    relations_checked: float = 0.0
    recalled: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    pick_hints: dict[tuple[object, ...], str] = field(default_factory=dict)

    @once
    def registry(self) -> Registry:
        """The registry in use: the published one, or the one in the file, read on first use.

        A published one that another thread sets while this one reads the file is kept.
        """
        return registry_files.as_registry(self.types_file)

    @once
    def relations(self) -> RelationRegistry:
        """The relations in use: the published ones, or else those of the file. Raises RelationsError."""
        return registry_files.as_relations(self.settings.relations or shipped("relations.yaml"))

    @once
    def notebooks(self) -> memory_cache.MemoryCache[notebook.Notebook]:
        """The notes of sessions."""
        return memory_cache.MemoryCache(memory_kinds.NOTES)

    @once
    def preferences(self) -> memory_cache.MemoryCache[memory_index.PreferenceList]:
        """The preferences of scopes."""
        return memory_cache.MemoryCache(memory_kinds.PREFERENCES)

    @once
    def items(self) -> memory_cache.MemoryCache[item_index.ItemIndex]:
        """The items of stores."""
        return memory_cache.MemoryCache(memory_kinds.ITEMS)

    @once
    def facts(self) -> memory_cache.MemoryCache[fact_index.FactIndex]:
        """The facts of scopes."""
        return memory_cache.MemoryCache(fact_index.kind(self.relations))

    @once
    def conversations(self) -> memory_cache.MemoryCache[conversation.Conversation]:
        """The conversations of sessions."""
        return memory_cache.MemoryCache(memory_kinds.CONVERSATIONS)

    @once
    def directories(self) -> memory_cache.MemoryCache[memory_index.Directory]:
        """The files of sessions, and the texts of scopes."""
        return memory_cache.MemoryCache(memory_kinds.DIRECTORIES)

    @property
    def process(self) -> str:
        """The name under which this process holds leases."""
        return f"{self.by}@{socket.gethostname()}:{os.getpid()}"


class Host(Protocol):
    """The part of a bus that pages, memories, views, subscriptions, work and long-running loops use."""

    core: Core
    feeds: Feeds
    keeper: Keeper

    def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine. Raises EngineError, and BusClosed once the bus is closed."""
        ...


class AsyncHost(Protocol):
    """The same for an AsyncBus."""

    core: Core
    feeds: AsyncFeeds
    keeper: AsyncKeeper

    async def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine. Raises EngineError, and BusClosed once the bus is closed."""
        ...


def type_of(core: Core, name: str) -> Step[ObservationType]:
    """Return a type of the registry.

    Checks for a newer registry every few seconds, and at once if the type is unknown.
    """
    if name not in core.registry.types:
        yield from refresh_registry(core)
    elif time.monotonic() - core.registry_checked > REGISTRY_AGE:
        yield from check_registry(core)
    return core.registry.get(name)


def check_registry(core: Core) -> Step[None]:
    """Use the published registry if it is newer; on a cluster, keep the known one while shard 0 is not served."""
    yield from newer_registry(core)
    core.registry_checked = time.monotonic()


def refresh_registry(core: Core) -> Step[bool]:
    """Use the published registry if it is newer than the one in use; return whether it was."""
    version, text = yield from read_published(core.log, TYPES, core.registry_version)
    if text is not None:
        registry = registry_yaml.parse_registry(text, f"types (version {version.number})", is_published=True)
        core.registry, core.registry_version = registry, version
    core.registry_checked = time.monotonic()
    return text is not None


def newer_registry(core: Core) -> Step[bool]:
    """Use the published registry if it is newer; return whether it was. On a cluster, see `read_if_served`."""
    return bool((yield from read_if_served(core, refresh_registry(core))))


def read_if_served(core: Core, read: Step[T]) -> Step[T | None]:
    """Return what a conversation reads of shard 0, which has the registries.

    On a cluster, where the other shards may still be served, wait for a second at most, and after that not again for a
    few seconds: return None. Elsewhere this raises EngineError, as everything else would.
    """
    if not core.log.is_spread:
        return (yield from read)
    if time.monotonic() - core.registry_unreachable < REGISTRY_AGE:
        return None
    try:
        return cast(T, (yield Within(_PATIENCE, read)))
    except (EngineUnreachable, EngineLoading, TimeoutError):
        core.registry_unreachable = time.monotonic()
        return None


def by_newest_registry(core: Core, change: Callable[[], Step[T]]) -> Step[T]:
    """Make a change; if it is refused, make it again should there be a newer registry, which may allow it."""
    try:
        return (yield from change())
    except (InvalidInput, InvalidTransition) as error:
        is_newer = False
        if not (isinstance(error, InvalidTransition) and error.from_status == ARCHIVED):  # final in any lifecycle
            with suppress(ScratchbusError):
                is_newer = yield from newer_registry(core)
        if not is_newer:
            raise
    return (yield from change())


def push_registry(core: Core, registry: Registry, event_id: str | None, expected_version: int | None) -> Step[bool]:
    """Publish a registry to the bus; return whether it changed anything.

    Raises TypeInUse if a type is removed, or gets another lifecycle, while an observation of it is open, and
    VersionConflict if someone else has published meanwhile, or since the expected version. A retry with the same event
    id gets the first answer.
    """

    def check(current: str | None) -> Step[None]:
        before = core.registry
        if current is not None:
            before = registry_yaml.parse_registry(current, TYPES, is_published=True)
        for name in registry.changes_from(before).needs_none_open:
            count = yield from count_open(core.log, name)
            if count:
                raise TypeInUse(name, count)

    event = TypesChanged(page=SYSTEM_PAGE, subject=TYPES, by=core.by, text=registry.text)
    has_changed, version = yield from publish(core.log, event, event_id, expected_version, check)
    if version is not None:
        core.registry, core.registry_version = registry, version
    return has_changed


def count_open(log: Log, type_name: str) -> Step[int]:
    """Count the open observations of a type on all pages, without those that have expired."""
    count = 0
    for shard in range(log.shards):
        keys = log.keys(shard)
        tail, clock = yield from ask_all(shard, [("GET", keys.tail), ("TIME",)])
        now = max(in_ms(clock), end_of(tail, shard).ms)
        for page in (yield from page_names(keys)):
            ids = yield from ask(shard, "ZRANGE", keys.open(page), 0, -1)
            for batch in batches(ids, 1_000):
                rows = yield from ask(shard, "HMGET", keys.heads(page), *batch)
                heads = filter(None, map(Head.readable, rows))
                count += sum(head.type == type_name and not 0 < head.expires <= now for head in heads)
    return count
