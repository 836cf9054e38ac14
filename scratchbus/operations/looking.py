"""Reading observations and their history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from scratchbus.core import Core
from scratchbus.domain.checks import as_time
from scratchbus.domain.events import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_id
from scratchbus.errors import InvalidField, NotFound
from scratchbus.log.steps import Step
from scratchbus.operations.outcome import not_found
from scratchbus.queries import Filter, active, get, history, read_head, search


def filter_of(
    type: str | None,
    status: str | Collection[str] | None,
    owner: str | None,
    source: str | None,
    tags: str | Sequence[str] | None,
    text: str | None,
    context: Mapping[str, Any] | None,
    since: datetime | None,
) -> Filter:
    """Return what `list` was given as one object."""
    return Filter(
        type=type,
        status=None if status is None else frozenset([status] if isinstance(status, str) else status),
        owner=owner,
        source=source,
        tags=() if tags is None else (tags,) if isinstance(tags, str) else tuple(tags),
        text=text,
        context=dict(context) if context is not None else None,
        since=None if since is None else as_time("since", since),
    )


def get_one(core: Core, page: str, id: str, stale_ok: bool) -> Step[Observation | None]:
    """Return one observation, or None."""
    id = check_id(id)
    found = yield from get(core.log, page, [id], core.fresh._replace(stale_ok=stale_ok))
    return found.get(id)


def list_all(
    core: Core, page: str, wanted: Filter, limit: int | None, after: Observation | Position | str | None, stale_ok: bool
) -> Step[list[Observation]]:
    """Return what matches, newest first."""
    _check_limit(limit)
    below = None
    if isinstance(after, Observation):
        below = after.added_seq
    elif isinstance(after, Position):
        below = after.seq
    elif after is not None:
        id = check_id(after)
        head = yield from read_head(core.log, page, id)
        if head is None:
            raise NotFound(f"after: there is no {id} on page {page!r}; pass the last item of the page before")
        below = head.added
    return (yield from search(core.log, page, core.fresh._replace(stale_ok=stale_ok), wanted, limit, below))


def list_active(core: Core, page: str, limit: int | None, stale_ok: bool) -> Step[list[Observation]]:
    """Return the active observations by priority, then newest."""
    _check_limit(limit)
    return (yield from active(core.log, page, core.fresh._replace(stale_ok=stale_ok), limit))


def _check_limit(limit: object) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise InvalidField("limit", f"{limit!r} is not a number above 0; use None for no limit")


def list_history(core: Core, page: str, id: str) -> Step[list[Event]]:
    """Return the events about an observation, oldest first."""
    id = check_id(id)
    events = yield from history(core.log, page, id)
    if not events:
        raise not_found(page, id)
    return events
