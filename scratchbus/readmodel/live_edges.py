"""The facts known at one position of the log and not retracted then, found by their entities."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Final

from scratchbus.readmodel.fact_index import Edge, FactIndex, Names

LIVE: Final = "seq <= ? AND retracted > ?"
"""The condition for a live edge; both values are the position (seq) in the log."""


class LiveEdges:
    """The edges of an index that were live at a position (seq) of its log, under all names of entities until then."""

    def __init__(self, index: FactIndex, until: int) -> None:
        self._index, self._until = index, until
        self._same = index.same(until)

    def _rows(
        self, column: str, entity: int, relation: str | None = None, condition: str = "", *values: object
    ) -> Iterator[Edge]:
        """Yield the live facts with an entity, under any of its names, on one side, the last asserted first."""
        given = [] if relation is None else [relation]
        where = f"{column} = ? {'AND relation = ?' if given else ''} AND {LIVE} {condition and f'AND {condition}'}"
        found = [
            self._index.edges(f"{where} ORDER BY seq DESC", name, *given, self._until, self._until, *values)
            for name in self._names(entity)
        ]
        return found[0] if len(found) == 1 else merge(*found, key=lambda edge: -edge.seq)

    def _names(self, entity: int) -> Names:
        return self._same.get(entity, (entity,))

    def _one(self, name: int) -> int:
        """Return the representative number of an entity, given the number of one of its names."""
        return self._names(name)[0]
