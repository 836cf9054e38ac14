"""Paths from one entity to others along facts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from scratchbus.readmodel.fact_index import Edge

Links = Callable[[int], Iterator[tuple[int, Edge]]]
"""Returns the facts that lead on from an entity, each with the entity that it leads to."""

_Before = dict[int, tuple[int, Edge]]
"""For each entity that a search has reached, the previous one and the fact between them."""


class Reached(NamedTuple):
    """A reachable entity, its distance in facts, the previous one, and the fact between the two."""

    entity: int
    distance: int
    before: int
    edge: Edge


def walk(start: int, links: Links, depth: int | None = None) -> Iterator[Reached]:
    """Yield each reachable entity, the nearest first; cycles end where they close."""
    visited, queue = {start}, deque([(start, 0)])
    while queue:
        entity, distance = queue.popleft()
        for other, edge in links(entity) if depth is None or distance < depth else ():
            if other not in visited:
                visited.add(other)
                queue.append((other, distance + 1))
                yield Reached(other, distance + 1, entity, edge)


def path_from(start: int, end: int, links: Links) -> list[Edge]:
    """Return the facts of a shortest path along links in one direction; [] if there is none."""
    before: _Before = {}
    for each in walk(start, links):
        before[each.entity] = each.before, each.edge
        if each.entity == end:
            return _path_back(before, end)[::-1]
    return []


def path_between(start: int, end: int, links: Links) -> list[Edge]:
    """Return the facts of a shortest path along links in both directions; [] if there is none.

    Searches from both ends, always a level of the smaller side: so an entity with very many neighbours is rarely
    expanded completely, as it would be in a recursive query.
    """
    before: tuple[_Before, _Before] = {}, {}  # from the start, and from the end
    levels = [[start], [end]]
    while start != end and all(levels):
        side = 0 if len(levels[0]) <= len(levels[1]) else 1
        visited, opposite, next_level = before[side], before[1 - side], list[int]()
        for entity in levels[side]:
            for other, edge in links(entity):
                if other in visited or other == (start, end)[side]:
                    continue
                visited[other] = entity, edge
                next_level.append(other)
                if other in opposite or other == (end, start)[side]:
                    return [*_path_back(before[0], other)[::-1], *_path_back(before[1], other)]
        levels[side] = next_level
    return []


def _path_back(before: _Before, at: int) -> list[Edge]:
    """Return the facts from an entity back to the start of a search."""
    facts: list[Edge] = []
    while at in before:
        at, edge = before[at]
        facts.append(edge)
    return facts
