"""State that an older version folded from an entry behind the tail: readers say so, and a rebuild makes them whole."""

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
    "beyond what positions can be": lambda bus: "18446744073709551614-5",
    "in an hour": lambda bus: f"{now_ms(bus) + HOUR_MS}-7",
    "the next number": lambda bus: f"{now_ms(bus)}-3",
    "a number of later": lambda bus: f"{now_ms(bus)}-100",
    "made by Redis": lambda bus: f"{now_ms(bus)}-0",
}


def fold_as_before(bus, id):
    """Have the checkpoint stand at an entry, as older versions folded it."""
    stored = str(bus.converse(read_checkpoint(keys_of(bus)))) or f"0-0|e|1|{scratch_page.PAGED}||0123456789ab"
    send(bus, "SET", keys_of(bus).live, f"{id}|by-hand|{stored.split('|', 2)[2]}")
    Checkpoint.parse.cache_clear()


@pytest.mark.parametrize("repaired", [False, True], ids=["there", "repaired"])
@pytest.mark.parametrize("written", [False, True], ids=["no event since", "an event since"])
@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_readers_ask_for_a_rebuild_which_makes_them_whole(bus, page, id, written, repaired):
    page.add("observation", "one")
    page.add("observation", "two")
    project(bus)
    settle(bus)
    foreign = id(bus)
    fold_as_before(bus, foreign)
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
def test_state_without_any_event_is_dropped(bus, page, id):
    foreign = id(bus)
    fold_as_before(bus, foreign)
    add_by_hand(bus, foreign)
    bus.repair()
    with pytest.raises(LogRewound, match="run `scratchbus rebuild`"):
        page.list()
    bus.rebuild()
    assert page.list() == []
    page.add("observation", "first")
    assert_sound(bus)
