"""Pages of the past, computed independently by folding the log, to compare `as_of` with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scratchbus import Bus, Observation, Page, PastPage, Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.raw_entries import entry_fields, entry_position, is_batch_end
from scratchbus.projections.scratch_page import by_priority, is_active, settled
from scratchbus.readmodel import snapshots
from scratchbus.timetravel import past as past_reads
from tests.inspection import entries, keys_of
from tests.oracle.fold import fold

WAYS = ["undone", "folded", "from a snapshot", "from what was open"]
"""The ways to read a page of the past; see `only`."""


@contextmanager
def only(way: str) -> Iterator[None]:
    """Restrict reads of the past to one way: undoing later events, or folding, with or without snapshots."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "undone":
            patch.setattr(past_reads, "CHEAP_EVENTS", 100_000_000)
            patch.setattr(past_reads, "MAX_UNDONE", 100_000_000)
        else:
            patch.setattr(past_reads, "_undo_later", _nothing)
        if way == "from what was open":
            patch.setattr(past_reads, "CHEAP_EVENTS", -1)
            patch.setattr(past_reads, "MAX_UNDONE", -1)
            patch.setattr(snapshots, "OPEN_MIN_EVENTS", 1)
            patch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
        if way == "from a snapshot":
            patch.setattr(snapshots, "MIN_EVENTS", 1)
            patch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
            patch.setattr(snapshots, "PART", 2)
        yield


def _nothing(*_: object) -> Step[None]:
    yield from ()


def stored_snapshots(page: Page, ending: bytes = b"") -> int:
    """Return the number of stored snapshots of a page; with an ending, of its open set."""
    bus = _bus(page)
    keys = keys_of(bus, page.name)
    return len(bus.converse(snapshots.stored(keys, PageKeys(keys, page.name), ending)))


def _bus(page: Page) -> Bus:
    bus = page._bus
    assert isinstance(bus, Bus)
    return bus


def told_again(page: Page, until: Position, ms: int) -> list[Observation]:
    """Return the observations of a page at a position of its log, settled at a time, newest first."""
    log = [entry for entry in entries(_bus(page), until.shard) if entry_position(entry, until.shard) <= until]
    there = [settled(each, ms) for each in fold(log, until.shard, page=page.name).observations().values()]
    return sorted(there, key=lambda each: -each.added_seq)


def assert_reads_as(past: PastPage, wanted: list[Observation]) -> None:
    """Check that every read of a page of the past returns exactly these observations."""
    assert past.list(limit=None) == wanted
    assert past.active() == sorted(filter(is_active, wanted), key=by_priority)
    for type in {each.type for each in wanted}:
        assert past.list(type=type, limit=2) == [each for each in wanted if each.type == type][:2]
    for status in ("active", "archived"):
        assert past.list(status=status, limit=None) == [each for each in wanted if each.status == status]
    for each in wanted:
        assert past.get(each.id) == each


def batch_ends(bus: Bus, page: Page) -> list[Position]:
    """Return the positions of all batch ends in a page's shard."""
    shard = bus.core.log.shard(page.name)
    ends = [entry for entry in entries(bus, shard) if is_batch_end(entry)]
    return [Position.parse(entry[0].decode())._replace(shard=shard) for entry in ends if entry_fields(entry)]


def assert_past(page: Page, places: list[Position], way: str) -> list[tuple[PastPage, list[Observation]]]:
    """Compare the page as of these positions with the fold of its log; return each with its observations."""
    found = []
    with only(way):
        for place in places:
            past, wanted = page.as_of(place), told_again(page, place, place.ms)
            assert_reads_as(past, wanted)
            found.append((past, wanted))
    return found
