"""Read observations and their history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from operator import attrgetter
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from scratchbus.commands.observations import check_statuses, no_status, not_found, statuses_of
from scratchbus.domain.checks import check_limit, check_some
from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import PAGE_EVENTS, StatusChanged
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_id, check_page
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, InvalidPosition, NotFound, UnknownType, shown
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.entry_filter import EntryFilter
from scratchbus.projections.filters import Filter
from scratchbus.projections.scratch_page import is_ready
from scratchbus.projections.subjects import check_subject
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.history import history, read_events
from scratchbus.readmodel.page_query import active
from scratchbus.readmodel.queries import get, read_head
from scratchbus.readmodel.query_result import PastState
from scratchbus.readmodel.scope import Core, type_of
from scratchbus.readmodel.search import search
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    import difflib

    from scratchbus.domain import events as event_kinds
    from scratchbus.readmodel import published_statuses


def entry_filter_of(
    pages: str | Collection[str] | None,
    types: str | Collection[str] | None,
    kinds: str | Collection[str] | None,
    subjects: str | Collection[str] | None = None,
) -> EntryFilter:
    """Return the arguments of `events` as a filter. Raises InvalidField, InvalidName.

    A type may have events although this process does not know it yet, or the registry no longer has it.
    """
    for page in check_some("pages", pages) or ():
        check_page(page)
    check_some("types", types)
    check_some("subjects", subjects)
    for kind in check_some("kinds", kinds) or ():
        if kind not in PAGE_EVENTS and kind not in event_kinds.EVENTS:
            similar = difflib.get_close_matches(kind, event_kinds.EVENTS, n=1)
            hint = f"did you mean {similar[0]!r}? " if similar else ""
            raise InvalidField(
                "kinds", f"{shown(kind)} is not a kind of event; {hint}known: {', '.join(event_kinds.EVENTS)}"
            )
    return EntryFilter.of(pages, types, kinds, subjects)


MAX_COUNTED = 10_000
"""The most observations of a page, newest first, that are counted by status and type."""


class PageCounts(BaseModel):
    """The observations of a page, counted by status and by type.

    `is_all` is False if the page has more than `total`; then the newest are counted.
    """

    model_config = ConfigDict(defer_build=True)

    page: str
    total: int
    is_all: bool
    statuses: dict[str, int]
    types: dict[str, int]


class Reads(Protocol):
    """A readable page, of the present or the past."""

    @property
    def page(self) -> str:
        """The name of the page."""
        ...

    def get(self, ids: list[str]) -> Step[dict[str, Observation]]:
        """Return the observations with these ids, by id, without those that are not on the page."""
        ...

    def active(self, limit: int | None) -> Step[list[Observation]]:
        """Return the active observations by priority, then newest first. Raises InvalidField for a limit below 1."""
        ...

    def search(self, wanted: Filter, limit: int | None, below: int | None) -> Step[list[Observation]]:
        """Return the matches, newest first by when they were added; `below` is a seq to continue below."""
        ...

    def added_seq_of(self, id: str) -> Step[int | None]:
        """Return the seq at which an observation was added, if known."""
        ...


class StoredPage(NamedTuple):
    """A page as the engine stores it: in its current or an earlier state."""

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

    def ready(self, limit: int | None) -> Step[list[Observation]]:
        """Return the observations that can be claimed now, in the order of `claim_next`."""
        return active(self.log, self.page, self.freshness, limit, self.earlier, is_ready)

    def search(self, wanted: Filter, limit: int | None, below: int | None) -> Step[list[Observation]]:
        """See `Reads`."""
        return search(self.log, self.page, self.freshness, wanted, limit, below, self.earlier)

    def added_seq_of(self, id: str) -> Step[int | None]:
        """See `Reads`; it is known for cleared observations too."""
        head = (yield from read_head(self.log, self.page, id)) if self.earlier is None else None
        if head is not None:
            return head.added
        found = yield from self.get([id])  # the head of a final observation may have been dropped
        return found[id].added_seq if id in found else None


def get_one(page: Reads, id: str) -> Step[Observation | None]:
    """Return one observation, or None."""
    id = check_id(id)
    return (yield from page.get([id])).get(id)


def list_all(
    core: Core, page: Reads, wanted: Filter, limit: int | None, after: Observation | Position | str | None
) -> Step[list[Observation]]:
    """Return the matches, newest first."""
    check_limit(limit)
    if wanted.type is not None and wanted.type not in core.registry.types:
        yield from _check_type(core, page, wanted.type)
    is_old = wanted.type is not None and wanted.type not in core.registry.types  # its statuses may be gone with it
    if wanted.status is not None and not is_old:
        yield from _check_statuses(core, page, wanted.status)
    if after is None:
        below = None
    elif isinstance(after, Observation | Position):
        below = seq_on_page(core.log, page.page, after)
    else:
        id = check_id(after, "after")
        below = yield from page.added_seq_of(id)
        if below is None:
            raise NotFound(f"after: there is no {id} on page {page.page!r}; pass the last item of the page before")
    return (yield from page.search(wanted, limit, below))


def seq_on_page(log: Log, page: str, after: Observation | Position) -> int:
    """Return the seq below which a list of a page continues.

    Raises NotFound for an observation of another page, since lists are ordered within a page, and InvalidPosition for a
    position on another shard than that of the page.
    """
    if isinstance(after, Observation):
        if after.page != page:
            raise NotFound(
                f"after: {after.id} is on page {after.page!r}, not {page!r}; pass the last item of this page"
            )
        return after.added_seq
    if after.checked().shard != log.shard(page):
        raise InvalidPosition(
            f"after: {shown(str(after))} is not on shard {log.shard(page)}, which has page {page!r};"
            " pass the last item of this page"
        )
    return after.seq


def count_all(page: Reads) -> Step[PageCounts]:
    """Return the number of a page's observations by status and type."""
    found = yield from page.search(Filter(), MAX_COUNTED + 1, None)
    counted = found[:MAX_COUNTED]
    return PageCounts(
        page=page.page,
        total=len(counted),
        is_all=len(found) == len(counted),
        statuses=dict(Counter(each.status for each in counted)),
        types=dict(Counter(each.type for each in counted)),
    )


