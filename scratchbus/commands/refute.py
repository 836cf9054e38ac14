"""Refuting observations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, cast

from scratchbus.commands.bus_state import BusState
from scratchbus.commands.dependents import complete, dependents, review
from scratchbus.commands.execution import Command, Occasion
from scratchbus.commands.observations import finish, lifecycle_of, read_target
from scratchbus.domain.checks import check_given_reason
from scratchbus.domain.lifecycle import ARCHIVED, Lifecycle
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import StatusChanged
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, InvalidTransition, NotChangeable, NotFound
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import MAX_BATCH, Appended, Op, Write
from scratchbus.readmodel.exposures import exposure_of
from scratchbus.readmodel.history import known_events
from scratchbus.readmodel.relations import open_relations
from scratchbus.readmodel.scope import Core

_TRIES = 5
_MAX_SEEN = 100  # sessions, agents and actions that the event names


class Refute(Command):
    """Archive an observation as refuted."""

    verb = "refute"
    reason: Annotated[str, CheckedBy(partial(check_given_reason, advice="say why it is wrong"))]

    def write(self, occasion: Occasion, before: Observation | None, lifecycle: Lifecycle) -> Write:
        """Return the write that archives it; `before` is None if this can only be a retry."""
        archived: dict[str, Any] = {"status": ARCHIVED, "status_class": "final"}
        event = occasion.event(StatusChanged, self.id, reason_code="refuted", reason=self.reason, **archived)
        allowed = lifecycle.of_class("open") | lifecycle.of_class("closed")
        if before is not None:
            allowed |= {before.status}
        return Write(
            event,
            Op.SETTLE,
            occasion.digest,
            allowed=allowed,
            fence=self.fence,
            verb="refuted",
            lifecycle=lifecycle,
            **archived,
        )


def refute(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Observation]:
    """Archive an observation as refuted, and send its open dependents to review.

    Dependents on its own page are in the same batch, of up to 1,000 events; the rest follows. A retry with the same
    event id continues.
    """
    command = Refute.parse(arguments)
    occasion = command.on(core, page)
    for tries_left in reversed(range(_TRIES + 1)):
        before, its_type = yield from read_target(core, page, command.id, command.event_id)
        write = command.write(occasion, before, lifecycle_of(its_type))
        if before is None or before.status_class == "final":
            appended = yield from _find_earlier_refutation(core, page, before, write)
            break
        try:
            appended = yield from _append_with_reviews(core, write, is_guarded=tries_left > 0)
            break
        except Conflict:
            if not tries_left:
                raise
    position = appended.recalled[0] if appended.recalled else appended.written[0].position
    (event,) = yield from known_events(core.log, [position])
    try:
        yield from complete(core, cast(StatusChanged, event))
    except (Conflict, NotFound) as error:
        error.written(event.id, event.position, None)
        raise
    refutation = Appended(appended.written[:1], appended.recalled and appended.recalled[:1])
    return (yield from finish(core, page, before, [write], refutation))


def _find_earlier_refutation(core: Core, page: str, before: Observation | None, write: Write) -> Step[Appended]:
    """Find the event of an earlier refutation.

    Raises NotChangeable if the observation was archived otherwise, NotFound if it or the refutation was erased.
    """
    write.allowed = frozenset()
    try:
        return (yield from append(core.log, page, [write]))
    except InvalidTransition as error:
        status = error.from_status if before is None else before.status  # its end may not be recorded yet
        raise NotChangeable(error.id, status, write.verb, ()) from None


def _append_with_reviews(core: Core, write: Write, *, is_guarded: bool) -> Step[Appended]:
    """Append the refutation and the reviews on the same page as one batch.

    If `is_guarded`, the script refuses it if further observations rest on the refuted one by then.
    """
    relations = yield from open_relations(core.log)
    exposure = yield from exposure_of(core, relations, write.event.page, write.event.subject, BusState(core).happened)
    event = cast(StatusChanged, write.event).model_copy(
        update={
            "seen_by": exposure.viewers()[-_MAX_SEEN:],
            "followed": list(dict.fromkeys(each.action for each in exposure.actions))[-_MAX_SEEN:],
        }
    )
    write.event_or_draft = event
    resting, found = yield from dependents(core, relations, event.subject)
    if is_guarded:
        since = relations.reached[core.log.shard(event.page)]
        write.argument = f"{since.stream_id}:{' '.join(resting.beneath)}"
    reviews = [review(event, each) for each in found if each.observation.page == event.page]
    return (yield from append(core.log, event.page, [write, *reviews[: MAX_BATCH - 1]]))
