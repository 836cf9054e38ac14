"""The statuses of the registry in use, and of those before it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from functools import lru_cache

from scratchbus.domain import registry_yaml
from scratchbus.domain.lifecycle import DEFAULT, Lifecycle, StatusClass
from scratchbus.domain.page_events import TypesChanged
from scratchbus.engine.steps import Step
from scratchbus.errors import RegistryError, ScratchbusError
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.readmodel import registry_files
from scratchbus.readmodel.history import history
from scratchbus.readmodel.scope import TYPES, Core, read_if_served

StatusClasses = dict[str, set[StatusClass]]
"""The classes that each status has in any lifecycle."""


def status_classes(core: Core) -> Step[StatusClasses | None]:
    """Return the statuses of the registry in use, and of all that were published; None if one cannot be read.

    The file of types counts as the one before these, and the lifecycle of removed types is the default one.
    """
    try:
        return (yield from read_if_served(core, _read(core)))
    except ScratchbusError:
        return None


def _read(core: Core) -> Step[StatusClasses]:
    lifecycles = [DEFAULT, *core.registry.all_lifecycles]
    with suppress(RegistryError):  # the file may be gone by now
        lifecycles += registry_files.as_registry(core.types_file).all_lifecycles
    for event in (yield from history(core.log, SYSTEM_PAGE, TYPES)):
        if isinstance(event, TypesChanged):
            lifecycles += _lifecycles_in(event.text)
    classes: StatusClasses = defaultdict(set)
    for lifecycle in lifecycles:
        for status, its_class in lifecycle.statuses.items():
            classes[status].add(its_class)
    return classes


@lru_cache(maxsize=4_096)
def _lifecycles_in(text: str) -> tuple[Lifecycle, ...]:
    return registry_yaml.parse_registry(text, TYPES, is_published=True).all_lifecycles
