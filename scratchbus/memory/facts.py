"""The facts of a scope."""

# Generated from facts_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.commands import contested_facts, fact_reads, facts, ingest
from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Extractor, Neighbour, Span, Why
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.tokens import TokenCounter, estimate_tokens
from scratchbus.domain.values import Moment, page_of_scope
from scratchbus.memory.page_memory import PageMemory, timetravel
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from scratchbus.timetravel import cut


class Facts(PageMemory):
    """The facts of a scope: how people and things are related, and during which time. Get them from `Bus.facts`.

    A fact is a triplet: a subject, a declared relation, and an object. Facts are asserted and retracted, never changed.
    Reads derive the rest: a new value of a one-valued relation ends the previous one from then on, in whatever order
    the two were asserted.

    `at` is the moment to ask about, by default now. With `known_at`, a position or a time, only facts known then count.
    Every write takes `event_id`, an id the caller chooses to make a retry safe. Bad arguments raise InvalidInput and
    change nothing; UnknownRelation names the nearest relation. Every read sees all writes acknowledged before it began.
    """

    _page_of = staticmethod(page_of_scope)

    def assert_fact(
        self,
        subject: str,
        relation: str,
        object: str,
        *,
        valid_at: Moment | None = None,
        invalid_at: Moment | None = None,
        confidence: float = 1.0,
        evidence: Sequence[str] = (),
        source_text: str | None = None,
        event_id: str | None = None,
    ) -> Fact:
        """Assert that a relation holds between a subject and an object, each of up to 256 characters.

        It is true from `valid_at`, by default now, until `invalid_at` at the latest. `evidence` are the ids of
        supporting observations: if one is refuted, the fact is retracted. `source_text` is the text it was taken from.
        If sources give different values for the same `valid_at`, none of them counts as true until all but one are
        retracted, and an observation asks for that; see `pending_review`.
        """
        return self._do(facts.assert_fact, locals())

    def retract(self, id: str, reason: str, *, event_id: str | None = None) -> Fact:
        """Retract a fact: from now on it counts as never having been true. Its history stays.

        Retracting it again changes nothing. Raises NotFound.
        """
        return self._do(facts.retract, locals())

    def query(
        self,
        subject: str | None = None,
        relation: str | None = None,
        object: str | None = None,
        *,
        at: Moment | None = None,
        known_at: timetravel.When | None = None,
        distinct: bool = False,
        limit: int | None = 100,
    ) -> list[Fact]:
        """Return the facts true at a moment, last asserted first.

        With a subject or an object and a transitive relation, follow the relation, and return one fact for each entity
        that it leads to, the nearest first.
        A relation may be given by its inverse. The names of entities ignore case. With `distinct`, a fact that was
        asserted several times is returned once, as last asserted. Raises InvalidPosition.
        """
        until = self._until(known_at)
        return self._do(fact_reads.query, subject, relation, object, at, until, limit, distinct=distinct)

    def neighbours(
        self,
        entity: str,
        depth: int = 1,
        *,
        at: Moment | None = None,
        known_at: timetravel.When | None = None,
        limit: int | None = 100,
    ) -> list[Neighbour]:
        """Return the entities connected with an entity, up to this many facts away (20 at most), nearest first.

        Raises TooLarge when more than 200,000 facts would have to be followed.
        """
        return self._do(fact_reads.neighbours, entity, depth, at, self._until(known_at), limit)

    def path(self, a: str, b: str, *, at: Moment | None = None, known_at: timetravel.When | None = None) -> list[Fact]:
        """Return the facts that connect two entities in the fewest steps, from the first to the second.

        Facts count in both directions. The list is empty when nothing connects the two. Raises TooLarge as
        `neighbours` does.
        """
        return self._do(fact_reads.path, a, b, at, self._until(known_at))

    def timeline(
        self, subject: str, relation: str, *, known_at: timetravel.When | None = None, limit: int = 1_000
    ) -> list[Span]:
        """Return every fact about a subject and a relation with the time it is true, by start time.

        This includes ended, contested and retracted facts. With more than `limit`, return the last ones.
        """
        return self._do(fact_reads.timeline, subject, relation, self._until(known_at), limit)

    def contested(
        self,
        subject: str,
        relation: str | None = None,
        object: str | None = None,
        *,
        at: Moment | None = None,
        known_at: timetravel.When | None = None,
    ) -> list[list[Fact]]:
        """Return the facts about a subject that contest each other at a moment, newest contest first.

        Each contest has the facts of which one would be true if their sources agreed, first asserted first; `query`
        returns none of them. With an `object`, only contests in which one of the facts names it.
        """
        return self._do(fact_reads.contested, subject, relation, object, at, self._until(known_at))

    def why(self, fact: Fact | str, *, max_evidence: int | None = None) -> Why:
        """Return the origin of a fact: its source text, who asserted it and when, and its evidence.

        Pass the fact or its id. The answer also says whether it is valid, and what ended or contests it. With
        `max_evidence`, it reads only that many of the observations, and counts the others. Raises NotFound.
        """
        return self._do(fact_reads.why, facts.check_fact(fact), max_evidence)

    def same_as(
        self,
        a: str,
        b: str,
        *,
        evidence: Sequence[str] = (),
        source_text: str | None = None,
        event_id: str | None = None,
    ) -> Fact:
        """Declare two names to mean one entity, in every answer from now on; return the fact that records it."""
        return self._do(facts.same_as, a, b, locals())

    def not_same_as(
        self, a: str, b: str, *, reason: str = "they are not the same", event_id: str | None = None
    ) -> list[Fact]:
        """Undo `same_as`; return the facts that were retracted.

        Raises NotFound if no fact equates the two, Conflict if they are equal only through other names.
        """
        return self._do(facts.not_same_as, a, b, reason, event_id)

    def pending_review(self) -> list[Observation]:
        """Return the open observations that ask which contested fact is true; their `context` has the ids."""
        return self._do(contested_facts.pending_review)

    def ingest(
        self,
        text: str,
        extractor: Extractor | None = None,
        *,
        subject: str | None = None,
        valid_at: Moment | None = None,
        confidence: float = 1.0,
        evidence: Sequence[str] = (),
        event_id: str | None = None,
    ) -> list[Fact]:
        """Assert the triplets that an extractor finds in a text; either all of them or none, up to 1,000.

        An extractor is any function that takes the text and returns triplets: a `Triplet`, a tuple of three texts, or a
        mapping with these keys. The default one finds lines `A -> relation -> B` and, if a `subject` is given, lines
        `key: value` about it whose key is the name of a relation.
        """
        return self._do(ingest.ingest, locals())

    def render_triplets(
        self,
        budget: int,
        *,
        subject: str | None = None,
        at: Moment | None = None,
        known_at: timetravel.When | None = None,
        counter: TokenCounter = estimate_tokens,
    ) -> str:
        """Return the facts true at a moment as lines `A -> relation -> B`, within this many tokens.

        The last asserted come first, and the last line says how many are left out. Ended and contested facts are never
        included.
        """
        return self._do(fact_reads.render, budget, counter, subject, at, self._until(known_at))

    def _until(self, known_at: timetravel.When | None) -> Position | None:
        """Return the position up to which facts were known. Raises InvalidPosition."""
        if known_at is None:
            return None
        return (self._do(cut.cut_at, known_at)).position
