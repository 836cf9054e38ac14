"""The copies of a session's conversation in its forks."""

from __future__ import annotations

from typing import NamedTuple

from scratchbus.domain.memories import Session
from scratchbus.domain.memory_events import SessionSpawned
from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import Position
from scratchbus.domain.tasks import PREFIX as TASKS
from scratchbus.domain.values import SESSION_PAGES, page_of_session
from scratchbus.engine.steps import Step
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.turns import PREFIX as TURNS
from scratchbus.readmodel.history import history
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core

AFTER = "01"
"""The suffix, after the 13 digits of a millisecond, of a copy's id if the original's id was taken in the fork."""


class Copy(NamedTuple):
    """A copy: the page of the fork, and its subject there."""

    page: str
    subject: str


def copied_event_id(first: SessionSpawned, subject: str, version: int) -> str:
    """Return the id of the event that makes a version of a copy, in the fork that an event began."""
    return f"{first.id}/{subject}/{version}"


def copies_in_forks(core: Core, tombstone: Erased) -> Step[list[Copy]]:
    """Return the copies of an erased turn, summary or task in forks of its session, including erased ones.

    Includes copies that a fork begun before the tombstone may be about to write.
    """
    found: list[Copy] = []
    page, subject = tombstone.page, tombstone.subject
    if not page.startswith(SESSION_PAGES) or not subject.startswith((TURNS, TASKS)):
        return found
    for event in (yield from history(core.log, page, SESSION)):
        if isinstance(event, SessionSpawned) and event.fork:
            found += yield from _copies_in(core, event, tombstone)
    return found


def _copies_in(core: Core, first: SessionSpawned, tombstone: Erased) -> Step[list[Copy]]:
    child, subject = page_of_session(first.session), tombstone.subject
    renamed = f"{subject}{AFTER}"  # if this exists, the fork has something of its own under the original's id
    expected = subject
    for name in (renamed, subject):
        events = yield from history(core.log, child, name)
        if events and (isinstance(events[-1], Erased) or events[0].id == copied_event_id(first, name, 1)):
            return [Copy(child, name)]
        if events and name == subject:
            expected = renamed
    return [Copy(child, expected)] if (yield from _may_be_copied(core, first, tombstone)) else []


def _may_be_copied(core: Core, first: SessionSpawned, tombstone: Erased) -> Step[bool]:
    """Return whether a fork without a copy may have read the original before it was erased, and be about to write."""
    if not tombstone.positions or not Position.parse(tombstone.positions[0]).seq < first.seq < tombstone.seq:
        return False
    its_session = yield from recollect_one(core, page_of_session(first.session), SESSION)
    return isinstance(its_session, Session) and not its_session.ended
