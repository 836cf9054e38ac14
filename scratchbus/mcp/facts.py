"""The tools for the facts of the connection's last scope, by default the scope named like its page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, NotRequired

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.errors import InvalidField, ScratchbusError
from scratchbus.mcp.answers import Moment, answer_of
from scratchbus.mcp.tool_parameters import EventId, Limit
from scratchbus.mcp.toolbox import ADDS, READS, SETS, ToolGroup, tool

Entity = Annotated[str, Field(description="A name, as people use it.")]
Relation = Annotated[
    str, Field(description="Such as uses or depends_on; one-valued: runs_on, version, status. An error lists all.")
]
Time = Annotated[str | None, Field(description="ISO 8601; default: now.")]


_EVIDENCE: Final = 10
"""The most observations that an explanation shows."""

_LENGTH: Final = 1_000
"""The most characters that an explanation shows of a text."""


class FactAnswer(TypedDict):
    """A fact; `valid_at` and `invalid_at` bound the time it holds, if given."""

    id: str
    subject: str
    relation: str
    object: str
    source: str
    valid_at: NotRequired[Moment]
    invalid_at: NotRequired[Moment]


class AssertedFact(FactAnswer):
    """A fact; `valid_at` and `invalid_at` bound the time it holds, if given."""

    contested: NotRequired[Annotated[list[str], Field(description="Facts of others that disagree: none is true yet.")]]


_LISTED: Final = {
    "type": "array",
    "items": {"type": "object", "description": "`assert_fact` describes the fields."},
}
"""The schema of a list of facts, without their fields: clients validate every answer."""

Listed = Annotated[list[FactAnswer], WithJsonSchema(_LISTED)]


class FoundFacts(TypedDict):
    """The facts true at that time, newest first; equal ones once."""

    facts: Listed
    has_more: NotRequired[Annotated[bool, Field(description="Raise `limit`, or ask more narrowly.")]]
    contested: NotRequired[Annotated[Listed, Field(description="Facts of sources that disagree: none is true yet.")]]


class NearEntity(TypedDict):
    """An entity, its distance in facts, and the last fact on the way to it."""

    entity: str
    distance: int
    fact: str


class Connections(TypedDict):
    """The neighbours of an entity, nearest first; or `path`, the facts on the shortest path to another, if any."""

    near: NotRequired[list[NearEntity]]
    path: NotRequired[Listed]


class Explanation(TypedDict):
    """The origin of a fact, in a few lines."""

    explanation: str


class FactsTools(ToolGroup):
    """The tools for the facts of one scope."""

    @property
    def _facts(self) -> scratchbus.AsyncFacts:
        identity = self._workspace.identity
        return self._workspace.bus.facts(identity.knowledge[-1] if identity.knowledge else identity.page)

    @tool("Assert a fact", ADDS)
    async def assert_fact(
        self,
        subject: Entity,
        relation: Relation,
        object: Entity,
        valid_at: Time = None,
        source_text: Annotated[str | None, Field(description="The words it is based on.")] = None,
        evidence: Annotated[list[str] | None, Field(description="Ids of observations.")] = None,
        event_id: EventId = None,
    ) -> AssertedFact:
        """Save a lasting fact that outlives the session; a new value of a one-valued relation ends the old one."""
        fact = await self._facts.assert_fact(
            subject, relation, object, valid_at=valid_at, source_text=source_text, evidence=evidence or (),
            event_id=event_id,
        )  # fmt: skip
        answer = answer_of(AssertedFact, fact)
        if valid_at is not None:  # without it there is no contest
            with suppress(ScratchbusError):  # it is asserted
                spans = await self._facts.timeline(fact.subject, fact.relation)
                if rivals := next((span.contested_by for span in spans if span.fact.id == fact.id), []):
                    answer["contested"] = rivals
        return answer

    @tool("Retract a fact", SETS)
    async def retract_fact(self, id: str, reason: str, event_id: EventId = None) -> FactAnswer:
        """Retract a wrong fact. If it was true but has ended, assert the new value instead."""
        return answer_of(FactAnswer, await self._facts.retract(id, reason, event_id=event_id))

    @tool("Query facts", READS)
    async def query_facts(
        self,
        subject: str | None = None,
        relation: str | None = None,
        object: str | None = None,
        at: Time = None,
        limit: Limit = 20,
    ) -> FoundFacts:
        """Find true facts by any of their parts."""
        found = await self._facts.query(subject, relation, object, at=at, distinct=True, limit=limit + 1)
        answer: FoundFacts = {"facts": _answers(found[:limit])}
        if len(found) > limit:
            answer["has_more"] = True
        if subject is not None:
            contests = await self._facts.contested(subject, relation, object, at=at)
            contested = [fact for contest in contests for fact in contest]
            if contested:
                answer["contested"] = _answers(contested[:limit])
        return answer

    @tool("Find connections", READS)
    async def find_connections(
        self,
        entity: Entity,
        to: Annotated[str | None, Field(description="Find the path to this entity.")] = None,
        depth: Annotated[int, Field(ge=1, le=20)] = 1,
        limit: Limit = 20,
    ) -> Connections:
        """Find the entities that facts connect to one, or the path between two."""
        if to is not None:
            try:
                return {"path": _answers(await self._facts.path(entity, to))}
            except InvalidField as problem:  # it names the arguments as in Python
                argument = {"a": "entity", "b": "to"}.get(problem.field, problem.field)
                raise InvalidField(argument, str(problem).removeprefix(f"{problem.field}: ")) from None
        found = await self._facts.neighbours(entity, depth, limit=limit)
        return {
            "near": [
                {"entity": each.entity, "distance": each.distance, "fact": each.fact.triplet} for each in found
            ]
        }  # fmt: skip

    @tool("Explain a fact", READS)
    async def explain_fact(self, id: str) -> Explanation:
        """Show who asserted a fact, its source text and evidence, and what ended or contests it."""
        why = await self._facts.why(id, max_evidence=_EVIDENCE)
        return {"explanation": why.text(count=_EVIDENCE, length=_LENGTH)}


def _answers(facts: Sequence[scratchbus.Fact]) -> list[FactAnswer]:
    return [answer_of(FactAnswer, fact) for fact in facts]
