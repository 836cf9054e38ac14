"""What every operation of one open bus shares: its settings, its log, its registry, and who speaks."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from scratchbus.domain.checks import check_guards
from scratchbus.domain.digest import digest_of
from scratchbus.domain.events import TypesChanged
from scratchbus.domain.position import Position
from scratchbus.domain.registry import ObservationType, Registry
from scratchbus.engine.queues import Queues
from scratchbus.engine.renewal import AsyncKeeper, Keeper
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import TypeInUse, VersionConflict
from scratchbus.eventlog.append import Log, append
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.tail_readers import AsyncFeeds, Feeds
from scratchbus.eventlog.writes import Op, Write
from scratchbus.readmodel.history import known_events
from scratchbus.readmodel.notebooks import Notebooks
from scratchbus.readmodel.queries import Freshness, read_head
from scratchbus.settings import Settings
from scratchbus.telemetry.late import late, once

if TYPE_CHECKING:
    from scratchbus.domain import registry_yaml
    from scratchbus.readmodel import registry_files
else:
    registry_files = late("scratchbus.readmodel.registry_files")
    registry_yaml = late("scratchbus.domain.registry_yaml")

T = TypeVar("T")

_NEVER = -1  # no subject has this version

TYPES = "types"
"""The subject, on the system page, whose last event is the registry in force."""


REGISTRY_AGE = 5.0
"""Seconds after which a process looks whether someone published a newer registry."""


@dataclass
class Core:
    """An open bus, without its connections.

    `recalled` holds, by page and subject, the last observation that answered a retry, and the event that left it so.
    """

    settings: Settings
    log: Log
    types_file: Path
    by: str
    instance: str = field(repr=False)
    fresh: Freshness
    notebooks: Notebooks = field(default_factory=Notebooks)
    queues: Queues = field(default_factory=Queues)
    registry_version: int = 0
    registry_checked: float = 0.0
    recalled: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)

    @once
    def registry(self) -> Registry:
        """The registry in use: the one that was published, or the one in the file, read when it is first needed.

        A published one that another thread takes while this one reads the file stays.
        """
        return registry_files.as_registry(self.types_file)

    @property
    def process(self) -> str:
        """The name under which this process holds leases."""
        return f"{self.by}@{socket.gethostname()}:{os.getpid()}"


class Host(Protocol):
    """What everything built on a bus needs of it: pages, memories, views, subscriptions, work, long-running loops."""

    core: Core
    feeds: Feeds
    keeper: Keeper

    def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine. Raises EngineError, and BusClosed once the bus is closed."""
        ...

    def wait_for_events(self, behind: Mapping[int, Position], seconds: float = 0.5) -> bool:
        """Wait until a shard has an event after its position here; return whether one has."""
        ...


class AsyncHost(Protocol):
    """The same of an AsyncBus."""

    core: Core
    feeds: AsyncFeeds
    keeper: AsyncKeeper

    async def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine. Raises EngineError, and BusClosed once the bus is closed."""
        ...

    async def wait_for_events(self, behind: Mapping[int, Position], seconds: float = 0.5) -> bool:
        """Wait until a shard has an event after its position here; return whether one has."""
        ...


def type_of(core: Core, name: str) -> Step[ObservationType]:
    """Return a type of the registry.

    A newer registry is looked for every few seconds, and at once when the type is unknown.
    """
    kind = core.registry.types.get(name)
    if kind is None or time.monotonic() - core.registry_checked > REGISTRY_AGE:
        yield from refresh_registry(core)
        kind = core.registry.get(name)
    return kind


def refresh_registry(core: Core) -> Step[bool]:
    """Take the published registry if it is newer than the one in use; return whether it was."""
    head, registry = yield from _read_registry(core.log, core.registry_version)
    core.registry_checked = time.monotonic()
    if registry is None or head is None:
        return False
    core.registry, core.registry_version = registry, head.version
    return True


def _read_registry(log: Log, known: int = 0) -> Step[tuple[Head | None, Registry | None]]:
    """Return the head of the registry, and the published registry unless it is the known one."""
    head = yield from read_head(log, SYSTEM_PAGE, TYPES)
    if head is None or head.version == known:
        return head, None
    (event,) = yield from known_events(log, [head.event_position(0)])
    text = cast(TypesChanged, event).text
    return head, registry_yaml.parse_registry(text, f"types (version {head.version})", is_published=True)


def push_registry(core: Core, registry: Registry, event_id: str | None = None) -> Step[bool]:
    """Publish a registry to the bus; return whether it changed anything.

    Raises TypeInUse when a type goes, or gets another lifecycle, while an observation of it is open, and
    VersionConflict when someone else published meanwhile. A retry with the same event id is answered as the first.
    """
    check_guards(event_id)
    head, current = yield from _read_registry(core.log)
    old = current or core.registry
    digest = digest_of("push_types", registry.text) if event_id is not None else ""
    event = TypesChanged(id=event_id or new_event_id(), page=SYSTEM_PAGE, subject=TYPES, by=core.by, text=registry.text)
    if event_id is not None and (yield from _is_pushed(core.log, Write(event, Op.PUT, digest, version=_NEVER))):
        return True
    if current is not None and current.text == registry.text:
        return False
    for name in registry.changes_from(old).needs_none_open:
        count = yield from count_open(core.log, name)
        if count:
            raise TypeInUse(name, count)
    version = head.version if head else 0
    done = yield from append(core.log, SYSTEM_PAGE, [Write(event, Op.PUT, digest, version=version)])
    if done.written:
        core.registry, core.registry_version = registry, done.written[0].version
    return True


def _is_pushed(log: Log, write: Write) -> Step[bool]:
    """Return whether a retry has appended its event already. Raises EventIdReused."""
    try:
        yield from append(log, SYSTEM_PAGE, [write])
        return True
    except VersionConflict:
        return False


def count_open(log: Log, type_name: str) -> Step[int]:
    """Count the open observations of a type on all pages."""
    count = 0
    for shard in range(log.shards):
        keys = log.keys(shard)
        pages = yield from ask(shard, "HKEYS", keys.pages)
        for page in (row.decode() for row in pages):
            ids = yield from ask(shard, "ZRANGE", keys.open(page), 0, -1)
            for at in range(0, len(ids), 1000):
                (rows,) = yield from ask_all(shard, [("HMGET", keys.heads(page), *ids[at : at + 1000])])
                count += sum(head is not None and head.type == type_name for head in map(Head.readable, rows))
    return count
