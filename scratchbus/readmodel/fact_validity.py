"""When facts are true: a fact of a relation with one value at a time ends when another one begins.

Nothing derived is stored. Such a fact is valid until another fact about the same subject begins, among the facts that
were known and not retracted then. So the order in which facts arrive does not matter, and earlier knowledge is read
from the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Span, SpanState
from scratchbus.domain.values import moment
from scratchbus.readmodel.fact_index import EVER, NOW, Edge, FactIndex, Names


class _Moment(NamedTuple):
    """The result of the facts about one subject that begin at the same time: the valid one, or the contested ones."""

    valid: int | None
    contested: Sequence[int] = ()


class FactValidity:
    """The facts of an index that were known at a position (seq) of its log, and when each is true.

    Entities have the names that they had until then.
    """

    def __init__(self, index: FactIndex, until: int = NOW) -> None:
        self._index, self._until = index, until
        self._same = index.same(until)
        self._moments: dict[tuple[int, str, int], _Moment] = {}
        self._followed = 0  # facts followed for this answer

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
        rows = [
            row
            for subject in self._decisive(edge) or (edge.subject,)
            for row in self._rows("subject", subject, edge.relation, "begins = ?", edge.begins)
        ]
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
        return self._standing(edge, at)[0]

    def _standing(self, edge: Edge, at: int) -> tuple[bool, Sequence[int]]:
        """Return whether a fact is true at a time, and the facts that contest it, if it would be true but for these."""
        if not (edge.seq <= self._until < edge.retracted and edge.begins <= at < edge.ends):
            return False, ()
        state, ends, _, against = self._judge(edge)
        if state == "contested" and not self._is_followed(edge, at):
            return False, against
        return state == "valid" and at < ends, ()

    def _is_followed(self, edge: Edge, at: int) -> bool:
        """Return whether a later fact, about the same subject and relation, has begun by a time."""
        begins = (self._begins(each, edge.relation, "begins <= ?", at, "DESC") for each in self._decisive(edge))
        return any(each != edge.begins for each in begins)

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
