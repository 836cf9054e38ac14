"""Verify finds keys of the wrong type, a wrong floor and wrong numbers of erased events, and names each key."""

from __future__ import annotations

import re

import pytest

from scratchbus import Bus, Page
from scratchbus.errors import EngineError
from scratchbus.eventlog.keys import PageKeys, shard_of
from scratchbus.readmodel.verify.findings import Finding
from scratchbus.scheduling.paging_out import page_out
from tests.engines import ONE
from tests.faults.interposing import answering_first, interposed
from tests.inspection import keys_of, project, send
from tests.waiting import eventually

pytestmark = [pytest.mark.engines(*ONE), pytest.mark.damages_the_log]


def test_a_key_of_the_wrong_type_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    key = keys_of(bus).heads("ghost")
    send(bus, "SET", key, "x")
    assert bus.verify().findings == [Finding("head", key, "is a string instead of a hash")]


def test_any_key_of_the_wrong_type_is_found(bus: Bus, page: Page) -> None:
    page.add("risk_alert", "open", tags=["t"], owner="agent", dedupe_key="k", ttl="1h", event_id="own")
    page.erase(page.add("observation", "erased").id, reason="private")
    page.archive(page.add("observation", "paged out", tags=["t"]).id)
    project(bus)
    eventually(lambda: bus.converse(page_out(bus.core, 0)).documents == 1)
    keys = keys_of(bus)
    for hash in (PageKeys(keys, "main").snapshots, keys.subscription("all"), keys.dead("all")):
        send(bus, "HSET", hash, "field", "x")
    found, tried = send(bus, "KEYS", f"{keys.tag}*"), set[str]()
    for key in sorted(map(bytes.decode, found)):
        name = key.removeprefix(keys.tag)
        tried.add(name.split(":")[0])
        if name == "meta":
            continue  # no bus opens without it
        kept = send(bus, "DUMP", key)
        send(bus, "DEL", key)
        send(bus, "RPUSH", key, "x")
        wrong = [each.where for each in bus.verify().findings if "is a list instead of a" in each.what]
        if name in ("log", "tail", "open:main"):
            with pytest.raises(EngineError, match=r"WRONGTYPE .*; `scratchbus verify` names its key"):
                page.add("observation", "refused")
        send(bus, "RESTORE", key, 0, kept, "REPLACE")
        assert wrong == [key], name
    assert tried > {"log", "tail", "origin", "pages", "heads", "open", "keys", "ids", "erased", "checkpoint", "p1"}


def test_a_shard_that_the_bus_does_not_have_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    keys = keys_of(bus)
    other = f"{{{keys.bus}:{bus.core.log.shards}}}:"
    send(bus, "SET", f"{other}log", "x")
    send(bus, "SET", f"{other}tail", "x")
    what = f"is no shard of this bus, whose number of shards is {bus.core.log.shards}"
    what += f"; if that is wrong, restore {bus.core.log.keys(0).meta} from a backup"
    assert bus.verify().findings == [Finding("unknown", f"{other}*", what)]


def test_a_number_of_shards_that_was_raised_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    shards = next(n for n in range(bus.core.log.shards + 1, 1_000) if shard_of("main", n) != bus.core.log.shard("main"))
    send(bus, "HSET", bus.core.log.keys(0).meta, "shards", shards)
    what = f"has events of a page of shard {shard_of('main', shards)}, as the bus has {shards} shards"
    what += f"; if that is wrong, restore {bus.core.log.keys(0).meta} from a backup"
    with Bus.connect(bus.settings.url, bus=bus.settings.bus, source="other") as other:
        assert other.page("main").active() == []
        assert other.verify().findings == [Finding("unknown", keys_of(bus).heads("main"), what)]


@pytest.mark.engines(*ONE)
def test_pages_on_a_wrong_shard_are_one_finding_per_shard(bus: Bus) -> None:
    names = [f"page-{number}" for number in range(60)]
    for name in names:
        bus.page(name).add("observation", "one")
    before, after = bus.core.log.shards, 2 * bus.core.log.shards
    moved = [name for name in names if shard_of(name, after) != shard_of(name, before)]
    send(bus, "HSET", bus.core.log.keys(0).meta, "shards", after)
    with Bus.connect(bus.settings.url, bus=bus.settings.bus, source="other") as other:
        found = [each for each in other.verify().findings if each.kind == "unknown"]
    assert len(found) == before
    assert {each.where for each in found} <= {keys_of(bus, name).heads(name) for name in moved}
    others = [int(count[1]) for each in found if (count := re.search(r", and (\d+) more pages are", each.what))]
    assert sum(others) + before == len(moved)


