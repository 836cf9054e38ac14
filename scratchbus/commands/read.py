"""Reading observations and their history."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from scratchbus.commands.outcome import check_statuses, not_found
from scratchbus.domain.checks import check_limit, check_some
from scratchbus.domain.events import EVENTS, Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_id, check_page
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, NotFound, UnknownType, shown
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.reader import Narrow
from scratchbus.projections.filters import Filter
from scratchbus.projections.table import check_subject
from scratchbus.readmodel.history import history
from scratchbus.readmodel.queries import Freshness, PastState, active, get, read_head
from scratchbus.readmodel.scope import Core, type_of
from scratchbus.readmodel.search import search


def narrow_of(
    pages: str | Collection[str] | None, types: str | Collection[str] | None, kinds: str | Collection[str] | None
) -> Narrow:
    """Return what `events` was given as one object. Raises InvalidField, InvalidName.

    Of a type there may be events before this process knows it, or when the registry no longer does.
    """
    for page in check_some("pages", pages) or ():
        check_page(page)
    check_some("types", types)
    for kind in check_some("kinds", kinds) or ():
        if kind not in EVENTS:
            near = get_close_matches(kind, EVENTS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidField("kinds", f"{shown(kind)} is not a kind of event; {hint}known: {', '.join(EVENTS)}")
    return Narrow.of(pages, types, kinds)


class Reads(Protocol):
    """A page as it can be read: as it is, or as it was."""

    @property
    def page(self) -> str:
        """The name of the page."""
        ...

    def get(self, ids: list[str]) -> Step[dict[str, Observation]]:
        """Return the observations with these ids, by id; those that are not on the page are left out."""
        ...

    def active(self, limit: int | None) -> Step[list[Observation]]:
        """Return the active observations by priority, then newest first. Raises InvalidField for a limit below 1."""
        ...

    def search(self, wanted: Filter, limit: int | None, below: int | None) -> Step[list[Observation]]:
        """Return what matches, newest first by when it was added; `below` is a seq to go on below."""
        ...

    def place_of(self, id: str) -> Step[int | None]:
        """Return the seq at which an observation was added, if that is known."""
        ...


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as the engine has it: as it is now, or as it was earlier."""

    log: Log
    page: str
    freshness: Freshness
    earlier: PastState | None = None

    def get(self, ids: list[str]) -> Step[dict[str, Observation]]:
        """See `Reads`."""
        return get(self.log, self.page, ids, self.freshness, self.earlier)

    def active(self, limit: int | None) -> Step[list[Observation]]:
        """See `Reads`."""
        return active(self.log, self.page, self.freshness, limit, self.earlier)

    def search(self, wanted: Filter, limit: int | None, below: int | None) -> Step[list[Observation]]:
        """See `Reads`."""
        return search(self.log, self.page, self.freshness, wanted, limit, below, self.earlier)

    def place_of(self, id: str) -> Step[int | None]:
        """See `Reads`; what was cleared has its place too."""
        head = (yield from read_head(self.log, self.page, id)) if self.earlier is None else None
        if head is not None:
            return head.added
        found = yield from self.get([id])  # the head of what is final may have been dropped
        return found[id].added_seq if id in found else None


def get_one(page: Reads, id: str) -> Step[Observation | None]:
    """Return one observation, or None."""
    id = check_id(id)
    return (yield from page.get([id])).get(id)


def list_all(
    core: Core, page: Reads, wanted: Filter, limit: int | None, after: Observation | Position | str | None
) -> Step[list[Observation]]:
    """Return what matches, newest first."""
    check_limit(limit)
    if wanted.type is not None and wanted.type not in core.registry.types:
        yield from _check_type(core, page, wanted.type)
    is_old = wanted.type is not None and wanted.type not in core.registry.types  # its statuses may be gone with it
    if wanted.status is not None and not is_old:
        yield from check_statuses(core, "status", wanted.status)
    below = None
    if isinstance(after, Observation):
        below = after.added_seq
    elif isinstance(after, Position):
        below = after.seq
    elif after is not None:
        id = check_id(after)
        below = yield from page.place_of(id)
        if below is None:
            raise NotFound(f"after: there is no {id} on page {page.page!r}; pass the last item of the page before")
    return (yield from page.search(wanted, limit, below))


def _check_type(core: Core, page: Reads, name: str) -> Step[None]:
    """Raise UnknownType for a type that the registry does not have, unless the page has old ones of it."""
    try:
        yield from type_of(core, name)
    except UnknownType:
        if not (yield from page.search(Filter(type=name), 1, None)):
            raise


def list_history(core: Core, page: str, id: str) -> Step[list[Event]]:
    """Return the events about an observation, oldest first."""
    id = check_subject(id)
    events = yield from history(core.log, page, id)
    if not events:
        raise not_found(page, id)
    return events
