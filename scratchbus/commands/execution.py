"""Carry out a command on an observation: parse, decide, append, and return the result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from scratchbus.commands.first_attempts import earlier_change, recall_change
from scratchbus.commands.observations import Lifetime, finish, last_lifetime, read_target
from scratchbus.domain.checks import check_reason
from scratchbus.domain.digest import digest_of
from scratchbus.domain.event import Event
from scratchbus.domain.models import CheckedBy, Guards
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.values import check_id, check_source, check_whole
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, InvalidInput, InvalidTransition, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.causes import reasons
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.writes import Write
from scratchbus.readmodel.scope import Core, by_newest_registry
from scratchbus.settings import Settings

E = TypeVar("E", bound=Event)

_TRIES = 5

Reason = Annotated[str | None, CheckedBy(check_reason)]
Version = Annotated[int | None, CheckedBy(partial(check_whole, "expected_version"))]
Actor = Annotated[str | None, CheckedBy(partial(check_source, field="by"))]
"""Who acts; None stands for the identity of the bus."""


class Occasion(NamedTuple):
    """Where, when, by whom and why a command is carried out, and under which event id.

    A decision depends on this, on the arguments and on the current observation or document, and on nothing else.
    `owner` is the owner token of the claims made here. `digest` distinguishes a retry with the caller's own event id
    from another call; it is "" without such an id. `lifetime` is the lifetime last given to a closed observation.
    """

    settings: Settings
    owner: str
    page: str
    by: str
    now: datetime
    cause_fields: Mapping[str, Any]
    event_id: str
    digest: str
    lifetime: Lifetime = Lifetime()

    @classmethod
    def of(cls, core: Core, page: str, event_id: str | None, verb: str, *arguments: object) -> Occasion:
        """Return the occasion of an operation that happens now; a retry has to repeat the `arguments`."""
        digest = digest_of(verb, page, *arguments) if event_id else ""
        own_id = event_id or new_event_id()
        return cls(core.settings, core.log.owner, page, core.by, datetime.now(UTC), reasons(), own_id, digest)

    def caused_by(self, position: Position, by: str | None = None) -> Occasion:
        """Return this occasion with the event at a position as its cause, and with another author if `by` is given."""
        return self._replace(by=by or self.by, cause_fields={**self.cause_fields, "cause": str(position)})

    def following(self, suffix: str) -> Occasion:
        """Return the occasion of an event that follows those of this one in a batch; its id has the suffix."""
        return self._replace(event_id=self.event_id + suffix)

    def event(self, kind: type[E], subject: str, suffix: str = "", **fields: Any) -> E:
        """Return an event; in a batch, all but the first have `suffix` appended to their id."""
        return kind(
            id=self.event_id + suffix, page=self.page, subject=subject, by=self.by, **self.cause_fields, **fields
        )


def nth_suffix(number: int) -> str:
    """Return the suffix of the id of an event in a batch: none for the first, `/1` for the second."""
    return f"/{number}" if number else ""


class Command(Guards):
    """A caller's arguments for changing one observation. A subclass has the fields of one command, and its decision."""

    verb: ClassVar[str]
    id: Annotated[str, CheckedBy(check_id)]

    def retry_arguments(self, by: str) -> tuple[object, ...]:
        """Return the arguments that a retry must repeat besides the id; `by` is the identity of the bus."""
        return tuple(value for name, value in self.__dict__.items() if name not in Command.model_fields)

    @property
    def continues_lifetime(self) -> bool:
        """Whether it may reopen a closed observation for its last lifetime."""
        return False

    def look_up(self, core: Core, page: str) -> Step[None]:
        """Raise InvalidInput if it names something that the bus does not have."""
        yield from ()

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """Return the writes of the command. Raises InvalidInput.

        `before` is the current observation, `kind` its type. Both are None if this can only be a retry; `kind` is
        None if the type was removed.
        """
        raise NotImplementedError

    def on(self, core: Core, page: str) -> Occasion:
        """Return the occasion of carrying it out now."""
        return Occasion.of(core, page, self.event_id, self.verb, self.id, *self.retry_arguments(core.by))


def execute(
    core: Core, page: str, kind: type[Command], arguments: Mapping[str, Any], follow_up: Command | None = None
) -> Step[Observation]:
    """Parse the named arguments, carry out the command, and return the resulting observation.

    The writes of `follow_up`, about the same observation, follow in the same batch.
    """
    command = kind.parse(arguments)
    occasion = command.on(core, page)
    try:
        attempt = partial(_carry_out, core, page, command, occasion, follow_up)
        return (yield from by_newest_registry(core, attempt))
    except InvalidInput:
        _, its_type = yield from read_target(core, page, command.id, command.event_id)
        earlier = yield from earlier_change(
            core, page, occasion.event_id, occasion.digest,
            lambda then: _writes(command, occasion._replace(now=then), None, its_type, follow_up),
        )  # fmt: skip
        if earlier is None:
            raise
        return earlier


def _carry_out(
    core: Core, page: str, command: Command, occasion: Occasion, follow_up: Command | None
) -> Step[Observation]:
    settings = core.settings
    yield from command.look_up(core, page)
    for _ in range(_TRIES):
        before, its_type = yield from read_target(core, page, command.id, command.event_id)
        if before is not None and before.status_class == "closed" and command.continues_lifetime:
            occasion = occasion._replace(lifetime=(yield from last_lifetime(core, before)))
        writes = _writes(command, occasion, before, its_type, follow_up)
        try:
            appended = yield from append(
                core.log, page, writes, room=settings.max_observations, on_full=settings.on_full
            )
        except InvalidTransition as error:
            if error.to_status not in error.allowed:
                raise
            continue  # it was closed or reopened since it was read
        except VersionConflict as conflict:
            if conflict.expected == getattr(command, "expected_version", None):
                raise
            continue  # the caller did not ask for this version: it has changed since it was read
        if before is None and appended.recalled:
            return (yield from recall_change(core, page, appended.recalled[-1]))
        return (yield from finish(core, page, before, writes, appended))
    raise Conflict(f"{command.id} keeps changing; try again")


def _writes(
    command: Command,
    occasion: Occasion,
    before: Observation | None,
    its_type: ObservationType | None,
    follow_up: Command | None,
) -> list[Write]:
    """Return the writes of a command, and those of the one that follows it in the same batch."""
    writes = command.decide(occasion, before, its_type)
    if follow_up is not None:
        follow_up_id = f"{occasion.event_id}/{len(writes)}"
        writes += follow_up.decide(occasion._replace(event_id=follow_up_id, digest=""), before, its_type)
    return writes
