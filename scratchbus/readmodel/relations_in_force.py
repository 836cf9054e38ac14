"""The relations of facts in force: those published to the bus, else those of the file."""

from __future__ import annotations

import time

from scratchbus.domain.page_events import RelationsChanged
from scratchbus.domain.relation_registry import RelationRegistry, parse_relations
from scratchbus.engine.steps import Step
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.readmodel import fact_index
from scratchbus.readmodel.memory_cache import MemoryCache
from scratchbus.readmodel.published_registries import Version, publish, read_published
from scratchbus.readmodel.registry_files import as_relations
from scratchbus.readmodel.scope import REGISTRY_AGE, Core

SUBJECT = "relations"
"""The subject on the system page whose last event has the relations in force."""


def relations_for(core: Core, *names: object) -> Step[RelationRegistry]:
    """Return the relations.

    Checks for newer ones every few seconds, and at once if one of these names is unknown.
    """
    is_unknown = any(isinstance(name, str) and not core.relations.knows(name) for name in names)
    if is_unknown or time.monotonic() - core.relations_checked > REGISTRY_AGE:
        yield from relations_now(core)
    return core.relations


def relations_now(core: Core) -> Step[RelationRegistry]:
    """Return the relations, including those published until now; they are in use from here on."""
    version, text = yield from read_published(core.log, SUBJECT, core.relations_version)
    core.relations_checked = time.monotonic()
    if text is not None:
        _use(core, parse_relations(text, f"relations (version {version.number})"), version)
    return core.relations


def push_relations(core: Core, source: object, event_id: str | None, expected_version: int | None) -> Step[bool]:
    """Publish relations, or a file with them; return whether that changed anything.

    Raises RelationsError, VersionConflict.
    """
    relations = as_relations(source)
    event = RelationsChanged(page=SYSTEM_PAGE, subject=SUBJECT, by=core.by, text=relations.text)
    # with any relations: they decide how facts are read, not how they are stored
    has_changed, version = yield from publish(core.log, event, event_id, expected_version)
    if version is not None:
        _use(core, relations, version)
    return has_changed


def _use(core: Core, relations: RelationRegistry, version: Version) -> None:
    core.relations, core.relations_version = relations, version
    core.facts = MemoryCache(fact_index.kind(relations))  # the cached ones were read with the old relations
