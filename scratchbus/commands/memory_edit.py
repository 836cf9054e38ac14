"""Edits of what an agent remembers: what callers give, and what they decide."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar

from scratchbus.commands.execution import Occasion
from scratchbus.domain.event import Event
from scratchbus.domain.values import CheckedBy, EventId, Given, check_whole
from scratchbus.errors import RevisionConflict
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections import session
from scratchbus.readmodel.scope import Core


class MemoryEdit(Given):
    """What a caller gave to edit a subject of a memory. A subclass has the fields of one edit, and what it decides."""

    verb: ClassVar[str]
    subject: ClassVar[str]
    ends_as: ClassVar[str] = ""
    """The status that it leaves its subject with for good, if it is the last edit of it."""
    event_id: EventId = None

    @property
    def about(self) -> str:
        """The subject."""
        return self.subject

    def said(self) -> list[object]:
        """Return what a retry has to repeat, besides the subject; a revision only where one was given."""
        own = {name: value for name, value in self.__dict__.items() if name not in ("id", "event_id")}
        return [value for name, value in own.items() if name != "revision" or value is not None]

    def decide(self, occasion: Occasion, document: Any) -> Event | None:
        """Return the event that it makes of its subject as it is, None for one that would change nothing.

        Raises InvalidInput, NotFound, Conflict.
        """
        raise NotImplementedError

    def on(self, core: Core, page: str) -> Occasion:
        """Return the occasion of carrying it out now."""
        return Occasion.of(core, page, self.event_id, self.verb, self.about, *self.said())


def put(occasion: Occasion, event: Event, version: int | None, status: str = "") -> Write:
    """Return the write of an event upon a version of its subject; with a status it is the last one."""
    final = "final" if status else ""
    return Write(event, Op.PUT, occasion.digest, version, status=status, status_class=final, argument=session.SUBJECT)


Revision = Annotated[
    int | None, CheckedBy(partial(check_whole, "revision", least=0, advice="give the number that reading it told"))
]
"""The revision that a write of the whole of a text or a list is based on."""


def check_based_on(what: str, revision: int | None, actual: int, content: object) -> None:
    """Raise RevisionConflict unless the actual revision is the one that a write is based on; 0 also means empty."""
    if revision is not None and revision != actual and (revision or content):
        raise RevisionConflict(what, revision, actual)
