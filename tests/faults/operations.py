"""Every write operation of a page, for tests that inject a fault during it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from scratchbus import Bus, NewObservation, Observation
from scratchbus.domain.events import Claimed
from scratchbus.domain.ownership import holder_in_head, owner_token
from scratchbus.errors import Conflict, NotFound
from scratchbus.eventlog.append import append
from scratchbus.eventlog.ids import new_id
from scratchbus.eventlog.writes import Op, Write
from scratchbus.page import Page

_numbers = count(1)


def _add(page: Page, **more: Any) -> Observation:
    return page.add("observation", "something", **more)


def _open(page: Page) -> list[str]:
    return [_add(page).id]


def _keyed(page: Page) -> list[str]:
    key = f"key-{next(_numbers)}"
    return [_add(page, dedupe_key=key).id, key]


def _rested_on(page: Page) -> list[str]:
    id = _add(page).id
    return [id, _add(page, evidence=[id]).id]


def _resolved(page: Page) -> list[str]:
    return [page.resolve(_add(page).id).id]


def _two_resolved(page: Page) -> list[str]:
    return _resolved(page) + _resolved(page)


SUBJECT = {"source": "subject", "instance": "subject"}
"""The settings of clients that execute the operations."""


class Operation(NamedTuple):
    """A write: its preparation, the call, a concurrent write that interferes, and the kinds of its events.

    Another client executes `prepare` and `meddle`; `meddle` may be refused. With `is_held`, the prepared observation is
    claimed by the `SUBJECT`, and its fence is passed too.
    """

    prepare: Callable[[Page], list[Any]]
    act: Callable[..., Any]
    meddle: Callable[..., object]
    kinds: tuple[str, ...]
    is_held: bool = False


OPERATIONS: dict[str, Operation] = {
    "add": Operation(
        lambda page: [],
        lambda page, event_id: _add(page, event_id=event_id),
        lambda page: _add(page),
        ("added",),
    ),
    "add, a free key": Operation(
        lambda page: [f"key-{next(_numbers)}"],
        lambda page, key, event_id: _add(page, dedupe_key=key, event_id=event_id),
        lambda page, key: _add(page, dedupe_key=key),
        ("added|repeated",),
    ),
    "add, a held key": Operation(
        _keyed,
        lambda page, id, key, event_id: _add(page, dedupe_key=key, times=3, event_id=event_id),
        lambda page, id, key: _add(page, dedupe_key=key),
        ("repeated",),
    ),
    "add, a key freed meanwhile": Operation(
        _keyed,
        lambda page, id, key, event_id: _add(page, dedupe_key=key, times=3, event_id=event_id),
        lambda page, id, key: page.resolve(id),
        ("added|repeated",),
    ),
    "add many": Operation(
        lambda page: [],
        lambda page, event_id: page.add_many(
            [NewObservation(type="observation", content=word) for word in ("one", "two", "three")], event_id=event_id
        ),
        lambda page: _add(page),
        ("added", "added", "added"),
    ),
    "update": Operation(
        _open,
        lambda page, id, event_id: page.update(id, content="else", event_id=event_id),
        lambda page, id: page.update(id, tags=["meddled"]),
        ("updated",),
    ),
    "update with its status": Operation(
        _open,
        lambda page, id, event_id: page.update(id, content="else", status="pending_review", event_id=event_id),
        lambda page, id: page.update(id, status="active"),
        ("updated", "status_changed"),
    ),
    "update from a version": Operation(
        _open,
        lambda page, id, event_id: page.update(id, content="else", expected_version=1, event_id=event_id),
        lambda page, id: page.link(id, "meddled"),
        ("updated",),
    ),
    "review": Operation(
        _open,
        lambda page, id, event_id: page.review(id, event_id=event_id),
        lambda page, id: page.update(id, status="active"),
        ("status_changed",),
    ),
    "resolve": Operation(
        _open,
        lambda page, id, event_id: page.resolve(id, event_id=event_id),
        lambda page, id: page.reopen(id),
        ("status_changed",),
    ),
    "resolve, cleared meanwhile": Operation(
        _open,
        lambda page, id, event_id: page.resolve(id, event_id=event_id),
        lambda page, id: page.clear_resolved([id]),
        ("status_changed",),
    ),
    "archive": Operation(
        _open,
        lambda page, id, event_id: page.archive(id, event_id=event_id),
        lambda page, id: page.link(id, "meddled"),
        ("status_changed",),
    ),
    "reopen": Operation(
        _resolved,
        lambda page, id, event_id: page.reopen(id, event_id=event_id),
        lambda page, id: page.resolve(id),
        ("status_changed",),
    ),
    "claim": Operation(
        _open,
        lambda page, id, event_id: page.claim(id, event_id=event_id),
        lambda page, id: page.link(id, "meddled"),
        ("claimed",),
    ),
    "claim, contested": Operation(
        _open,
        lambda page, id, event_id: page.claim(id, event_id=event_id),
        lambda page, id: page.claim(id),
        ("claimed",),
    ),
    "renew a claim": Operation(
        _open,
        lambda page, id, fence, event_id: page.claim(id, fence=fence, event_id=event_id),
        lambda page, id, fence: page.refute(id, reason="misread"),
        ("claimed",),
        is_held=True,
    ),
    "release": Operation(
        _open,
        lambda page, id, fence, event_id: page.release(id, event_id=event_id),
        lambda page, id, fence: page.claim(id),
        ("released",),
        is_held=True,
    ),
    "resolve with a fence": Operation(
        _open,
        lambda page, id, fence, event_id: page.resolve(id, fence=fence, event_id=event_id),
        lambda page, id, fence: page.reopen(id),
        ("status_changed",),
        is_held=True,
    ),
    "resolve with an action": Operation(
        _open,
        lambda page, id, event_id: page.resolve(id, action="goal-1", event_id=event_id),
        lambda page, id: page.reopen(id),
        ("linked", "status_changed"),
    ),
    "resolve with an action and a version": Operation(
        _open,
        lambda page, id, event_id: page.resolve(id, action="goal-1", expected_version=1, event_id=event_id),
        lambda page, id: page.link(id, "meddled"),
        ("linked", "status_changed"),
    ),
    "update and release": Operation(
        _open,
        lambda page, id, fence, event_id: page.update(id, content="else", fence=fence, release=True, event_id=event_id),
        lambda page, id, fence: page.claim(id),
        ("updated", "released"),
        is_held=True,
    ),
    "link": Operation(
        _open,
        lambda page, id, event_id: page.link(id, "goal-1", event_id=event_id),
        lambda page, id: page.resolve(id),
        ("linked",),
    ),
    "refute": Operation(
        _rested_on,
        lambda page, id, above, event_id: page.refute(id, reason="misread", event_id=event_id),
        lambda page, id, above: page.claim(above),
        ("status_changed", "status_changed"),
    ),
    "clear resolved": Operation(
        _two_resolved,
        lambda page, one, two, event_id: page.clear_resolved([one, two], event_id=event_id),
        lambda page, one, two: page.reopen(two),
        ("cleared", "cleared"),
    ),
}
"""Every write operation by name. A kind may have alternatives: `added|repeated`."""


def prepare(operation: Operation, bus: Bus) -> list[Any]:
    """Create what an operation needs and return its arguments; a claim belongs to the subject."""
    things = operation.prepare(bus.page())
    if operation.is_held:
        owner = owner_token(SUBJECT["source"], SUBJECT["instance"])
        event = Claimed(
            id=new_id(), page="main", subject=things[0], by="other", holder=SUBJECT["source"], ttl=30_000, owner=owner
        )
        write = Write(event, Op.CLAIM, argument=f"30000:{holder_in_head(event.holder, owner)}")
        things.append(bus.converse(append(bus.core.log, "main", [write])).written[0].fence)
    return things


def meddle(operation: Operation, page: Page, things: list[Any]) -> None:
    """Interfere with an operation; the bus may refuse that."""
    with suppress(Conflict, NotFound):
        operation.meddle(page, *things)


def are_of_kinds(kinds: Sequence[str], expected: tuple[str, ...]) -> bool:
    """Return whether these are the kinds of events that an operation appends."""
    return len(kinds) == len(expected) and all(
        kind in wanted.split("|") for kind, wanted in zip(kinds, expected, strict=True)
    )
