"""`add` and `add_many`: results, defaults, batches and limits."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest

from scratchbus import NewObservation
from scratchbus.commands.add import decide, parse
from scratchbus.commands.references import check_known_ids
from scratchbus.engine.steps import ask_all
from scratchbus.errors import EventIdReused, InvalidField, InvalidId, PageFull, TooLarge
from scratchbus.eventlog.append import append
from scratchbus.eventlog.ids import new_id
from scratchbus.eventlog.writes import Ids
from scratchbus.readmodel import relations
from tests.engines import ALL, ONE
from tests.inspection import assert_sound, entries, heads, keys_of, log_length, send

pytestmark = pytest.mark.engines(*ALL)


def test_add_returns_the_observation_as_read_later(page):
    given = {
        "source": "fraud_detector",
        "owner": "agent",
        "confidence": 0.9,
        "context": {"task_id": "t1"},
        "tags": ["security", "fraud"],
        "metadata": {"n": 1, "nested": {"list": [1, None, "é"]}},
        "dedupe_key": "ring-7",
        "evidence": [page.add("observation", "what it rests on").id],
        "times": 3,
    }
    added = page.add("risk_alert", "Fraud ring", ttl="2h", **given)
    assert added == page.get(added.id)
    assert {name: getattr(added, name) for name in given if name != "times"} == {
        name: value for name, value in given.items() if name != "times"
    }
    assert (added.type, added.content, added.page, added.occurrences) == ("risk_alert", "Fraud ring", "main", 3)
    assert (added.status, added.version, added.priority) == ("active", 1, 90)
    assert added.expires_at == added.created_at + timedelta(hours=2)


def test_defaults_come_from_bus_type_and_settings(connect):
    page = connect(source="daemon-1", default_expiration="3h").page()
    added = page.add("risk_alert", "something")
    assert (added.source, added.owner, added.confidence) == ("daemon-1", None, 1.0)
    assert (added.context, added.tags, added.metadata, added.evidence, added.links) == ({}, [], {}, [], [])
    assert added.expires_at == added.created_at + timedelta(hours=3)
    assert page.add("action_suggestion", "do it").expires_at - added.created_at < timedelta(days=1, minutes=1)
    assert page.add("reminder", "call back").expires_at is None


def test_first_status_can_be_pending_review(page):
    added = page.add("observation", "look at this first", status="pending_review")
    assert page.get(added.id).status == "pending_review"


def test_created_at_and_updated_at_use_the_engine_clock(page, clock):
    clock.advance("90d")
    added = page.add("observation", "from the future")
    assert added.created_at == added.updated_at == clock.now


def test_ttl_never_and_expires_at_set_the_expiry(page):
    assert page.add("observation", "for ever", ttl="never").expires_at is None
    end = datetime(2100, 1, 2, 3, 4, 5, 678_000, UTC)
    assert page.add("observation", "until then", expires_at=end).expires_at == end


def test_positions_increase_without_gaps(bus, page):
    seqs = [page.add("observation", f"{n}").position.seq for n in range(3)]
    page.archive(page.list()[0].id)
    seqs += [one.position.seq for one in page.add_many([_new("a"), _new("b")])]
    assert [seq - seqs[0] for seq in seqs] == [0, 1, 2, 4, 5]
    assert bus.position().shards[bus.core.log.shard("main")].seq == seqs[-1]


def _new(content, **more):
    return NewObservation(type="observation", content=content, **more)


def test_batch_keeps_its_order(page):
    added = page.add_many([_new(f"{n}") for n in range(10)])
    assert [one.content for one in added] == [f"{n}" for n in range(10)]
    assert [one.content for one in page.list()] == [f"{n}" for n in reversed(range(10))]


def test_batch_of_1000_is_added(connect):
    bus = connect(max_observations=2000)
    added = bus.page().add_many([_new(f"{n}") for n in range(1000)])
    assert len({one.id for one in added}) == 1000
    assert len(bus.page().list(limit=None)) == 1000
    assert {event.batch.partition("/")[2] for event in bus.events()} == {"1000"}


def test_batch_of_1001_is_refused(bus, page):
    with pytest.raises(TooLarge, match="batch: 1001 observations is over the limit of 1000"):
        page.add_many([_new("x")] * 1001)
    assert log_length(bus) == 0


def test_batch_over_8_mebibytes_is_refused(bus, page):
    with pytest.raises(TooLarge, match="over the limit of 8388608") as refused:
        page.add_many([_new("x" * 65536) for _ in range(130)])
    assert refused.value.field == "batch"
    assert log_length(bus) == 0


@pytest.mark.engines("embedded-4-shards", "system")
def test_batch_just_below_8_mebibytes_is_added(connect):
    page = connect(max_observations=200).page()
    assert len(page.add_many([_new("x" * 65000) for _ in range(128)])) == 128
    assert page.list(limit=1)[0].content == "x" * 65000


def test_empty_batch_appends_nothing(bus, page):
    assert page.add_many([]) == []
    with pytest.raises(InvalidId, match="event_id"):
        page.add_many([], event_id="a b")
    assert log_length(bus) == 0


def test_one_bad_item_refuses_the_whole_batch(bus, page):
    with pytest.raises(InvalidField, match="content"):
        page.add_many([_new("good"), _new(" ")])
    assert log_length(bus) == 0


@pytest.mark.parametrize("event_id", ["mine", None])
def test_append_script_refuses_a_duplicate_event_id(bus, page, event_id):
    kind = bus.types.get("observation")
    now, sharing = datetime.now(UTC), 0 if event_id is None else 2
    first, second = (
        decide(
            now,
            Ids(new_id(), "one-id", sharing),
            bus.settings,
            kind,
            parse(vars(_new(text))),
            page.name,
            {},
        )
        for text in "ab"
    )
    with pytest.raises(EventIdReused, match="item 2 of 2"):
        bus.converse(append(bus.core.log, page.name, [first, second]))
    assert log_length(bus) == 0


def test_add_script_and_append_script_write_the_same_events(bus, page, clock):
    """Simple additions use the add script; a set `retried` sends all to the append script."""
    batch = [
        NewObservation(type="observation", content="for ever", ttl="never", tags=["a,b", "50%", "x|y"]),
        NewObservation(type="risk_alert", content="until then", expires_at=datetime(2099, 1, 2, tzinfo=UTC)),
        NewObservation(type="reminder", content="as its type has it", owner="agent", times=3),
    ]
    page.add("observation", "the first of the log")
    keys, written = keys_of(bus), list[list[Any]]()
    for _ in range(2):
        before, known = len(entries(bus, keys.shard)), heads(bus)
        page.add("observation", "alone", status="pending_review", context={"n": 1}, ttl="3h")
        page.add_many(batch)
        rows = [(fields[::2], fields[5::2]) for _, fields in entries(bus, keys.shard)[before:]]
        new = sorted((head.added - before, head) for key, head in heads(bus).items() if key not in known)
        written.append(rows + [head._replace(position="", added=number) for number, head in new])
        send(bus, "SADD", f"{keys.ids}retried", "an event id")
    assert len(written[0]) == 8
    assert written[1] == written[0]
    assert_sound(bus)


def test_add_script_and_append_script_displace_alike(connect, clock):
    """The add script displaces one observation that has neither a claim nor a dedupe key."""
    bus = connect(max_observations=3)
    page, keys, written = bus.page(), keys_of(bus), list[str]()
    page.add("observation", "the first of the log", ttl="2h")
    page.add_many([_new("of three tags", ttl="never", tags=["a|b", "50%", "c"]), _new("as its type has it")])
    urgent = page.add("risk_alert", "urgent", ttl="never")  # which displaces the first
    for _ in range(2):
        for observation in page.active():
            page.archive(observation.id)
        begin, known = len(entries(bus, keys.shard)), heads(bus)
        page.add("observation", "low and old", tags=["a|b"], ttl="1h")
        page.add_many([_new("low and young", ttl="never"), NewObservation(type="risk_alert", content="high")])
        send(bus, "HSET", keys.pages, "main", str(clock.ms + 1_000_000))
        for ttl in ("30m", "10s"):
            page.add("observation", "new", ttl=ttl)
        rows = entries(bus, keys.shard)[begin:]
        changed = sorted((head.added, key, head) for key, head in heads(bus).items() if known.get(key) != head)
        assert {key for _, key, _ in changed} == {("main", fields[3].decode()) for _, fields in rows}
        dump = repr([rows, changed, send(bus, "ZRANGE", keys.open("main"), 0, -1), send(bus, "HGETALL", keys.pages)])
        for number, (id, fields) in enumerate(rows):
            if fields[7] == b"added":
                dump = dump.replace(fields[3].decode(), f"subject {number}").replace(fields[1].decode(), f"id {number}")
            dump = dump.replace(id.decode(), f"position {number}")
        written.append(re.sub(r"added=\d+|\(\d+", "", dump))
        assert bus.core.log.guarded_pages.keys() == ({"main"} if len(written) == 2 else set())
        send(bus, "SADD", f"{keys.ids}retried", "an event id")
    assert (written[0].count("displaced"), written[0].count("'2/2'")) == (2, 3)
    assert written[1] == written[0]
    assert page.get(urgent.id).status == "archived"
    assert_sound(bus)


@pytest.mark.parametrize("obstacle", ["claim", "key", "expired", "priority", "head"])
def test_append_script_handles_all_other_displacements(connect, clock, obstacle):
    bus = connect(max_observations=2)
    page, keys = bus.page(), keys_of(bus)
    first = page.add("risk_alert" if obstacle == "priority" else "observation", "first", ttl="1h",
                     dedupe_key="key" if obstacle == "key" else None)  # fmt: skip
    second = page.add("risk_alert", "second", ttl="30m")
    if obstacle == "claim":
        page.claim(first.id)
    elif obstacle == "expired":
        clock.advance("40m")
    elif obstacle == "head":
        send(bus, "ZADD", keys.open("main"), 1, "written by hand")
    if obstacle == "priority":
        with pytest.raises(PageFull):
            page.add("observation", "new")
        return
    new = page.add("risk_alert", "new")
    gone = {"claim": second, "key": first, "expired": second, "head": None}[obstacle]
    assert {each.id for each in page.active()} == {first.id, second.id, new.id} - {gone and gone.id} - (
        {first.id} if obstacle == "head" else set()
    )
    if obstacle == "key":
        assert page.add("risk_alert", "with the key again", dedupe_key="key").version == 1


def test_default_values_are_not_stored(bus, page):
    shard = bus.core.log.shard("main")
    page.add("observation", "x", confidence=0.0, times=2)
    page.add("observation", "x")
    page.add("observation", "x", confidence=1, context={}, tags=[], metadata={}, evidence=[], times=1, status="active")
    bodies = [fields[15] for _, fields in entries(bus, shard)]
    assert bodies[2] == bodies[1]
    assert b'"confidence":0.0,"times":2' in bodies[0].replace(b',"priority":20', b"")
    assert all(name not in bodies[1] for name in (b"confidence", b"context", b"tags", b"times", b"status", b"source"))


def test_content_is_stored_unchanged(page):
    for content in (
        "  spaces ",
        "line\nbreak\r\n",
        "nul\0",
        "日本語 🎉 ñ",
        "e\u0301",
        "\u202eabc",
        '"\\/',
        "x" * 65536,
    ):
        assert page.get(page.add("observation", content).id).content == content


def test_content_limit_counts_utf8_bytes(page):
    assert len(page.add("observation", "é" * 32768).content) == 32768
    with pytest.raises(TooLarge):
        page.add("observation", "é" * 32768 + "x")


def test_context_and_metadata_keep_every_json_value(page):
    value = {"text": "é\n", "int": 2**70, "float": 0.1, "none": None, "true": True, "list": [[], {}], "": "empty key"}
    read = page.get(page.add("observation", "x", context=value, metadata=value).id)
    assert read.context == read.metadata == value


def test_deeply_nested_context_and_metadata_read_back(page):
    deep: dict[str, Any] = {}
    for _ in range(63):
        deep = {"a": deep}
    added = page.add("observation", "deep", context=deep, metadata=deep)
    page.update(added.id, context={"b": deep["a"]})
    assert page.get(added.id).metadata == deep
    assert [one.context for one in page.list()] == [{"b": deep["a"]}]


def test_unknown_evidence_is_refused(bus, page):
    new = NewObservation(type="observation", content="x", evidence=["01ARZ3NDEKTSV4RRFFQ69G5FAV"])
    good = NewObservation(type="observation", content="good")
    for add in (lambda: page.add("observation", "x", evidence=new.evidence), lambda: page.add_many([good, new])):
        with pytest.raises(InvalidField, match="evidence: 01ARZ3NDEKTSV4RRFFQ69G5FAV is not on any page of this bus"):
            add()
    assert log_length(bus) == 0


@pytest.mark.engines(*ONE)
def test_many_ids_of_evidence_are_looked_up_in_batches(bus, page):
    lookup, sizes, reply = check_known_ids(bus.core, page.name, (f"{number:026}" for number in range(2_500))), [], None
    with suppress(StopIteration):
        while True:
            ((_, _, *ids),) = lookup.send(reply).commands
            sizes.append(len(ids))
            reply = [[b"a head"] * len(ids)]
    assert sizes == [1_000, 1_000, 500]


@pytest.mark.engines(*ONE)
def test_evidence_on_other_pages_is_looked_up_in_batches(bus, page, monkeypatch):
    monkeypatch.setattr(relations, "_PAIRS", 4)
    monkeypatch.setattr(relations, "_AT_ONCE", 2)
    ids = [bus.page(f"other-{number % 8}").add("observation", "x").id for number in range(24)]
    assert page.add("observation", "y", evidence=ids).evidence == ids
    sent, lookup, reply = [], relations.find_pages(bus.core.log, ids[:2]), None
    with suppress(StopIteration):
        while True:
            call = lookup.send(reply)
            sent.append(call.commands)
            reply = bus.converse(ask_all(call.shard, list(call.commands)))
    assert max(map(len, sent)) <= 4


def test_evidence_can_be_on_another_page_and_cleared(bus, page):
    other = bus.page("other")
    cleared, there = other.resolve(other.add("observation", "x").id), other.add("observation", "y")
    other.clear_resolved([cleared.id])
    added = page.add("observation", "x", evidence=[cleared.id, there.id])
    assert added.evidence == [cleared.id, there.id]
    assert {id: each.page for id, each in page.evidence(added.id).items()} == {there.id: "other"}


def test_members_of_an_enum_of_texts_become_plain_texts(page):
    class Words(StrEnum):
        KIND = "risk_alert"
        WHO = "ada"

    fields = {"owner": Words.WHO, "source": Words.WHO, "tags": [Words.WHO], "dedupe_key": Words.WHO}
    added = page.add(Words.KIND, Words.WHO, context={"who": Words.WHO}, **fields)
    seen = [added.type, added.content, added.owner, added.source, *added.tags, added.dedupe_key, added.context["who"]]
    assert {type(each) for each in seen} == {str}
    assert page.get(added.id) == added
