"""The document on the Redis layout names every key, and every field in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scratchbus import Bus, because
from scratchbus.domain.events import EVENTS
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.trim import Archiving
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.readmodel.rebuild_lease import take
from scratchbus.scheduling.paging_out import page_out
from tests.docs.markdown import ROOT, codes, rows
from tests.inspection import archive, entries, project, raw_append, send
from tests.past_pages import only
from tests.waiting import eventually

TEXT = (ROOT / "docs" / "redis-layout.md").read_text("utf-8")


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """A bus that has every kind of key."""
    terms: dict[str, Any] = {"archive_url": tmp_path_factory.mktemp("archive"), "retain": "1ms", "retain_events": 1}
    with Bus.connect("memory://layout", source="tester", max_observations=2, **terms) as bus:
        bus.push_types(bus.types)
        bus.page("user:42").add("observation", "x")
        archive(bus)
        page = bus.page("user:42")
        page.add("observation", "x", tags=["a#b"], owner="agent", event_id="mine")
        page.add("reminder", "y", remind_on={"type": "risk_alert"}, remind_at=datetime.now(UTC) + timedelta(hours=1))
        claimed = page.add("risk_alert", "z", dedupe_key="k")  # displaces the first
        page.claim(claimed.id)
        page.link(claimed.id, "goal")
        bus.context.assemble(page="user:42", record=True)
        with because(page.history(claimed.id)[0]):
            bus.page("user:43").add("observation", "x", evidence=[claimed.id])
        file = tmp_path_factory.mktemp("types") / "types.yaml"
        file.write_text(f"{bus.types.text}\n  another:\n")
        bus.push_types(file)
        with only("from a snapshot"):
            page.as_of(claimed.position)
        bus.notepad("s1").write("what was found")
        raw_append(bus, "user:42", kind="exploded")
        project(bus)
        send(bus, "SET", bus.core.log.keys(0).reminders, "0-0")
        with bus.subscribe("router", max_attempts=1) as deliveries:
            for _ in range(2):
                next(deliveries).fail("no")
        bus.retry_dead_letters("router", bus.dead_letters("router")[0].position)
        send(bus, "SADD", bus.core.log.keys(0).ids + "retried", "id")
        send(bus, "XDEL", bus.core.log.keys(0).log, raw_append(bus, "user:42", kind="exploded"))
        raw_append(bus, "user:42", kind="exploded")
        project(bus)
        private = bus.page("user:44")
        private.erase(private.add("observation", "private").id, reason="asked for")
        bus.page("user:45").add("observation", "stays", tags=["a#b"], owner="agent")
        project(bus)
        eventually(lambda: bus.converse(page_out(bus.core, 0)).documents)
        lease = bus.converse(take(bus.core.log.keys(0), "tester"))
        bus.converse(fold_once(bus.core.log, 0, build=lease.build))
        archiving = Archiving(bus.core.log.keys(0), "0123", "tester", 60_000)
        bus.converse(archiving.take())
        bus.converse(archiving.record(1, "/archive"))
        yield bus


def _documented() -> dict[str, re.Pattern[str]]:
    """Return the documented keys as patterns."""
    return {key: _pattern(key) for row in rows(TEXT, "## Keys") for key in codes(row[0])}


def _pattern(key: str) -> re.Pattern[str]:
    places = {"<day>": r"\d+", "<build>": r"\d+"}
    parts = re.split(r"(<\w+>)", key)
    return re.compile("".join(places.get(part, ".+" if part.startswith("<") else re.escape(part)) for part in parts))


def test_documented_keys_match_the_engine(bus: Bus):
    tag = bus.core.log.keys(0).tag
    keys = [key.decode() for key in send(bus, "KEYS", "*")]
    assert all(key.startswith(tag) for key in keys)
    there = {key.removeprefix(tag) for key in keys}
    documented = _documented()
    assert [key for key in there if not any(each.fullmatch(key) for each in documented.values())] == []
    assert [name for name, each in documented.items() if not any(map(each.fullmatch, there))] == []


def test_documented_redis_types_match_the_engine(bus: Bus):
    tag = bus.core.log.keys(0).tag
    types = {"sorted set": "zset"}
    documented = [
        (pattern, types.get(row[1], row[1]))
        for pattern, row in zip(_documented().values(), rows(TEXT, "## Keys"), strict=True)
    ]
    for key in send(bus, "KEYS", "*"):
        name = key.decode().removeprefix(tag)
        (kind,) = [kind for pattern, kind in documented if pattern.fullmatch(name)]
        assert send(bus, "TYPE", key).decode() == kind, name


def test_event_fields_are_documented_in_order(bus: Bus):
    documented = [codes(row[0])[0] for row in rows(TEXT, "## An event")]
    assert documented == [name.decode() for name in entry_fields(entries(bus, 0)[0])]


def test_every_kind_of_event_is_documented():
    kinds = next(row[1] for row in rows(TEXT, "## An event") if row[0] == "`kind`")
    assert codes(kinds) == list(EVENTS)


def test_head_fields_are_documented_in_order():
    assert [codes(row[0])[0] for row in rows(TEXT, "## A head")] == list(Head._fields)


def test_the_example_head_can_be_parsed():
    (example,) = re.findall(r"^`(\d+\|.*)`\.$", TEXT, re.MULTILINE)
    head = Head.parse(example.encode())
    assert (head.version, head.type, head.holder) == (2, "risk_alert", "executor-1#3f1c0a9be27d54816f20c7aa")
