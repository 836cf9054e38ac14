"""Garbage that a writer puts into keys of the append script fails neither reads nor other writes."""

from __future__ import annotations

import re

import pytest

from scratchbus.archive.archiver import archive_bus
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import ArchiveForeign, EngineError, InvalidPosition, LogError, LogGap, LogRewound, NotFound
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.trim import Archiving, FloorLost
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.reminders import remind
from tests.contracts.test_huge_numbers import read_everything
from tests.engines import ONE
from tests.inspection import keys_of, project, send
from tests.past_pages import only
from tests.waiting import eventually

pytestmark = [pytest.mark.engines(*ONE), pytest.mark.damages_the_log]

GARBAGE = [b"", b"x", b"|", b"\xff\xfe", b"9" * 400]


@pytest.mark.parametrize("value", GARBAGE)
def test_next_write_replaces_a_forged_time_of_a_page(bus, page, value):
    observation = page.add("observation", "story")
    send(bus, "HSET", keys_of(bus).pages, "main", value)
    added = page.add("observation", "plain")
    send(bus, "HSET", keys_of(bus).pages, "main", value)
    page.update(observation.id, content="guarded")
    assert [each.id for each in page.list()] == [added.id, observation.id]
    assert bus.repair() == []


@pytest.mark.parametrize("value", GARBAGE)
def test_write_behind_a_forged_end_of_the_log_refers_to_verify(bus, page, value):
    page.add("observation", "story")
    tail = send(bus, "GET", keys_of(bus).tail)
    send(bus, "SET", keys_of(bus).tail, value)
    for key in (None, "k"):
        with pytest.raises(EngineError, match=r"damaged value .*; `scratchbus verify` names its key"):
            page.add("observation", "refused", dedupe_key=key)
    if value not in (b"", b"|"):  # these read as the start of the log
        with pytest.raises(
            InvalidPosition, match=r"an end of the log is stored as .* `scratchbus verify` names its key"
        ):
            bus.position()
    assert keys_of(bus).tail in [each.where for each in bus.verify().findings]
    send(bus, "SET", keys_of(bus).tail, tail)


def test_a_read_names_the_lost_end_of_the_log(bus, page):
    page.add("observation", "kept")
    lost = page.add("observation", "lost").position
    send(bus, "XDEL", keys_of(bus).log, lost.stream_id)
    with pytest.raises(LogGap, match=f"to the tail, {lost}"):
        page.list()
    added = page.add("observation", "later")
    assert [each.content for each in page.list()] == ["later", "kept"]
    assert page.get(added.id) == added


@pytest.mark.parametrize("value", GARBAGE)
def test_forged_head_is_ignored_by_readers_and_named_by_verify(bus, page, value):
    observation = page.add("observation", "story")
    project(bus)
    send(bus, "HSET", keys_of(bus).heads("main"), observation.id, value)
    assert bus.status().open == 1
    assert page.list() == [observation]
    assert "head" in [each.kind for each in bus.verify().findings]
    page.add("observation", "beside it")


def test_reminder_with_a_forged_version_leaves_others(bus, page, capfd):
    damaged = page.add("reminder", "x", remind_on={"type": "risk_alert"})
    page.add("reminder", "y", remind_on={"type": "risk_alert"})
    page.add("risk_alert", "z")
    project(bus)
    send(
        bus,
        "HSET",
        keys_of(bus).heads("main"),
        damaged.id,
        f"9{send(bus, 'HGET', keys_of(bus).heads('main'), damaged.id).decode()}",
    )
    assert bus.converse(remind(bus.core, list(bus.events()))) == 1
    assert "its state is damaged" in capfd.readouterr().err


def test_status_ignores_names_that_are_not_utf8(bus, page):
    observation = page.add("observation", "story")
    send(bus, "HSET", keys_of(bus).pages, b"\xff", "1")
    send(bus, "SADD", bus.core.log.keys(0).subscriptions, b"\xff")
    assert bus.status().open == 1
    assert [each.id for each in read_everything(bus, page)] == [observation.id]


