"""State that an older version folded from an entry after the tail: readers ask for a rebuild, which fixes it."""

from __future__ import annotations

import pytest

from scratchbus.errors import LogRewound
from scratchbus.eventlog.checkpoint import Checkpoint, read_checkpoint
from scratchbus.projections import scratch_page
from tests.contracts.test_foreign_entries import HOUR_MS, add_by_hand
from tests.engines import ONE
from tests.inspection import assert_sound, await_tick, keys_of, now_ms, project, send, settle

pytestmark = pytest.mark.engines(*ONE)

IDS = {
    "beyond valid positions": lambda bus: "18446744073709551614-5",
    "in an hour": lambda bus: f"{now_ms(bus) + HOUR_MS}-7",
    "the next number": lambda bus: f"{now_ms(bus)}-3",
    "a later number": lambda bus: f"{now_ms(bus)}-100",
    "made by Redis": lambda bus: f"{now_ms(bus)}-0",
}


def set_checkpoint(bus, id):
    """Set the checkpoint to an entry, as older versions did after folding it."""
    stored = str(bus.converse(read_checkpoint(keys_of(bus)))) or f"0-0|e|1|{scratch_page.PAGED}||0123456789ab"
    send(bus, "SET", keys_of(bus).live, f"{id}|by-hand|{stored.split('|', 2)[2]}")
    Checkpoint.parse.cache_clear()


@pytest.mark.parametrize("repaired", [False, True], ids=["present", "repaired"])
@pytest.mark.parametrize("written", [False, True], ids=["no event since", "an event since"])
@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_readers_ask_for_a_rebuild_which_fixes_the_state(bus, page, id, written, repaired):
    page.add("observation", "one")
    page.add("observation", "two")
    project(bus)
    settle(bus)
    foreign = id(bus)
    set_checkpoint(bus, foreign)
    if not repaired:
        add_by_hand(bus, foreign)
    elif written:
        await_tick(bus)
        page.add("observation", "three")
    for ask in (page.list, lambda: project(bus), bus.view().__enter__):
        with pytest.raises(LogRewound, match="run `scratchbus rebuild`"):
            ask()
    if not (written and repaired):
        for ask in (lambda: page.list(stale_ok=True), bus.status):
            with pytest.raises(LogRewound, match="run `scratchbus rebuild`"):
                ask()
    assert "checkpoint" in [each.kind for each in bus.verify().findings]
    bus.rebuild()
    assert len(page.list()) == 2 + (repaired and written)
    bus.repair()
    page.add("observation", "later")
    assert_sound(bus)


@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_rebuild_drops_state_without_events(bus, page, id):
    foreign = id(bus)
    set_checkpoint(bus, foreign)
    add_by_hand(bus, foreign)
    bus.repair()
    with pytest.raises(LogRewound, match="run `scratchbus rebuild`"):
        page.list()
    bus.rebuild()
    assert page.list() == []
    page.add("observation", "first")
    assert_sound(bus)