def test_an_entry_that_is_no_event_puts_no_page_on_a_wrong_shard(bus: Bus, page: Page) -> None:
    story, shard = page.add("observation", "story"), bus.core.log.shard("main")
    strays = [name for name in ("a", "b", "c", "d", "e") if shard_of(name, bus.core.log.shards) != shard]
    for number, name in enumerate(strays, 2):
        send(bus, "XADD", keys_of(bus).log, f"{story.ms}-{number}", "page", name)
    send(bus, "SET", keys_of(bus).tail, f"{story.ms}-{len(strays) + 1}|")
    project(bus)
    assert {each.kind for each in bus.verify().findings} >= {"event"}
    assert not [each for each in bus.verify().findings if "more pages" in each.what or "of a page" in each.what]


def test_keys_that_the_server_will_delete_are_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    project(bus)
    keys = [keys_of(bus).log, keys_of(bus).heads("main"), PageKeys(keys_of(bus), "main").docs]
    for key in keys:
        send(bus, "PEXPIRE", key, 600_999)
    found = bus.verify().findings
    assert sorted(each.where for each in found) == sorted(keys)
    assert all(
        re.match(r"will be deleted by the server in (600|599|598) s; send it PERSIST", each.what) for each in found
    )
    for key in keys:
        send(bus, "PERSIST", key)
    assert bus.verify().findings == []


def test_a_floor_that_cannot_be_read_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    send(bus, "SET", keys_of(bus).floor, "garbage")
    assert bus.verify().findings == [Finding("floor", keys_of(bus).floor, "cannot be read: b'garbage'")]


@pytest.mark.parametrize(
    ("ms", "seq", "event_id", "problem"),
    [
        (0, 1_000, "ghost", "which is not below the end of the log"),
        (0, 1, "ghost", "and the event there is "),
        (1, 1, "ghost", "and the log has no event there"),
    ],
    ids=["too high", "another event", "no event"],
)
def test_a_wrong_floor_is_found(bus: Bus, page: Page, ms: int, seq: int, event_id: str, problem: str) -> None:
    first = page.history(page.add("observation", "one").id)[0].position
    page.add("observation", "two")
    send(bus, "SET", keys_of(bus).floor, f"{first.ms + ms}-{seq}|{event_id}")
    (found,) = bus.verify().findings
    assert (found.kind, found.where) == ("floor", keys_of(bus).floor)
    assert problem in found.what


def test_an_event_of_the_log_that_is_recorded_as_erased_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    page.erase(page.add("observation", "two").id, reason="private")
    assert bus.verify().findings == []
    send(bus, "ZADD", keys_of(bus).erased, 1, 1)
    what = "is recorded as erased, and is in the log; readers of an archive would skip it"
    assert bus.verify().findings == [Finding("erased", f"{keys_of(bus).erased} 1", what)]


def test_a_member_of_the_erased_events_that_is_no_number_does_not_stop_verify(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    send(bus, "ZADD", keys_of(bus).erased, 1, "ghost")
    with interposed(bus, lambda call, send: [[b"0", []]] if call.commands[0][0] == "ZSCAN" else send()):
        (found,) = bus.verify().findings
    assert found == Finding("erased", f"{keys_of(bus).erased} ghost", "is not the number of an event")


def test_keys_are_found_although_a_restart_of_the_engine_cut_the_scan_short(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    send(bus, "SET", bus.core.log.keys(0).tag + "stray", "x")
    replies = {"INFO": b"run_id:before", "SCAN": [b"0", []]}
    with interposed(bus, answering_first(replies)):
        assert [each.kind for each in bus.verify().findings] == ["unknown"]
    assert not replies


def test_a_notepad_that_was_erased_twice_is_no_finding(bus: Bus) -> None:
    for _ in range(2):
        bus.notepad("s1").write("private")
        bus.page("session:s1").erase("notepad", reason="private")
        assert bus.verify().findings == []


def test_a_wrong_gap_of_the_state_is_found_and_rebuilt(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    project(bus)
    gaps = PageKeys(keys_of(bus), "main").gaps
    send(bus, "HSET", gaps, "5-1", "3")
    assert bus.verify().findings == [Finding("index", f"{gaps} 5-1", "should not be there")]
    bus.rebuild()
    assert bus.verify().is_sound
