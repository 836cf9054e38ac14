"""Queries of the facts known at one position of the log: which are true at a time, and how they connect entities."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Neighbour, Span
from scratchbus.domain.relation_registry import SAME_AS, NamedRelation, Relation
from scratchbus.errors import TooLarge
from scratchbus.readmodel.fact_index import WHOLE, Edge
from scratchbus.readmodel.fact_paths import Links, path_between, path_from, walk
from scratchbus.readmodel.fact_validity import FactValidity

MAX_FOLLOWED: Final = 200_000
"""How many facts one answer may follow."""


class KnownFacts(FactValidity):
    """The facts of an index that were known at a position (seq) of its log, under the names of entities until then."""

    def find(
        self,
        at: int,
        subject: str | None = None,
        read: NamedRelation | None = None,
        object: str | None = None,
        limit: int | None = None,
        *,
        distinct: bool = False,
    ) -> list[Fact]:
        """Return the facts that are true at a time, the last asserted first; of a chain the nearest first.

        With `distinct`, return the last asserted of equal ones.
        """
        found = self._true_edges(at, subject, read, object, distinct=distinct)
        return [self._fact(edge.seq) for edge in islice(found, limit)]

    def find_and_count(self, at: int, subject: str | None, maximum: int) -> tuple[list[Fact], int]:
        """Return the first different facts that are true at a time, and how many there are in all."""
        found = list(self._true_edges(at, subject, None, None, distinct=True))
        return [self._fact(edge.seq) for edge in found[:maximum]], len(found)

    def find_with_contests(self, at: int, maximum: int) -> tuple[list[Fact], list[list[Fact]]]:
        """Return the last different facts that are true at a time, and the contests met among them."""
        found: dict[Hashable, int] = {}
        contests = dict[tuple[int, ...], None]()
        for edge in self._live("TRUE ORDER BY seq DESC"):
            if len(found) + len(contests) == maximum:
                break
            is_true, against = self._standing(edge, at)
            if is_true:
                found.setdefault(self._content(edge), edge.seq)
            elif against:
                contests[_contest(edge, against)] = None
        return [self._fact(seq) for seq in found.values()], self._facts_of(contests)

    def contests(
        self, at: int, subject: str, read: NamedRelation | None = None, named: str | None = None
    ) -> list[list[Fact]]:
        """Return the facts about a subject of which one would be true at a time if they did not contest each other.

        With `named`, only contests in which a fact names that entity.
        """
        start = self._index.entity(subject)
        if start is None:
            return []
        edges: Iterable[Edge] = ()
        if read is not None and read.is_inverse:
            edges = self._rows("object", start, read.relation.name, "is_dated")
        else:
            relations = self._index.relations.relations.values() if read is None else [read.relation]
            single = [relation for relation in relations if relation.is_single]
            edges = chain.from_iterable(self._candidates(at, start, relation, None) for relation in single)
        standings = ((edge, self._standing(edge, at)[1]) for edge in edges)
        found = self._facts_of({_contest(edge, against): None for edge, against in standings if against})
        return found if named is None else [contest for contest in found if self._is_named(named, contest)]

    def _is_named(self, name: str, facts: Iterable[Fact]) -> bool:
        """Return whether one of these facts is about the entity of a name, under any of its names."""
        numbers = map(self._index.entity, (name, *(each for fact in facts for each in (fact.subject, fact.object))))
        entity, *ends = (number if number is None else self._entity(number) for number in numbers)
        return entity is not None and entity in ends

    def _facts_of(self, contests: Iterable[tuple[int, ...]]) -> list[list[Fact]]:
        """Return the facts of each contest, the newest contest first."""
        return [[self._fact(seq) for seq in seqs] for seqs in sorted(contests, key=max, reverse=True)]

    def _true_edges(
        self, at: int, subject: str | None, read: NamedRelation | None, object: str | None, *, distinct: bool
    ) -> Iterator[Edge]:
        """Yield each fact that is true at a time, from one of its sides; with `distinct`, one of equal facts."""
        if read is not None and read.is_inverse:
            subject, object = object, subject
        start, end = (None if name is None else self._index.entity(name) for name in (subject, object))
        if (start is None and subject is not None) or (end is None and object is not None):
            return
        seen = set[Hashable]()
        for edge in self._find(at, start, read.relation if read is not None else None, end):
            key: Hashable = self._content(edge) if distinct else edge.seq
            if key not in seen and self._is_true(edge, at):
                seen.add(key)
                yield edge

    def _content(self, edge: Edge) -> tuple[str, int, int]:
        """Return what equal facts have in common: their relation and entities, in either order if it is symmetric."""
        if edge.relation == SAME_AS:
            ends = edge.subject, edge.object  # which are one entity
        else:
            ends = self._entity(edge.subject), self._entity(edge.object)
        return edge.relation, *(ends if edge.side == WHOLE or ends[0] < ends[1] else ends[::-1])

    def _find(self, at: int, start: int | None, relation: Relation | None, end: int | None) -> Iterator[Edge]:
        """Yield the candidate facts."""
        if relation is not None and relation.transitive and relation.name != SAME_AS:
            if start is not None:
                links = self._onward(at, "subject", relation.name)
                if end is not None:
                    return iter(path_from(self._entity(start), self._entity(end), links))
                return (each.edge for each in walk(self._entity(start), links))
            if end is not None:
                return (each.edge for each in walk(self._entity(end), self._onward(at, "object", relation.name)))
        found = self._candidates(at, start, relation, end)
        return found if end is None else (edge for edge in found if self._entity(edge.object) == self._entity(end))

    def _candidates(self, at: int, start: int | None, relation: Relation | None, end: int | None) -> Iterator[Edge]:
        name = relation.name if relation is not None else None
        if start is not None and relation is not None and relation.is_single:
            start_ms = self._begins(start, relation.name, "begins <= ?", at, "DESC")
            return iter(()) if start_ms is None else self._rows("subject", start, name, "begins = ?", start_ms)
        if start is not None:
            ends = () if end is None else self._names(end)
            condition = f"object IN ({','.join('?' * len(ends))})" if ends else ""
            return self._rows("subject", start, name, condition, *ends)
        if end is not None:
            return self._rows("object", end, name)
        if name is not None:
            return self._live("relation = ? ORDER BY seq DESC", name)
        return self._live("TRUE ORDER BY seq DESC")

    def contested_about(self, side: str, names: Iterable[str]) -> Iterator[Fact]:
        """Yield the contested facts that have one of these entities as their `subject` or `object`."""
        numbers = [number for name in names if (number := self._index.entity(name)) is not None]
        for entity in dict.fromkeys(map(self._entity, numbers)):
            for edge in self._rows(side, entity, None, "is_dated"):
                if self._judge(edge)[0] == "contested":
                    yield self._fact(edge.seq)

    def timeline(self, subject: str, read: NamedRelation, limit: int) -> list[Span]:
        """Return all facts about a subject and a relation, by when they begin; the last ones if there are many."""
        found = self._index.entity(subject)
        if found is None:
            return []
        column = "object" if read.is_inverse else "subject"
        order = "ORDER BY begins DESC, seq DESC LIMIT ?"
        rows = [
            (row.begins, row.seq)
            for name in self._names(found)
            for row in self._index.edges(
                f"{column} = ? AND relation = ? AND seq <= ? {order}", name, read.relation.name, self._until, limit
            )
        ]
        return [self.span(seq) for _, seq in sorted(set(rows))[-limit:]]

    # -- paths ---------------------------------------------------------------------------------------------------------

    def neighbours(self, entity: str, depth: int, at: int, limit: int | None) -> list[Neighbour]:
        """Return the entities within so many facts, the nearest first."""
        start = self._index.entity(entity)
        if start is None:
            return []
        return [
            Neighbour(entity=self._name(each.entity, each.edge), distance=each.distance, fact=self._fact(each.edge.seq))
            for each in islice(walk(self._entity(start), self._links(at), depth), limit)
        ]

    def path(self, one: str, other: str, at: int) -> list[Fact]:
        """Return the facts of a shortest path from one entity to another, in either direction; [] if there is none."""
        start, end = self._index.entity(one), self._index.entity(other)
        if start is None or end is None:
            return []
        return [self._fact(edge.seq) for edge in path_between(self._entity(start), self._entity(end), self._links(at))]

    def joined(self, first: str, second: str) -> tuple[list[Fact], list[Fact]]:
        """Return the facts by which two names are one entity: directly, and through other names."""
        start, end = self._index.entity(first), self._index.entity(second)
        if start is None or end is None:
            return [], []
        live = [row for name in self._names(start) for row in self._joins_of(name)]
        direct = {row.seq for row in live if {row.subject, row.object} == {start, end}}

        def links(entity: int) -> Iterator[tuple[int, Edge]]:
            return ((row.object, row) for row in self._joins_of(entity) if row.seq not in direct)

        through = path_between(start, end, links)
        return [self._fact(seq) for seq in sorted(direct)], [self._fact(edge.seq) for edge in through]

    def _joins_of(self, name: int) -> Iterator[Edge]:
        """Yield the live facts that join a name itself, not the names joined with it, with others."""
        return self._live("subject = ? AND relation = ?", name, SAME_AS)

    def _counted(self, edges: Iterator[Edge]) -> Iterator[Edge]:
        """Yield facts that are followed. Raises TooLarge after too many for one answer."""
        for edge in edges:
            self._followed += 1
            if self._followed > MAX_FOLLOWED:
                advice = "ask with a smaller depth, or about entities that are nearer to each other"
                raise TooLarge("depth", self._followed, MAX_FOLLOWED, "facts to follow", advice)
            yield edge

    def _links(self, at: int) -> Links:
        """Return the links from an entity along any relation, in both directions."""

        def links(entity: int) -> Iterator[tuple[int, Edge]]:
            for edge in self._counted(self._rows("subject", entity)):
                if edge.relation != SAME_AS and self._is_true(edge, at):
                    yield self._entity(edge.object), edge
            others = self._rows("object", entity, None, "side = ?", WHOLE)  # the rest have a mirror image
            for edge in self._counted(others):
                if self._is_true(edge, at):
                    yield self._entity(edge.subject), edge

        return links

    def _onward(self, at: int, column: str, relation: str) -> Links:
        """Return the links along one relation, from its subjects or from its objects."""

        def links(entity: int) -> Iterator[tuple[int, Edge]]:
            for edge in self._counted(self._rows(column, entity, relation)):
                if self._is_true(edge, at):
                    yield self._entity(edge.object if column == "subject" else edge.subject), edge

        return links

    def _name(self, entity: int, edge: Edge) -> str:
        """Return the name that an entity has in a fact."""
        fact = self._fact(edge.seq)
        number = self._index.entity(fact.object)
        return fact.object if number is not None and self._entity(number) == entity else fact.subject


def _contest(edge: Edge, against: Iterable[int]) -> tuple[int, ...]:
    """Return the facts of a contest, the first asserted first, given one of them and its rivals."""
    return tuple(sorted((edge.seq, *against)))