def test_page_names_that_are_not_text_are_ignored(bus, page):
    send(bus, "HSET", keys_of(bus).pages, b"\xff", "1")
    story = page.add("observation", "story")
    resting = page.add("observation", "rests", evidence=[story.id])
    assert list(page.evidence(resting.id)) == [story.id]
    bus.push_types(parse_registry("types:\n  observation:\n", "types"))


def test_a_rebuild_ignores_keys_of_no_build(bus, page):
    page.add("observation", "story")
    keys = keys_of(bus)
    forged = [f"{keys.tag}p1x:docs:main", f"{keys.tag}p1", f"{keys.tag}p9".encode() + b"\xff:x"]
    for key in forged:
        send(bus, "SET", key, "1")
    bus.rebuild()
    assert all(send(bus, "EXISTS", key) for key in forged)


def test_rebuild_without_an_origin_is_refused(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild._TERM", 0.2)
    page.add("observation", "story")
    project(bus)
    send(bus, "DEL", keys_of(bus).origin)
    with pytest.raises(LogRewound, match="restore"):
        bus.rebuild()


@pytest.mark.parametrize("value", [*GARBAGE, b"-1", b"0", b"16385"])
def test_forged_number_of_shards_is_named(bus, connect, value):
    meta = bus.core.log.keys(0).meta
    stored = send(bus, "HGET", meta, "shards")
    send(bus, "HSET", meta, "shards", value)
    with pytest.raises(EngineError, match=re.escape(f"set the field `shards` of the hash {meta} to the number")):
        connect()
    send(bus, "HSET", meta, "shards", stored)


def test_origin_that_is_not_text_is_that_of_another_log(connect, tmp_path):
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=1)
    added = bus.page().add("observation", "story")
    last = bus.page().add("observation", "another")
    eventually(lambda: any(each.events for each in archive_bus(bus)))
    origin = send(bus, "GET", keys_of(bus).origin)
    send(bus, "SET", keys_of(bus).origin, b"\xff\xfe")
    with pytest.raises(ArchiveForeign):
        bus.page().as_of(added.position).list()
    with pytest.raises(ArchiveForeign):
        archive_bus(bus)
    assert bus.page().as_of(last.position).get(last.id) == last
    assert {"archive", "checkpoint"} & {each.kind for each in bus.verify().findings}
    send(bus, "SET", keys_of(bus).origin, origin)


def test_archiver_ignores_a_forged_rebuild(connect, tmp_path):
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=1)
    for content in ("archived", "live"):
        bus.page().add("observation", content)
    for until, build in (("9999999999999", "x"), ("x", "1")):
        send(bus, "HSET", keys_of(bus).rebuilding, "until", until, "build", build)
        eventually(lambda: [each.floor for each in archive_bus(bus) if each.floor])


def test_folding_a_log_without_an_origin_raises_log_rewound(bus, page):
    page.add("observation", "story")
    keys = keys_of(bus)
    send(bus, "DEL", keys.origin)
    with pytest.raises(LogRewound, match=r"no origin.*restore"):
        bus.converse(catch_up(bus.core.log, keys.shard))


def test_folding_an_entry_with_two_ids_raises_log_rewound(bus, page):
    """Lua and Python do not read the same one of them, so that no commit is ever valid."""
    keys = keys_of(bus)
    page.add("observation", "story")
    project(bus)
    at = send(bus, "XADD", keys.log, "9999999999999-2", "id", "one", "id", "other")
    send(bus, "SET", keys.tail, at + b"|other")
    with pytest.raises(LogRewound, match="verify"):
        bus.converse(catch_up(bus.core.log, keys.shard))


@pytest.mark.parametrize("member", [b"\xff@main", b"\xff", b"x", b""])
def test_a_forged_due_member_does_not_stop_a_sweep(bus, page, member):
    page.add("observation", "short", ttl="1ms")
    project(bus)
    send(bus, "ZADD", PageKeys(keys_of(bus), page.name).due, 1, member)
    eventually(lambda: bus.converse(sweep(bus.core)) == 1)


