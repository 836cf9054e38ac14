"""The facts of a scope."""

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.commands import fact_reads, facts, ingest
from scratchbus.commands.fact_text import render
from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Extractor, Neighbour, Span, Why
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.tokens import TokenCounter, estimate_tokens
from scratchbus.domain.values import Moment, page_of_scope
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.timetravel import When
from scratchbus.timetravel.cut import cut_at


class AsyncFacts:
    """The facts of a scope: who or what is how related, since when and until when. Get them from `AsyncBus.facts`.

    A fact is a triplet: a subject, a relation that is declared, and an object. Facts are asserted and retracted, never
    changed. What follows from them is read: a new value of a relation with one value at a time ends the one before it
    from then on, in whatever order the two were asserted.

    `at` is the moment that is asked about, by default now. With `known_at`, a position or a time, only what was known
    then counts. Every write takes `event_id`, an id of the caller's that makes a retry safe. Bad arguments raise
    InvalidInput, and nothing has changed then; UnknownRelation names the nearest relation. Every read sees all writes
    acknowledged before it began.
    """

    def __init__(self, bus: AsyncHost, scope: str) -> None:
        self._bus = bus
        self._page = page_of_scope(scope)

    async def assert_fact(
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

        It is true from `valid_at`, or else from now on, until `invalid_at` at most. `evidence` are the ids of
        observations that it rests on: if one is refuted, the fact is retracted. `source_text` is the text that says so.
        If sources give different values for the same `valid_at`, none of them counts as true until all but one are
        retracted, and an observation asks for that; see `pending_review`.
        """
        return await self._bus.converse(facts.assert_fact(self._bus.core, self._page, locals()))

    async def retract(self, id: str, reason: str, *, event_id: str | None = None) -> Fact:
        """Take a fact back: it is not true at any time, as far as is known from now on. Its history stays.

        A fact that is retracted already stays as it is. Raises NotFound.
        """
        return await self._bus.converse(facts.retract(self._bus.core, self._page, locals()))

    async def query(
        self,
        subject: str | None = None,
        relation: str | None = None,
        object: str | None = None,
        *,
        at: Moment | None = None,
        known_at: When | None = None,
        limit: int | None = 100,
    ) -> list[Fact]:
        """Return the facts that are true at a moment, the last asserted first.

        With a subject or an object and a transitive relation, also those that it leads on to, the nearest first. A
        relation may be given by its inverse. Capitals in the names of entities do not matter. Raises InvalidPosition.
        """
        until = await self._until(known_at)
        asked = subject, relation, object, at, until, limit
        return await self._bus.converse(fact_reads.query(self._bus.core, self._page, *asked))

    async def neighbours(
        self,
        entity: str,
        depth: int = 1,
        *,
        at: Moment | None = None,
        known_at: When | None = None,
        limit: int | None = 100,
    ) -> list[Neighbour]:
        """Return the entities that facts connect with one, up to so many facts away (20 at most), the nearest first.

        Raises TooLarge when more than 200,000 facts would have to be followed.
        """
        until = await self._until(known_at)
        asked = entity, depth, at, until, limit
        return await self._bus.converse(fact_reads.neighbours(self._bus.core, self._page, *asked))

    async def path(self, a: str, b: str, *, at: Moment | None = None, known_at: When | None = None) -> list[Fact]:
        """Return the facts that connect two entities in the fewest steps, from the first to the second.

        Facts count in both directions. The list is empty when nothing connects the two. Raises TooLarge as
        `neighbours` does.
        """
        until = await self._until(known_at)
        return await self._bus.converse(fact_reads.path(self._bus.core, self._page, a, b, at, until))

    async def timeline(
        self, subject: str, relation: str, *, known_at: When | None = None, limit: int = 1_000
    ) -> list[Span]:
        """Return every fact about a subject and a relation with the time in which it is true, by when it begins.

        Those that have ended, are contested or retracted are there too. Of more than `limit`, the last ones.
        """
        until = await self._until(known_at)
        return await self._bus.converse(
            fact_reads.timeline(self._bus.core, self._page, subject, relation, until, limit)
        )

    async def why(self, fact: Fact | str) -> Why:
        """Return why a fact is known: which text says so, who and when, and what it rests on.

        The fact is given as it is, or by its id. The answer also says whether it is valid, and what ended or contests
        it. Raises NotFound.
        """
        return await self._bus.converse(fact_reads.why(self._bus.core, self._page, facts.check_fact(fact)))

    async def same_as(
        self,
        a: str,
        b: str,
        *,
        evidence: Sequence[str] = (),
        source_text: str | None = None,
        event_id: str | None = None,
    ) -> Fact:
        """Say that two names mean one entity, from now on in every answer; return the fact that says so."""
        return await self._bus.converse(facts.same_as(self._bus.core, self._page, a, b, locals()))

    async def not_same_as(
        self, a: str, b: str, *, reason: str = "they are not the same", event_id: str | None = None
    ) -> list[Fact]:
        """Undo `same_as`; return the facts that were retracted.

        Raises NotFound when no fact says that the two are one, Conflict when they are one through other names.
        """
        return await self._bus.converse(facts.not_same_as(self._bus.core, self._page, a, b, reason, event_id))

    async def pending_review(self) -> list[Observation]:
        """Return the open observations that ask which of several contested facts is true; `context` has their ids."""
        return await self._bus.converse(facts.pending_review(self._bus.core, self._page))

    async def ingest(
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

        An extractor is any function that is given the text and returns triplets: a `Triplet`, a tuple of three texts,
        or a mapping with these keys. The default one finds lines `A -> relation -> B`, and if a `subject` is given,
        lines `key: value` about it whose key is the name of a relation.
        """
        return await self._bus.converse(ingest.ingest(self._bus.core, self._page, locals()))

    async def render_triplets(
        self,
        budget: int,
        *,
        subject: str | None = None,
        at: Moment | None = None,
        known_at: When | None = None,
        counter: TokenCounter = estimate_tokens,
    ) -> str:
        """Return the facts that are true at a moment as lines `A -> relation -> B`, in at most so many tokens.

        The last asserted come first, and the last line says how many are left out. Facts that have ended or are
        contested are never among them.
        """
        until = await self._until(known_at)
        asked = budget, counter, subject, at, until
        return await self._bus.converse(render(self._bus.core, self._page, *asked))

    async def _until(self, known_at: When | None) -> Position | None:
        """Return the position up to which facts were known. Raises InvalidPosition."""
        if known_at is None:
            return None
        return (await self._bus.converse(cut_at(self._bus.core, self._page, known_at))).position
