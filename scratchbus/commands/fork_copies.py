"""The copies of a session's conversation in its forks."""

from __future__ import annotations

from typing import NamedTuple

from scratchbus.domain.memory_events import SessionSpawned
from scratchbus.domain.page_events import Erased
from scratchbus.domain.tasks import PREFIX as TASKS
from scratchbus.domain.values import SESSION_PAGES, page_of_session
from scratchbus.engine.steps import Step
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.turns import PREFIX as TURNS
from scratchbus.readmodel.history import history
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


def copies_in_forks(core: Core, page: str, subject: str) -> Step[list[Copy]]:
    """Return the copies of a turn, a summary or a task in forks of its session, including erased ones."""
    found: list[Copy] = []
    if not page.startswith(SESSION_PAGES) or not subject.startswith((TURNS, TASKS)):
        return found
    for event in (yield from history(core.log, page, SESSION)):
        if isinstance(event, SessionSpawned) and event.fork:
            found += yield from _copies_in(core, event, subject)
    return found


def _copies_in(core: Core, first: SessionSpawned, subject: str) -> Step[list[Copy]]:
    child = page_of_session(first.session)
    renamed = f"{subject}{AFTER}"  # if this exists, the fork has something of its own under the original's id
    for name in (renamed, subject):
        events = yield from history(core.log, child, name)
        if events and (isinstance(events[-1], Erased) or events[0].id == copied_event_id(first, name, 1)):
            return [Copy(child, name)]
    return []
