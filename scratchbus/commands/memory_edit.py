"""Edits of an agent's memory: the arguments, the decision, and the check whether one is a retry."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar

from scratchbus.commands.execution import Occasion
from scratchbus.domain.event import Event
from scratchbus.domain.models import CheckedBy, EventId, Given
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_whole
from scratchbus.engine.steps import Step
from scratchbus.errors import RevisionConflict
from scratchbus.eventlog.append import find_attempt
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections import session
from scratchbus.readmodel.scope import Core


class MemoryEdit(Given):
    """A caller's arguments for editing a memory. A subclass has the fields of one edit, and its decision."""

    verb: ClassVar[str]
    subject: ClassVar[str]
    ends_as: ClassVar[str] = ""
    """The final status of its subject, if it is the last edit of the subject."""
    event_id: EventId = None

    @property
    def about(self) -> str:
        """The subject."""
        return self.subject

    def retry_arguments(self) -> list[object]:
        """Return the arguments that a retry has to repeat, besides the subject; a revision only if one was given."""
        arguments = {name: value for name, value in self.__dict__.items() if name not in ("id", "event_id")}
        return [value for name, value in arguments.items() if name != "revision" or value is not None]

    def decide(self, occasion: Occasion, document: Any) -> Event | None:
        """Return the event that the edit makes of the current subject, None if it would change nothing.

        Raises InvalidInput, NotFound, Conflict.
        """
        raise NotImplementedError

    def on(self, core: Core, page: str) -> Occasion:
        """Return the occasion of carrying it out now."""
        return Occasion.of(core, page, self.event_id, self.verb, self.about, *self.retry_arguments())


def put(
    occasion: Occasion, event: Event, version: int | None, status: str = "", varying: frozenset[str] = frozenset()
) -> Write:
    """Return the write of an event guarded on a version of its subject; with a status it is the last one."""
    write = Write(event, Op.PUT, occasion.digest, version, status=status, argument=session.SUBJECT, varying=varying)
    write.status_class = "final" if status else ""
    return write


Revision = Annotated[
    int | None, CheckedBy(partial(check_whole, "revision", minimum=0, advice="give the number that a read returned"))
]
"""The revision that a write of a whole text or list is based on."""


def check_based_on(what: str, revision: int | None, actual: int, content: object) -> None:
    """Raise RevisionConflict unless a write is based on the actual revision; 0 also means empty."""
    if revision is not None and revision != actual and (revision or content):
        raise RevisionConflict(what, revision, actual)


def is_retry(core: Core, occasion: Occasion, subject: str) -> Step[bool]:
    """Return whether an event with a caller's id is in the log. Raises EventIdReused for another write."""
    return (yield from earlier_attempt(core, occasion, subject)) is not None


def earlier_attempt(core: Core, occasion: Occasion, subject: str) -> Step[list[Position] | None]:
    """Return the position of the event with a caller's id; None if there is none. Raises EventIdReused."""
    if not occasion.digest:
        return None
    write = Write(occasion.event(Event, subject), Op.PUT, occasion.digest, body=b"{}")
    return (yield from find_attempt(core.log, occasion.page, [write]))
