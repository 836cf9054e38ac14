"""Assert and retract facts, and join the names of entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field

from scratchbus.commands.add import name_item
from scratchbus.commands.contested_facts import review_asserted, review_withdrawn
from scratchbus.commands.execution import Occasion, nth_suffix
from scratchbus.commands.fact_reads import fact_not_found, read_facts
from scratchbus.commands.memory import edit
from scratchbus.commands.memory_edit import MemoryEdit, earlier_attempt, put
from scratchbus.commands.references import check_known_ids
from scratchbus.domain.checks import (
    check_content,
    check_evidence,
    check_given_reason,
    check_label,
    check_own_event_id,
)
from scratchbus.domain.event import Event
from scratchbus.domain.fact_events import FactAsserted, FactRetracted
from scratchbus.domain.facts import Fact, plain_entity
from scratchbus.domain.models import CheckedBy, EventId, Given
from scratchbus.domain.position import Position
from scratchbus.domain.relation_registry import SAME_AS, RelationRegistry
from scratchbus.domain.schedule import varying_times
from scratchbus.domain.time_checks import as_time
from scratchbus.domain.times import settle
from scratchbus.domain.values import MAX_BYTES, check_confidence, check_memory_id
from scratchbus.engine.steps import Step, batches
from scratchbus.errors import Conflict, InvalidField, InvalidInput, NotFound, VersionConflict, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.ids import bound_of
from scratchbus.eventlog.writes import MAX_BATCH, NEVER
from scratchbus.projections.facts import PREFIX, evolve
from scratchbus.readmodel.history import known_events, read_events
from scratchbus.readmodel.relations import find_pages, gather
from scratchbus.readmodel.relations_in_force import relations_for
from scratchbus.readmodel.scope import Core

_check_reason = partial(check_given_reason, advice="say why the fact is wrong")

_TRIES = 20


def check_fact(id: object) -> str:
    """Return the id of a fact, given the id or a `Fact`. Raises InvalidId."""
    return check_memory_id("fact", id.id if isinstance(id, Fact) else id)


class AssertFact(Given):
    """A fact to assert; the append script gives it its id."""

    verb: ClassVar[str] = "assert_fact"
    subject: Annotated[str, CheckedBy(partial(check_label, "subject"))]
    relation: Annotated[str, CheckedBy(partial(check_label, "relation"))]
    object: Annotated[str, CheckedBy(partial(check_label, "object"))]
    valid_at: Annotated[datetime | None, CheckedBy(partial(as_time, "valid_at"))] = None
    invalid_at: Annotated[datetime | None, CheckedBy(partial(as_time, "invalid_at"))] = None
    confidence: Annotated[float, CheckedBy(check_confidence)] = 1.0
    evidence: Annotated[list[str], CheckedBy(check_evidence)] = Field([])
    source_text: Annotated[str | None, CheckedBy(partial(check_content, limit=MAX_BYTES, field="source_text"))] = None
    event_id: EventId = None

    def retry_arguments(self) -> list[Any]:
        """Return the arguments that a retry has to repeat."""
        return [value for name, value in self.__dict__.items() if name != "event_id"]

    def decide(self, occasion: Occasion, relations: RelationRegistry, suffix: str = "") -> FactAsserted:
        """Return the event. Raises UnknownRelation, and InvalidField for a validity that ends before it begins."""
        resolved = relations.find(self.relation)
        if resolved.name == SAME_AS and (self.valid_at or self.invalid_at):
            raise InvalidField("valid_at", f"{SAME_AS} is true or not, at all times; leave out valid_at and invalid_at")
        relation = resolved.relation
        if (relation.symmetric or relation.transitive) and plain_entity(self.subject) == plain_entity(self.object):
            raise InvalidField("object", f"{shown(self.object)} is the subject; {resolved.name} needs two entities")
        if self.invalid_at is not None and self.invalid_at <= (self.valid_at or occasion.now):
            than = "valid_at" if self.valid_at else "now, when the fact begins unless you give valid_at"
            raise InvalidField("invalid_at", f"{self.invalid_at.isoformat()} is not after {than}")
        fields = {name: settle(value) for name, value in self.__dict__.items() if name not in ("subject", "event_id")}
        return occasion.event(
            FactAsserted, PREFIX, suffix, **{**fields, "about": self.subject, "relation": resolved.name}
        )


class RetractFact(MemoryEdit):
    """Retract a fact; it stays in history."""

    verb = "retract_fact"
    id: Annotated[str, CheckedBy(check_fact)]
    reason: Annotated[str, CheckedBy(_check_reason)]

    @property
    def about(self) -> str:
        """See `MemoryEdit`."""
        return self.id

    def decide(self, occasion: Occasion, document: Fact | None) -> Event | None:
        """See `MemoryEdit`. A retracted fact is left unchanged. Raises NotFound."""
        if document is None:
            raise fact_not_found(occasion.page, self.id)
        if document.retraction is not None:
            return None
        return occasion.event(FactRetracted, self.id, reason=self.reason)


def assert_fact(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Fact]:
    """Assert a fact. If sources contest each other by it, ask for a decision."""
    command = AssertFact.parse(arguments)
    occasion = Occasion.of(core, page, command.event_id, command.verb, *command.retry_arguments())
    return (yield from assert_all(core, page, [command], occasion, varying_times(command.__dict__)))[0]


def assert_all(
    core: Core, page: str, commands: Sequence[AssertFact], occasion: Occasion, varying: frozenset[str]
) -> Step[list[Fact]]:
    """Assert facts, a thousand in one batch. Raises InvalidInput for the first invalid one; then none is asserted.

    A retry may compute the fields in `varying` otherwise.
    """
    relations = yield from relations_for(core, *(command.relation for command in commands))
    events: list[FactAsserted] = []
    for index, command in enumerate(commands):
        try:
            events.append(command.decide(occasion, relations, nth_suffix(index)))
        except InvalidInput as error:
            earlier = yield from earlier_facts(core, occasion)
            if earlier is None:
                raise name_triplet(error, index, len(commands)) from None
            return earlier
    refusal = yield from _check_evidence(core, page, [id for command in commands for id in command.evidence])
    facts: list[Fact] = []
    for batch in batches(events, MAX_BATCH):
        try:
            writes = [put(occasion, event, NEVER if refusal else 0, varying=varying) for event in batch]
            appended = yield from append(core.log, page, writes)
        except VersionConflict:
            raise refusal or Conflict("the facts keep changing; try again") from None
        if appended.recalled is not None:
            batch = cast(list[FactAsserted], (yield from known_events(core.log, appended.recalled)))
        else:
            batch = [row.placed(event) for event, row in zip(batch, appended.written, strict=True)]
        facts += [cast(Fact, evolve(None, event)) for event in batch]
    if facts:
        yield from review_asserted(core, page, facts)
    return facts


def earlier_facts(core: Core, occasion: Occasion) -> Step[list[Fact] | None]:
    """Return the facts of an earlier attempt of an assertion; None if there was none. Raises EventIdReused."""
    if bound_of(occasion.event_id) is not None:
        return None  # it has no digest that distinguishes it from another write
    first = yield from earlier_attempt(core, occasion, PREFIX)
    if first is None:
        return None
    events = yield from _events_of_batch(core, first[0], occasion.event_id)
    return [cast(Fact, evolve(None, event)) for event in events]


name_triplet = partial(name_item, noun="triplet", done="asserted")


def _check_evidence(core: Core, page: str, ids: list[str]) -> Step[InvalidField | None]:
    """Return the error for refuted evidence, if any; the caller may still be a retry.

    Raises InvalidField for evidence that was never on a page of the bus.
    """
    if not ids:
        return None
    yield from check_known_ids(core, page, ids)
    pages = yield from find_pages(core.log, list(dict.fromkeys(ids)))
    for observation in (yield from gather(core.log, pages, core.fresh)).values():
        if observation.reason_code == "refuted":
            return InvalidField("evidence", f"{observation.id} was refuted; rest the fact on something else")
    return None


def retract(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Fact]:
    """Retract a fact."""
    fact = cast(Fact, (yield from edit(core, page, RetractFact.parse(arguments))))
    yield from review_withdrawn(core, page, [fact])
    return fact


def same_as(core: Core, page: str, one: str, other: str, arguments: Mapping[str, Any]) -> Step[Fact]:
    """Assert that two names mean one entity; return the fact, which may exist already."""
    _check_two(one, other)
    command = AssertFact.parse({**arguments, "subject": one, "relation": SAME_AS, "object": other})
    if command.event_id is None:
        direct, _ = yield from read_facts(core, page, None, lambda known: known.joined(one, other))
        if direct:
            return direct[0]
    return (yield from assert_fact(core, page, command.__dict__))


def not_same_as(core: Core, page: str, one: str, other: str, reason: str, event_id: str | None) -> Step[list[Fact]]:
    """Retract the facts that say that two names mean one entity, in one batch.

    Raises NotFound if no fact does, Conflict if other names still connect the two; a retry returns what it retracted.
    """
    _check_two(one, other)
    reason = _check_reason(reason)
    check_own_event_id(event_id)
    occasion = Occasion.of(core, page, event_id, "not_same_as", plain_entity(one), plain_entity(other), reason)
    positions, tries = (yield from earlier_attempt(core, occasion, PREFIX)), 0
    while positions is None:
        if tries == _TRIES:
            raise Conflict(f"the facts about {shown(one)} and {shown(other)} keep changing; try again")
        tries += 1
        direct = yield from _joined_directly(core, page, one, other)
        events = [
            occasion.event(FactRetracted, fact.id, nth_suffix(index), reason=reason)
            for index, fact in enumerate(direct)
        ]
        writes = [put(occasion, event, fact.version) for event, fact in zip(events, direct, strict=True)]
        with suppress(VersionConflict):
            appended = yield from append(core.log, page, writes)
            positions = [row.position for row in appended.written] or appended.recalled
    ids = [event.subject for event in (yield from _events_of_batch(core, positions[0], occasion.event_id))]
    retracted = yield from read_facts(core, page, None, lambda known: known.facts(ids))
    yield from review_withdrawn(core, page, retracted)
    return retracted


def _events_of_batch(core: Core, first: Position, event_id: str) -> Step[list[Event]]:
    """Return the events of a batch about facts, given the position and the id of its first event."""
    events: list[Event] = list((yield from known_events(core.log, [first])))
    while following := (yield from read_events(core.log, [first._replace(seq=first.seq + len(events))])):
        if following[0].id != f"{event_id}/{len(events)}":
            break
        events += following
    return events


def _joined_directly(core: Core, page: str, one: str, other: str) -> Step[list[Fact]]:
    """Return the facts that say that two names mean one entity. Raises NotFound or Conflict, see `not_same_as`."""
    direct, through = yield from read_facts(core, page, None, lambda known: known.joined(one, other))
    if through:
        chain = "; ".join(f"{fact.id}: {fact.triplet}" for fact in through)
        raise Conflict(
            f"{shown(one)} and {shown(other)} are one entity through other names: {chain}; retract what is wrong"
        )
    if not direct:
        raise NotFound(f"no fact says that {shown(one)} and {shown(other)} are one entity")
    return direct


def _check_two(a: object, b: object) -> None:
    """Raise InvalidField unless these are two names."""
    if plain_entity(check_label("a", a)) == plain_entity(check_label("b", b)):
        raise InvalidField("b", f"{shown(b)} is the same name as a; give two names of one entity")