@pytest.mark.parametrize("field", [b"x", b"\xff", b"\xff/open", b"1-1-1", b"", b"9" * 400])
def test_a_forged_field_of_the_snapshots_is_not_read(bus, page, field):
    story = page.add("observation", "story")
    page.add("observation", "later")
    project(bus)
    send(bus, "HSET", PageKeys(keys_of(bus), page.name).snapshots, field, "1")
    with only("from a snapshot"):
        assert page.as_of(story.position).list() == [story]
    with only("from what was open"):
        assert page.as_of(story.position).list() == [story]
    assert bus.verify().findings == []


def test_a_forged_relation_is_ignored(bus, page):
    story = page.add("observation", "story")
    project(bus)
    evidence = PageKeys(keys_of(bus), page.name).relation("evidence")
    send(bus, "ZADD", evidence, 0, f"{story.id}\t".encode() + b"\xff")
    assert list(page.consequences(story.id).observations) == [story.id]


def test_a_forged_head_is_not_taken_for_a_memory(bus):
    keys = keys_of(bus, "session:s")
    bus.notes("s").add("a note")
    send(bus, "HSET", keys.heads("session:s"), b"\xff", "1")
    archiving = Archiving(keys, "0123", "someone", 60_000)
    bus.converse(archiving.take())
    with pytest.raises(FloorLost):  # nothing is archived; but this is how far it gets
        bus.converse(archiving.drop_remembered("session:s", 1))


@pytest.mark.parametrize("head", [None, *GARBAGE])
def test_forged_open_observation_is_ignored(connect, head):
    with connect(max_observations=3) as bus:
        page = bus.page("main")
        observation = page.add("observation", "story")
        for score in ("1", "inf"):
            send(bus, "ZADD", keys_of(bus).open("main"), score, f"forged {score}")
            if head is not None:
                send(bus, "HSET", keys_of(bus).heads("main"), f"forged {score}", head)
        assert page.claim_next().id == observation.id
        assert page.claim_next() is None
        added = [page.add("risk_alert", f"{number}").id for number in range(3)]
        assert page.list()[0].id == added[-1]


@pytest.mark.parametrize("head", GARBAGE)
def test_observation_with_a_forged_head_is_not_found_and_holds_no_key(bus, page, head):
    resolved = page.add("observation", "earlier", dedupe_key="k")
    page.resolve(resolved.id)
    holder = page.add("observation", "story", dedupe_key="k")
    send(bus, "HSET", keys_of(bus).heads("main"), holder.id, head)
    with pytest.raises(NotFound):
        page.update(holder.id, content="x")
    assert page.reopen(resolved.id).status == "active"
    page.resolve(resolved.id)
    send(bus, "HSET", keys_of(bus).dedupe("main"), "k", holder.id)
    assert page.add("observation", "new", dedupe_key="k").id not in (resolved.id, holder.id)


@pytest.mark.parametrize(
    ("field", "value"),
    [*((field, value) for field in ("cursor", "filters") for value in GARBAGE), ("out", "x"), ("until", "x")],
)
def test_damaged_subscription_is_named_until_it_is_removed(bus, page, field, value):
    page.add("observation", "story")
    bus.declare_subscription("all")
    send(bus, "HSET", bus.core.log.keys(0).subscription("all"), field, value)
    if field != "out":
        with pytest.raises(LogError, match=r"subscription 'all' is damaged .* unsubscribe 'all' and subscribe again"):
            bus.status()
    if field != "until" and (field, value) != ("cursor", b""):
        for _ in range(2):  # the first one has released the lease
            with pytest.raises(LogError, match="subscription 'all' is damaged"):
                bus.pull("all", wait=0)
    bus.unsubscribe("all")
    assert bus.status().subscriptions == []
