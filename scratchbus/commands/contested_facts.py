"""Contested facts: an observation asks which of them is true, until they no longer contest each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scratchbus.commands.add_many import add_many
from scratchbus.commands.change import Resolve
from scratchbus.commands.execution import execute
from scratchbus.commands.fact_reads import read_facts
from scratchbus.domain.checks import MAX_EVIDENCE
from scratchbus.domain.digest import digest_of
from scratchbus.domain.facts import Fact, plain_entity
from scratchbus.domain.knowledge import Span
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import NewObservation
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, InvalidInput, NotFound
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.known_facts import KnownFacts
from scratchbus.readmodel.page_query import active
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.logs import stderr_logger

CONTEST = "fact_contest"
"""The tag of the observations that ask which of several facts is true."""

_TYPE = "pending_confirmation"

logger = stderr_logger()


def pending_review(core: Core, page: str) -> Step[list[Observation]]:
    """Return the open observations that ask which of several facts is true."""
    questions = yield from _open_questions(core, page)
    if not questions:
        return []
    contested = yield from read_facts(
        core, page, None, lambda known: {id for id in _fact_ids(questions) if _is_contested(known, id)}
    )
    return [each for each in questions if contested.intersection(_fact_ids([each]))]


def ask_about(core: Core, page: str, facts: Sequence[Fact]) -> Step[None]:
    """Add an observation for each time at which these facts and others contest each other.

    Only facts with a `valid_at` can: of the others, the last one always counts.
    """
    relations = core.relations
    dated = [fact for fact in facts if fact.valid_at is not None and relations.read(fact.relation).relation.is_single]
    if not dated:
        return
    found = yield from read_facts(core, page, None, lambda known: _rivals(known, dated))
    questions = {}
    for span, rivals in found:
        if span.state == "contested":
            sides = [fact for fact in rivals if fact.id in span.contested_by]
            key = digest_of(CONTEST, plain_entity(span.fact.subject), span.fact.relation, span.begins.isoformat())
            questions[key] = _question(key, sorted([*sides, span.fact], key=lambda fact: fact.added_seq))
    try:
        yield from add_many(core, page, list(questions.values()), None)
    except (InvalidInput, Conflict) as problem:  # the facts are in the log
        logger.warning("a question about contested facts was not added", page=page, reason=str(problem))
    if found and not questions:
        yield from settle_contests(core, page)


def _rivals(known: KnownFacts, facts: Sequence[Fact]) -> list[tuple[Span, list[Fact]]]:
    """Return those of these facts that contest others, each with these others."""
    found = [(fact, known.at_same_moment(fact.added_seq)) for fact in facts]
    return [(known.span(fact.added_seq), rivals) for fact, rivals in found if rivals]


def _question(key: str, facts: Sequence[Fact]) -> NewObservation:
    first = facts[0]
    sides = "; ".join(f"{fact.source} says {fact.object} ({fact.id})" for fact in facts)
    since = f"{first.valid_at:%Y-%m-%d %H:%M:%S} UTC".removesuffix(" 00:00:00 UTC")
    content = f"{first.subject} -> {first.relation}: which is true from {since}? {sides}. Retract what is wrong."
    return NewObservation(
        type=_TYPE,
        content=content,
        status="pending_review",
        tags=[CONTEST],
        dedupe_key=f"{CONTEST}:{key}",
        evidence=list(dict.fromkeys(id for fact in facts for id in fact.evidence))[:MAX_EVIDENCE],
        context={"subject": first.subject, "relation": first.relation, "facts": [fact.id for fact in facts]},
    )


def settle_contests(core: Core, page: str) -> Step[None]:
    """Resolve the observations whose facts no longer contest each other; ask again about others at the same time."""
    questions = yield from _open_questions(core, page)
    if questions:
        contested = {each.id for each in (yield from pending_review(core, page))}
        settled = [each for each in questions if each.id not in contested]
        for each in settled:
            try:
                yield from execute(core, page, Resolve, {"id": each.id, "reason": "the facts agree now"})
            except (Conflict, NotFound):
                continue  # someone else was faster
            except InvalidInput as problem:  # its type cannot be resolved; the facts are in the log
                logger.warning("a question about facts was not resolved", page=page, reason=str(problem))
        others = yield from read_facts(core, page, None, lambda known: _contested_beside(known, _fact_ids(settled)))
        if others:
            yield from ask_about(core, page, others)


def _open_questions(core: Core, page: str) -> Step[list[Observation]]:
    return (yield from active(core.log, page, core.fresh, None, wanted=_is_open_question))


def _is_open_question(observation: AnyObservation) -> bool:
    return observation.status_class == "open" and CONTEST in observation.tags


def _fact_ids(observations: Iterable[Observation]) -> list[str]:
    return [id for each in observations for id in each.context.get("facts", ()) if isinstance(id, str)]


def _is_contested(known: KnownFacts, id: str) -> bool:
    return any(known.span(fact.added_seq).state == "contested" for fact in known.facts([id]))


def _contested_beside(known: KnownFacts, ids: Iterable[str]) -> list[Fact]:
    """Return the contested facts about the same subject, relation and time as these facts."""
    beside = [other for fact in known.facts(ids) for other in known.at_same_moment(fact.added_seq)]
    return [fact for fact in beside if known.span(fact.added_seq).state == "contested"]
