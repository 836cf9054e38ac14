"""The facts of a scope: how people and things are related, and during which time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from scratchbus import document_of, estimate_tokens
from scratchbus.http import fact_answers, patterns, problems
from scratchbus.http.bodies import Body, JsonBody, NotBlank, optional
from scratchbus.http.documents import answer, listing, location
from scratchbus.http.fact_answers import FACT, FACTS, Entity, Relation
from scratchbus.http.moments import AnyMoment
from scratchbus.http.parameters import Absent, AnyId, AnyTime, Limit, Once, ScopeName, register_id
from scratchbus.http.server import CallerOf, MemoryBus
from scratchbus.settings import MAX_BUDGET

router = APIRouter(tags=["facts"])
PATH: Final = "/scopes/{scope}/facts"
ONE: Final = PATH + "/{fact:fact}"
SAME: Final = PATH + "/same-as"

register_id("fact", patterns.FACT)

FactId = Annotated[str, Path(description="The id of a fact.", pattern=patterns.FACT, examples=["fact_1795386035607"])]
At = Annotated[AnyTime | Absent, Query(description="Facts true then; default: now.", examples=[fact_answers.TIME])]
KnownAt = Annotated[
    AnyMoment | Absent, Query(description="Facts known at this time or position.", examples=[fact_answers.TIME])
]
AskedEntity = Annotated[Entity | Absent, Query(description="The name of an entity.", examples=["api"])]
AskedRelation = Annotated[Relation | Absent, Query(description="A relation; an inverse swaps the two entities.")]

_SURE: Final[dict[str, Any]] = {"description": "How sure it is."}
_Confidence = Annotated[float, Field(ge=0, le=1)]
_Evidence = list[AnyId]
_EVIDENCE: Final[dict[str, Any]] = {"maxItems": 1_000, "description": "Observations that it rests on."}
_SAYS: Final[dict[str, Any]] = {"maxLength": 65_536, "description": "The text that says so, up to 65,536 bytes."}
_WHY: Final[dict[str, Any]] = {"maxLength": 4_096}


_NEW: Final = {
    "subject": "api",
    "relation": "runs_on",
    "object": "Node 24",
    "source_text": "we upgraded to Node 24",
}


class NewFact(Body, example=_NEW):
    """A fact to assert; without `valid_at` it is true from now on."""

    subject: Entity
    relation: Relation
    object: Entity
    valid_at: AnyTime = optional()
    invalid_at: AnyTime = optional()
    confidence: _Confidence = optional(json_schema_extra=_SURE)
    evidence: _Evidence = optional(json_schema_extra=_EVIDENCE)
    source_text: NotBlank = optional(json_schema_extra=_SAYS)


class Ingestion(Body, example={"text": "api -> runs_on -> Node 24\napi -> depends_on -> postgres"}):
    """A text whose lines `A -> relation -> B` are facts; with a `subject`, also lines `relation: value` about it."""

    text: str
    subject: Entity = optional()
    valid_at: AnyTime = optional()
    confidence: _Confidence = optional(json_schema_extra=_SURE)
    evidence: _Evidence = optional(json_schema_extra=_EVIDENCE)


class FactRetraction(Body, example={"reason": "it was misread"}):
    """Why a fact is wrong."""

    reason: NotBlank = Field(json_schema_extra=_WHY)


class SameEntity(Body, example={"a": "NYC", "b": "New York"}):
    """Two names of one entity."""

    a: Entity
    b: Entity
    evidence: _Evidence = optional(json_schema_extra=_EVIDENCE)
    source_text: NotBlank = optional(json_schema_extra=_SAYS)


@router.get(PATH, responses={200: FACTS})
async def query_facts(
    bus: MemoryBus,
    scope: ScopeName,
    subject: AskedEntity = None,
    relation: AskedRelation = None,
    object: AskedEntity = None,
    at: At = None,
    known_at: KnownAt = None,
    distinct: Annotated[bool, Query(description="Whether to return one of equal facts, as last asserted.")] = False,
    limit: Limit = 100,
) -> Response:
    """Return the facts that are true at a moment, the last asserted first.

    With a subject or an object and a transitive relation, also those that it leads on to, the nearest first.
    """
    facts = bus.facts(scope)
    found = await facts.query(subject, relation, object, at=at, known_at=known_at, distinct=distinct, limit=limit)
    return _listing(found)


@router.post(PATH, status_code=201, responses={201: fact_answers.ASSERTED})
async def assert_fact(bus: MemoryBus, scope: ScopeName, guards: Once, body: JsonBody[NewFact]) -> Response:
    """Assert that a relation holds between a subject and an object.

    A new value of a relation with one value at a time ends the one before it.
    """
    fact = await bus.facts(scope).assert_fact(**body.given, event_id=guards.event_id)
    return answer(document_of(fact), 201, location("scopes", scope, "facts", fact.id))


@router.post(PATH + "/ingest", responses={200: FACTS})
async def ingest_facts(bus: MemoryBus, scope: ScopeName, guards: Once, body: JsonBody[Ingestion]) -> Response:
    """Assert the facts in a text, up to 1,000, all or none; return them."""
    return _listing(await bus.facts(scope).ingest(**body.given, event_id=guards.event_id))


@router.get(PATH + "/neighbours", responses={200: fact_answers.NEIGHBOURS})
async def get_neighbours(
    bus: MemoryBus,
    scope: ScopeName,
    entity: Annotated[Entity, Query(description="The name of an entity.", examples=["api"])],
    depth: Annotated[int, Query(description="The greatest distance in facts.", ge=1, le=20)] = 1,
    at: At = None,
    known_at: KnownAt = None,
    limit: Limit = 100,
) -> Response:
    """Return the entities that facts connect with one, the nearest first."""
    facts = bus.facts(scope)
    return _listing(await facts.neighbours(entity, depth, at=at, known_at=known_at, limit=limit))


@router.get(PATH + "/path", responses={200: FACTS})
async def get_fact_path(
    bus: MemoryBus,
    scope: ScopeName,
    a: Annotated[Entity, Query(description="Where it begins.", examples=["api"])],
    b: Annotated[Entity, Query(description="Where it ends.", examples=["postgres"])],
    at: At = None,
    known_at: KnownAt = None,
) -> Response:
    """Return the facts that connect two entities in the fewest steps; none if nothing connects them."""
    return _listing(await bus.facts(scope).path(a, b, at=at, known_at=known_at))


@router.get(PATH + "/timeline", responses={200: fact_answers.SPANS})
async def get_fact_timeline(
    bus: MemoryBus,
    scope: ScopeName,
    subject: Annotated[Entity, Query(description="The name of an entity.", examples=["api"])],
    relation: Annotated[Relation, Query(description="A relation.")],
    known_at: KnownAt = None,
    limit: Limit = 1000,
) -> Response:
    """Return every fact about a subject and a relation with the time it is true, by start time.

    This includes ended, contested and retracted facts. With more than `limit`, returns the last ones.
    """
    return _listing(await bus.facts(scope).timeline(subject, relation, known_at=known_at, limit=limit))


@router.get(PATH + "/triplets", responses={200: fact_answers.TRIPLETS})
async def render_triplets(
    bus: MemoryBus,
    scope: ScopeName,
    budget: Annotated[int, Query(description="The most tokens of the text.", ge=1, le=MAX_BUDGET, examples=[500])],
    subject: AskedEntity = None,
    at: At = None,
    known_at: KnownAt = None,
) -> Response:
    """Return the facts that are true at a moment as lines `A -> relation -> B` within a token budget.

    The last asserted come first, and the last line says how many are left out.
    """
    text = await bus.facts(scope).render_triplets(budget, subject=subject, at=at, known_at=known_at)
    return answer({"text": text, "tokens": estimate_tokens(text)})


@router.get(PATH + "/contested", responses={200: fact_answers.CONTESTS})
async def get_contested_facts(
    bus: MemoryBus,
    scope: ScopeName,
    subject: Annotated[Entity, Query(description="The name of an entity.", examples=["api"])],
    relation: AskedRelation = None,
    object: AskedEntity = None,
    at: At = None,
    known_at: KnownAt = None,
) -> Response:
    """Return the facts about a subject that contest each other at a moment, the newest contest first.

    `facts` has those of which one would be true if their sources agreed; a query returns none of them.
    """
    contests = await bus.facts(scope).contested(subject, relation, object, at=at, known_at=known_at)
    return answer({"items": [{"facts": listing(facts)["items"]} for facts in contests]})


@router.get(PATH + "/pending-review", responses={200: fact_answers.CONTESTED})
async def list_contested_facts(bus: MemoryBus, scope: ScopeName) -> Response:
    """Return the open observations that ask which of several facts is true; their `context` has the ids of these."""
    return _listing(await bus.facts(scope).pending_review())


@router.post(SAME, responses={200: FACT})
async def join_entities(bus: MemoryBus, scope: ScopeName, guards: Once, body: JsonBody[SameEntity]) -> Response:
    """Say that two names mean one entity, from now on in every answer; return the fact that says so."""
    return answer(document_of(await bus.facts(scope).same_as(**body.given, event_id=guards.event_id)))


@router.delete(SAME, responses={200: FACTS})
async def part_entities(
    bus: MemoryBus,
    scope: ScopeName,
    guards: Once,
    a: Annotated[Entity, Query(description="One name.", examples=["NYC"])],
    b: Annotated[Entity, Query(description="The other name.", examples=["New York"])],
    reason: Annotated[NotBlank | Absent, Query(description="Why they are not the same.", max_length=4_096)] = None,
) -> Response:
    """Say that two names do not mean one entity after all; return the facts that were retracted.

    409 if they are one through other names.
    """
    options = {} if reason is None else {"reason": reason}
    return _listing(await bus.facts(scope).not_same_as(a, b, **options, event_id=guards.event_id))


@router.get(ONE, responses=problems.answers({200: fact_answers.WHY}, 410))
async def get_fact(bus: MemoryBus, caller: CallerOf, scope: ScopeName, fact: FactId) -> Response:
    """Return a fact and its origin: its events, its evidence, the time it is true, and what ended it.

    Without the scope `read`, `evidence` is empty; the fact has the ids.
    """
    return answer(document_of(await bus.facts(scope).why(fact, max_evidence=None if "read" in caller.scopes else 0)))


@router.post(ONE + "/retract", responses={200: FACT})
async def retract_fact(
    bus: MemoryBus, scope: ScopeName, fact: FactId, guards: Once, body: JsonBody[FactRetraction]
) -> Response:
    """Take a fact back: it is not true at any time. Its history stays."""
    return answer(document_of(await bus.facts(scope).retract(fact, body.reason, event_id=guards.event_id)))


def _listing(found: Iterable[object]) -> Response:
    return answer(listing(found))
