"""The facts known at one position of the log: when each is true, and how they connect entities.

Nothing derived is stored. A fact of a relation with one value at a time is valid until another fact about the same
subject begins, among the facts that were known and not retracted then. So the order in which facts arrive does not
matter, and earlier knowledge is read from the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Neighbour, Span, SpanState
from scratchbus.domain.relation_registry import SAME_AS, NamedRelation, Relation
from scratchbus.domain.values import moment
from scratchbus.readmodel.fact_index import EVER, NOW, WHOLE, Edge, FactIndex, Names
from scratchbus.readmodel.fact_paths import Followed, Links, path_between, path_from, walk


class _Moment(NamedTuple):
    """The result of the facts about one subject that begin at the same time: the valid one, or the contested ones."""

    valid: int | None
    contested: Sequence[int] = ()


class KnownFacts:
    """The facts of an index that were known at a position (seq) of its log, under the names of entities until then."""

    def __init__(self, index: FactIndex, until: int = NOW) -> None:
        self._index, self._until = index, until
        self._same = index.same(until)
        self._moments: dict[tuple[int, str, int], _Moment] = {}
        self._followed = Followed()

    def now(self, at: int | None = None) -> int:
        """Return a time (ms), by default now: by this machine's clock, or the newest event if that is later."""
        return max(time.time_ns() // 1_000_000, self._index.newest) if at is None else at

    def facts(self, ids: Iterable[str]) -> list[Fact]:
        """Return the facts with these ids, without unknown ones."""
        found = [fact for id in ids if (fact := self._index.fact(id)) is not None]
        return [self._as_known(fact) for fact in found if fact.added_seq <= self._until]

    def true_facts(self, ids: Iterable[str], at: int) -> list[Fact]:
        """Return the facts with these ids that are true at a time."""
        return [fact for fact in self.facts(ids) if self._is_true(self._edge(fact.added_seq), at)]

    # -- live edges ----------------------------------------------------------------------------------------------------

    def _live(self, where: str, *values: object) -> Iterator[Edge]:
        """Yield the edges known and not retracted that match a condition."""
        return self._index.edges(f"seq <= ? AND retracted > ? AND {where}", self._until, self._until, *values)

    def _rows(
        self, column: str, entity: int, relation: str | None = None, condition: str = "", *values: object
    ) -> Iterator[Edge]:
        """Yield the live facts with an entity, under any of its names, on one side, the last asserted first."""
        given = [] if relation is None else [relation]
        where = f"{column} = ? {'AND relation = ?' if given else ''} {condition and f'AND {condition}'}"
        found = [self._live(f"{where} ORDER BY seq DESC", name, *given, *values) for name in self._names(entity)]
        return found[0] if len(found) == 1 else merge(*found, key=lambda edge: -edge.seq)

    def _names(self, entity: int) -> Names:
        return self._same.get(entity, (entity,))

    def _entity(self, name: int) -> int:
        """Return the representative number of an entity, given the number of one of its names."""
        return self._names(name)[0]

    # -- validity ------------------------------------------------------------------------------------------------------

    def span(self, seq: int) -> Span:
        """Return the fact asserted at this seq, and when it is true."""
        edge = self._edge(seq)
        state, ends, ended_by, against = self._judge(edge)
        return Span(
            fact=self._fact(seq),
            begins=moment(edge.begins),
            ends=None if ends >= EVER else moment(ends),
            state=state,
            ended_by=None if ended_by is None else self._fact(ended_by).id,
            contested_by=[self._fact(other).id for other in against],
        )

    def at_same_moment(self, seq: int) -> list[Fact]:
        """Return the other facts about the same subject and relation that begin at the same time."""
        edge = self._edge(seq)
        rows = self._rows("subject", edge.subject, edge.relation, "begins = ?", edge.begins)
        return [self._fact(other) for other in dict.fromkeys(row.seq for row in rows) if other != seq]

    def _edge(self, seq: int) -> Edge:
        return next(self._index.edges("seq = ? ORDER BY side LIMIT 1", seq))

    def _fact(self, seq: int) -> Fact:
        """Return a fact as it was known."""
        return self._as_known(self._index.fact_at(seq))

    def _as_known(self, fact: Fact) -> Fact:
        if fact.retraction is not None and fact.retraction.seq > self._until:
            before = {"retraction": None, "version": 1, "ms": fact.added_ms, "seq": fact.added_seq}
            return fact.model_copy(update=before)
        return fact

    def _is_true(self, edge: Edge, at: int) -> bool:
        if not (edge.seq <= self._until < edge.retracted and edge.begins <= at < edge.ends):
            return False
        state, ends, *_ = self._judge(edge)
        return state == "valid" and at < ends

    def _judge(self, edge: Edge) -> tuple[SpanState, int, int | None, Sequence[int]]:
        """Return the state of a fact, when it ends, which fact ends it, and which ones contest it."""
        if edge.retracted <= self._until:
            return "retracted", edge.begins, None, ()
        ends, ended_by = edge.ends, None
        for subject in self._decisive(edge):
            moment = self._at_moment(subject, edge.relation, edge.begins)
            if edge.seq in moment.contested:
                return "contested", edge.begins, None, [seq for seq in moment.contested if seq != edge.seq]
            if edge.seq != moment.valid:
                return "superseded", edge.begins, None, ()
            next_begin = self._begins(subject, edge.relation, "begins > ?", edge.begins, "ASC")
            if next_begin is not None and next_begin < ends:
                following = self._at_moment(subject, edge.relation, next_begin)
                ends, ended_by = next_begin, following.contested[0] if following.valid is None else following.valid
        return "valid", ends, ended_by, ()

    def _decisive(self, edge: Edge) -> Sequence[int]:
        """Return the entities for which a fact's relation has one value at a time."""
        relation = self._index.relations.read(edge.relation).relation
        if not relation.is_single:
            return ()
        return (edge.subject, edge.object) if relation.symmetric else (edge.subject,)

    def _at_moment(self, subject: int, relation: str, begins: int) -> _Moment:
        key = self._entity(subject), relation, begins
        if key not in self._moments:
            self._moments[key] = self._decide(list(self._rows("subject", subject, relation, "begins = ?", begins)))
        return self._moments[key]

    def _decide(self, rows: list[Edge]) -> _Moment:
        """Judge facts that begin at the same time.

        Each source corrects itself: its last fact counts. Sources that gave exactly this time and name different
        objects contest each other; otherwise the last fact of all counts.
        """
        last_by_source: dict[str, Edge] = {}
        for row in sorted(rows, key=lambda row: row.seq):
            last_by_source[row.source] = row
        dated = [row for row in last_by_source.values() if row.is_dated]
        if len({self._entity(row.object) for row in dated}) > 1:
            return _Moment(None, [row.seq for row in dated])
        return _Moment(max((row.seq for row in last_by_source.values()), default=None))

    def _begins(self, subject: int, relation: str, condition: str, than: int, order: str) -> int | None:
        """Return the nearest time at which a fact about a subject begins."""
        where = f"subject = ? AND relation = ? AND {condition} ORDER BY begins {order} LIMIT 1"
        found = [row.begins for name in self._names(subject) for row in self._live(where, name, relation, than)]
        return (min if order == "ASC" else max)(found, default=None)

    # -- queries -------------------------------------------------------------------------------------------------------

    def find(
        self, at: int, subject: str | None, read: NamedRelation | None, object: str | None, limit: int | None
    ) -> list[Fact]:
        """Return the facts that are true at a time, the last asserted first; of a chain the nearest first."""
        return [self._fact(edge.seq) for edge in islice(self._true_edges(at, subject, read, object), limit)]

    def find_different(self, at: int, maximum: int | None) -> list[Fact]:
        """Return the facts that are true at a time; of identical ones, the last asserted."""
        return [
            self._fact(edge.seq) for edge in islice(self._different(self._true_edges(at, None, None, None)), maximum)
        ]

    def find_and_count(self, at: int, subject: str | None, maximum: int) -> tuple[list[Fact], int]:
        """Return the first different facts that are true at a time, and how many there are in all."""
        found = list(self._different(self._true_edges(at, subject, None, None)))
        return [self._fact(edge.seq) for edge in found[:maximum]], len(found)

    def _different(self, edges: Iterable[Edge]) -> Iterator[Edge]:
        """Yield the edges that differ from all before them."""
        seen = set[tuple[str, int, int]]()
        for edge in edges:
            ends = self._entity(edge.subject), self._entity(edge.object)
            left, right = sorted(ends) if edge.side != WHOLE else ends
            if edge.relation == SAME_AS:
                left, right = sorted((edge.subject, edge.object))
            if (edge.relation, left, right) not in seen:
                seen.add((edge.relation, left, right))
                yield edge

    def _true_edges(
        self, at: int, subject: str | None, read: NamedRelation | None, object: str | None
    ) -> Iterator[Edge]:
        """Yield each fact that is true at a time, from one of its sides."""
        if read is not None and read.is_inverse:
            subject, object = object, subject
        start, end = (None if name is None else self._index.entity(name) for name in (subject, object))
        if (start is None and subject is not None) or (end is None and object is not None):
            return
        seen = set[int]()
        for edge in self._find(at, start, read.relation if read is not None else None, end):
            if edge.seq not in seen and self._is_true(edge, at):
                seen.add(edge.seq)
                yield edge

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

    def _links(self, at: int) -> Links:
        """Return the links from an entity along any relation, in both directions."""

        def links(entity: int) -> Iterator[tuple[int, Edge]]:
            for edge in self._followed.each(self._rows("subject", entity)):
                if edge.relation != SAME_AS and self._is_true(edge, at):
                    yield self._entity(edge.object), edge
            others = self._rows("object", entity, None, "side = ?", WHOLE)  # the rest have a mirror image
            for edge in self._followed.each(others):
                if self._is_true(edge, at):
                    yield self._entity(edge.subject), edge

        return links

    def _onward(self, at: int, column: str, relation: str | None) -> Links:
        """Return the links along one relation, from its subjects or from its objects."""

        def links(entity: int) -> Iterator[tuple[int, Edge]]:
            for edge in self._followed.each(self._rows(column, entity, relation)):
                if self._is_true(edge, at):
                    yield self._entity(edge.object if column == "subject" else edge.subject), edge

        return links

    def _name(self, entity: int, edge: Edge) -> str:
        """Return the name that an entity has in a fact."""
        fact = self._fact(edge.seq)
        number = self._index.entity(fact.object)
        return fact.object if number is not None and self._entity(number) == entity else fact.subject
