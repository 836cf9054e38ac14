"""The indexes by type of a page: together they have all its observations."""

from __future__ import annotations

from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog.codec import text_of
from scratchbus.eventlog.keys import PageKeys


def type_indexes(names: PageKeys, shard: int) -> Step[list[str]]:
    """Return the names of the sorted sets that have the observations of each type."""
    types = yield from ask(shard, "HKEYS", names.types)
    return [names.index("type", text_of(type)) for type in types]
