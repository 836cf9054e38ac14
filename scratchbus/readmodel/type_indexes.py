"""The indexes of a page by type: together they have all its observations."""

from __future__ import annotations

from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.raw_entries import text_of


def type_indexes(names: PageKeys, shard: int) -> Step[list[str]]:
    """Return the names of the sorted sets that have the observations of each type."""
    types = yield from ask(shard, "HKEYS", names.types)
    return [names.index("type", text_of(type)) for type in types]


def unlist(names: PageKeys, type: str) -> Command:
    """Return the command for a commit that removes a type from the list if none of its observations is left."""
    return ("UNLIST", names.types, type, names.index("type", type))
