"""Contested facts: an observation asks which of them is true, until they no longer contest each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import cast

from scratchbus.commands.add_many import add_many
from scratchbus.commands.change import Resolve
from scratchbus.commands.execution import execute
from scratchbus.commands.fact_reads import read_facts
from scratchbus.domain.checks import MAX_EVIDENCE
from scratchbus.domain.digest import digest_of
from scratchbus.domain.facts import Fact, plain_entity
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import NewObservation
from scratchbus.domain.relation_registry import SAME_AS
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, IndexFailed, InvalidInput, NotFound
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
    return (yield from _still_contested(core, page, (yield from _open_questions(core, page))))


def _still_contested(core: Core, page: str, questions: Sequence[Observation]) -> Step[list[Observation]]:
    if not questions:
        return []
    ids = {id for each in questions for id in _fact_ids(each)}
    contested = yield from read_facts(core, page, None, lambda known: {id for id in ids if _is_contested(known, id)})
    return [each for each in questions if contested.intersection(_fact_ids(each))]


def review_asserted(core: Core, page: str, facts: Sequence[Fact]) -> Step[None]:
    """Ask about the contests that these new facts have started, and resolve the observations whose contest they ended.

    Only facts with a `valid_at` can contest others: of the rest, the last one always counts. Facts that join two names
    start contests between facts about the two, and end contests between facts that name both.
    """
    relations = core.relations
    dated = [fact for fact in facts if fact.valid_at is not None and relations.read(fact.relation).relation.is_single]
    joined = [fact for fact in facts if fact.relation == SAME_AS]
    if joined or (yield from rivals_of(core, page, dated)):
        yield from review(core, page, dated, joined)


def review_withdrawn(core: Core, page: str, facts: Sequence[Fact]) -> Step[None]:
    """Do the same after facts were retracted: others, of the same time, may contest each other now."""
    yield from review(core, page, (yield from rivals_of(core, page, facts)), facts)


def rivals_of(core: Core, page: str, facts: Sequence[Fact]) -> Step[list[Fact]]:
    """Return the other facts about the same subjects and relations that begin at the same times."""
    if not facts:
        return []
    try:
        return (yield from read_facts(core, page, None, lambda known: _rivals(known, [fact.id for fact in facts])))
    except IndexFailed as problem:
        logger.warning("facts were not compared with others", page=page, reason=str(problem))
        return []


def _rivals(known: KnownFacts, ids: Iterable[str]) -> list[Fact]:
    return [each for fact in known.facts(ids) for each in known.at_same_moment(fact.added_seq)]


def review(core: Core, page: str, facts: Sequence[Fact], changed: Sequence[Fact]) -> Step[None]:
    """Ask about those of these facts that are contested, and resolve the observations whose contest has ended.

    So too for facts about names that one of the `changed` facts joins: these are one entity now, or two again. If the
    index of facts cannot be read, that is only logged: what was asserted or withdrawn is in the log.
    """
    try:
        yield from _review(core, page, facts, changed)
    except IndexFailed as problem:
        logger.warning("questions about facts were not reviewed", page=page, reason=str(problem))


def _review(core: Core, page: str, facts: Sequence[Fact], changed: Sequence[Fact]) -> Step[None]:
    ids = [fact.id for fact in facts]
    names = [name for fact in changed if fact.relation == SAME_AS for name in (fact.subject, fact.object)]
    if ids or names:
        found = yield from read_facts(core, page, None, lambda known: _contests(known, ids, names), is_slow=bool(names))
        yield from _ask_about(core, page, found)
    yield from _settle(core, page)  # last: a rival may have been withdrawn since they were read


def _ask_about(core: Core, page: str, contests: Sequence[Sequence[Fact]]) -> Step[None]:
    """Add an observation for each contest; one that asks about other facts of the same time is replaced."""
    questions = {question.dedupe_key: question for question in map(_question, contests)}
    if not questions:
        return
    for each in (yield from _open_questions(core, page)):
        question = questions.get(each.dedupe_key)
        if question is not None and question.context == each.context:
            del questions[each.dedupe_key]
        elif question is not None:
            yield from _resolve(core, page, each, "other facts contest each other now")
    try:
        yield from add_many(core, page, list(questions.values()), None)
    except (InvalidInput, Conflict) as problem:  # the facts are in the log
        logger.warning("a question about contested facts was not added", page=page, reason=str(problem))


def _settle(core: Core, page: str) -> Step[None]:
    """Resolve the observations whose facts no longer contest each other."""
    questions = yield from _open_questions(core, page)
    contested = {each.id for each in (yield from _still_contested(core, page, questions))}
    for each in questions:
        if each.id not in contested:
            yield from _resolve(core, page, each, "the facts agree now")


def _resolve(core: Core, page: str, question: Observation, reason: str) -> Step[None]:
    try:
        yield from execute(core, page, Resolve, {"id": question.id, "reason": reason})
    except (Conflict, NotFound):
        pass  # someone else was faster
    except InvalidInput as problem:  # its type cannot be resolved; the facts are in the log
        logger.warning("a question about facts was not resolved", page=page, reason=str(problem))


def _contests(known: KnownFacts, ids: Iterable[str], names: Sequence[str]) -> list[list[Fact]]:
    """Return the contests of these facts, and of facts about these names, no more than can be asked about at once."""
    about = (fact for side in ("subject", "object") for fact in known.contested_about(side, names))
    found = dict[tuple[str, ...], list[Fact]]()
    for fact in chain(known.facts(ids), islice(about, MAX_BATCH)):
        span = known.span(fact.added_seq)
        if span.state == "contested":
            sides = sorted([fact, *known.facts(span.contested_by)], key=lambda each: each.added_seq)
            found.setdefault(tuple(each.id for each in sides), sides)
    return list(found.values())[:MAX_BATCH]


def _question(facts: Sequence[Fact]) -> NewObservation:
    first = facts[0]  # the subject may have another name in the others
    sides = "; ".join(f"{fact.source} says {fact.object} ({fact.id})" for fact in facts)
    begins = cast(datetime, first.valid_at)
    since = f"{begins:%Y-%m-%d %H:%M:%S} UTC".removesuffix(" 00:00:00 UTC")
    content = f"{first.subject} -> {first.relation}: which is true from {since}? {sides}. Retract what is wrong."
    key = digest_of(CONTEST, plain_entity(first.subject), first.relation, begins.isoformat())
    return NewObservation(
        type=_TYPE,
        content=content,
        status="pending_review",
        tags=[CONTEST],
        dedupe_key=f"{CONTEST}:{key}",
        evidence=list(dict.fromkeys(id for fact in facts for id in fact.evidence))[:MAX_EVIDENCE],
        context={"subject": first.subject, "relation": first.relation, "facts": [fact.id for fact in facts]},
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


def _is_contested(known: KnownFacts, id: str) -> bool:
    return any(known.span(fact.added_seq).state == "contested" for fact in known.facts([id]))