def _check_type(core: Core, page: Reads, name: str) -> Step[None]:
    """Raise UnknownType for a type that neither the registry nor an old observation of the page has."""
    try:
        yield from type_of(core, name)
    except UnknownType:
        if not (yield from page.search(Filter(type=name), 1, None)):
            raise


def _check_statuses(core: Core, page: Reads, statuses: frozenset[str]) -> Step[None]:
    """Raise InvalidField for a status that no type has or had, nor an observation of the page."""
    try:
        yield from check_statuses(core, "status", statuses)
    except InvalidField:
        known = (yield from published_statuses.status_classes(core)) or {}
        for status in statuses - statuses_of(core) - known.keys():
            if not (yield from page.search(Filter(status=frozenset({status})), 1, None)):
                raise no_status(core, "status", status) from None


def list_displaced(core: Core, page: str, newcomers: object) -> Step[list[Observation]]:
    """Return the observations that these newcomers displaced in the batch of their last event.

    Those that are no longer on the page are left out. Raises InvalidField, and PositionLost when the events have left
    the log.
    """
    positions: list[Position] = []
    for each in newcomers if isinstance(newcomers, list | tuple) else [newcomers]:
        if not isinstance(each, Observation):
            raise InvalidField("newcomer", f"{shown(each)} is not an observation; pass what `add` or `reopen` returned")
        if each.page == page and not core.log.displaced_nothing(each.position):
            positions.append(each.position)
    if not positions:
        return []
    ids = yield from _displaced_for(core.log, positions)
    if not ids:
        return []  # without reading the page
    found = yield from get(core.log, page, ids, core.fresh)
    return [found[id] for id in ids if id in found]


def _displaced_for(log: Log, positions: list[Position]) -> Step[list[str]]:
    """Return the ids of the observations displaced for the events at these positions, in the order of the log.

    The events of a batch are read once, however many of them are newcomers.
    """
    newcomers: set[tuple[str, int]] = set()
    ends: dict[int, Position] = {}  # by the seq of the first event of each batch
    events = yield from read_events(log, positions)
    for event in events:
        first = _first_of_batch(event)
        newcomers.add((event.subject, first))
        ends[first] = max(event.position, ends.get(first, event.position))
    before = {end._replace(seq=seq) for first, end in ends.items() for seq in range(first, end.seq)}
    events += yield from read_events(log, sorted(before.difference(positions)))
    return [
        event.subject
        for event in sorted(events, key=attrgetter("position"))
        if isinstance(event, StatusChanged)
        and event.reason_code == "displaced"
        and ((event.reason or "").rpartition(" ")[2], _first_of_batch(event)) in newcomers
    ]


def _first_of_batch(event: Event) -> int:
    """Return the seq of the first event of the batch that an event is in."""
    return event.seq - int(event.batch.partition("/")[0]) + 1


def list_history(core: Core, page: str, id: str) -> Step[event_kinds.Events]:
    """Return the events about an observation, oldest first."""
    id = check_subject(id)
    events = yield from history(core.log, page, id)
    if not events:
        raise not_found(page, id)
    return events
