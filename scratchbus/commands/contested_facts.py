"""Contested facts: an observation asks which of them is true, until they no longer contest each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

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
from scratchbus.domain.relation_registry import SAME_AS
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, InvalidInput, NotFound
from scratchbus.eventlog.writes import MAX_BATCH
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
        core, page, None, lambda known: {id for id in _all_fact_ids(questions) if _is_contested(known, id)}
    )
    return [each for each in questions if contested.intersection(_fact_ids(each))]


def review_asserted(core: Core, page: str, facts: Sequence[Fact]) -> Step[None]:
    """Ask about the contests that these new facts have started, and resolve the observations whose contest they ended.

    Only facts with a `valid_at` can contest others: of the rest, the last one always counts. Facts that join two names
    start contests between facts about the two, and end contests between facts that name both.
    """
    relations = core.relations
    dated = [fact for fact in facts if fact.valid_at is not None and relations.read(fact.relation).relation.is_single]
    joined = _names([fact for fact in facts if fact.relation == SAME_AS])
    if joined:
        dated += yield from _contested_about(core, page, "subject", joined)
    if dated and not joined:
        dated = yield from read_facts(
            core, page, None, lambda known: [fact for fact in dated if known.at_same_moment(fact.added_seq)]
        )
    if dated or joined:
        yield from settle_contests(core, page)
    if dated:
        yield from _ask_about(core, page, dated)


def review_withdrawn(core: Core, page: str, facts: Sequence[Fact]) -> Step[None]:
    """Do the same after facts were retracted or erased: without a fact that joined two names, they differ again."""
    yield from settle_contests(core, page)
    parted = _names([fact for fact in facts if fact.relation == SAME_AS])
    if parted:
        yield from _ask_about(core, page, (yield from _contested_about(core, page, "object", parted)))


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
        others = yield from read_facts(core, page, None, lambda known: _contested_beside(known, _all_fact_ids(settled)))
        yield from _ask_about(core, page, others)


def _ask_about(core: Core, page: str, facts: Sequence[Fact]) -> Step[None]:
    """Add an observation for each time at which these facts and others contest each other."""
    if not facts:
        return
    found = yield from read_facts(core, page, None, lambda known: _contests(known, facts))
    questions = {}
    for span, rivals in found:
        sides = sorted([*rivals, span.fact], key=lambda fact: fact.added_seq)
        first = sides[0]  # the subject may have another name in the others
        key = digest_of(CONTEST, plain_entity(first.subject), first.relation, span.begins.isoformat())
        questions[key] = _question(key, sides)
    try:
        yield from add_many(core, page, list(questions.values()), None)
    except (InvalidInput, Conflict) as problem:  # the facts are in the log
        logger.warning("a question about contested facts was not added", page=page, reason=str(problem))


def _contests(known: KnownFacts, facts: Sequence[Fact]) -> list[tuple[Span, list[Fact]]]:
    """Return those of these facts that are contested, each with its rivals."""
    spans = [known.span(fact.added_seq) for fact in facts]
    return [(span, known.facts(span.contested_by)) for span in spans if span.state == "contested"]


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


def _names(facts: Iterable[Fact]) -> list[str]:
    return [name for fact in facts for name in (fact.subject, fact.object)]


def _contested_about(core: Core, page: str, side: str, names: Sequence[str]) -> Step[list[Fact]]:
    """Return the contested facts that name one of these entities on a side, no more than can be asked about at once."""
    return (
        yield from read_facts(
            core, page, None, lambda known: list(islice(known.contested_about(side, names), MAX_BATCH)), is_slow=True
        )
    )


def _open_questions(core: Core, page: str) -> Step[list[Observation]]:
    """Return the open questions about facts; anyone may add other observations with the same tag."""
    found = yield from active(core.log, page, core.fresh, None, wanted=_may_be_question)
    return [each for each in found if (each.dedupe_key or "").startswith(f"{CONTEST}:") and _fact_ids(each)]


def _may_be_question(observation: AnyObservation) -> bool:
    return observation.status_class == "open" and observation.type == _TYPE and CONTEST in observation.tags


def _fact_ids(question: Observation) -> list[str]:
    ids = question.context.get("facts")
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []


def _all_fact_ids(questions: Iterable[Observation]) -> list[str]:
    return [id for each in questions for id in _fact_ids(each)]


def _is_contested(known: KnownFacts, id: str) -> bool:
    return any(known.span(fact.added_seq).state == "contested" for fact in known.facts([id]))


def _contested_beside(known: KnownFacts, ids: Iterable[str]) -> list[Fact]:
    """Return the contested facts about the same subject, relation and time as these facts."""
    beside = [other for fact in known.facts(ids) for other in known.at_same_moment(fact.added_seq)]
    return [fact for fact in beside if known.span(fact.added_seq).state == "contested"]
