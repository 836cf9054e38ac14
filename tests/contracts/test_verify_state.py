"""Verify finds each kind of damage to the checkpoint, snapshots, indexes and relations, and says where it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scratchbus import Bus, NewObservation, Page
from scratchbus.eventlog.index_tables import ENTRY, ID, bucket_of, bytes_of, entries_in, ids_in, range_of
from scratchbus.eventlog.keys import PageKeys
from scratchbus.projections import scratch_page
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.verify.findings import Finding
from scratchbus.scheduling.paging_out import page_out
from tests.engines import ONE
from tests.inspection import keys_of, project, raw_append, send
from tests.waiting import eventually

pytestmark = [pytest.mark.engines(*ONE), pytest.mark.damages_the_log]


@pytest.fixture
def names(bus: Bus) -> PageKeys:
    return PageKeys(keys_of(bus), "main", 1)


def located(bus: Bus) -> list[tuple[str, str]]:
    return [(each.kind, each.where) for each in bus.verify().findings]


@pytest.mark.parametrize("field", [1, 4], ids=["event id", "origin"])
def test_a_checkpoint_at_another_event_or_of_another_log_is_found(bus: Bus, page: Page, field: int) -> None:
    page.add("observation", "one")
    project(bus)
    key = keys_of(bus).live
    parts = send(bus, "GET", key).decode().split("|")
    send(bus, "SET", key, "|".join([*parts[:field], "another", *parts[field + 1 :]]))
    assert located(bus) == [("checkpoint", key)]


def test_a_missing_origin_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    send(bus, "DEL", keys_of(bus).origin)
    assert bus.verify().findings == [Finding("tail", keys_of(bus).origin, "is missing")]


def test_keys_of_another_build_of_the_state_are_no_findings(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    project(bus)
    send(bus, "HSET", PageKeys(keys_of(bus), "main", 7).docs, "left", "over")
    assert bus.verify().findings == []


@pytest.fixture
def snapped(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch) -> str:
    """The field of a snapshot of a page; its key has one of the open observations too."""
    for name in ("MIN_EVENTS", "OPEN_MIN_EVENTS"):
        monkeypatch.setattr(snapshots, name, 1)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
    page.add("observation", "one", event_id="order|1|2")
    project(bus)
    assert bus.converse(snapshots.take(keys_of(bus), "main", lambda: True))
    assert bus.converse(snapshots.take_open(keys_of(bus), "main"))
    assert bus.verify().findings == []
    return min(map(bytes.decode, send(bus, "HKEYS", PageKeys(keys_of(bus), "main", 1).snapshots)), key=len)


@pytest.mark.parametrize(
    ("suffix", "change", "reported"),
    [
        ("", lambda row: b"garbage", ""),
        ("", lambda row: row + b"x", ""),
        ("", lambda row: b"2" + row[1:], ""),
        ("/0", lambda row: row[:-1] + bytes([row[-1] ^ 1]), ""),
        ("/0", lambda row: b"", ""),
        ("/open", lambda row: row[:-1] + bytes([row[-1] ^ 1]), "/open"),
        ("/open", lambda row: b"x" + row, "/open"),
    ],
    ids=["garbage", "event id", "count", "part", "empty part", "open part", "event id of the open ones"],
)
def test_a_changed_snapshot_is_found(
    bus: Bus, names: PageKeys, snapped: str, suffix: str, change: Callable[[bytes], bytes], reported: str
) -> None:
    send(bus, "HSET", names.snapshots, snapped + suffix, change(send(bus, "HGET", names.snapshots, snapped + suffix)))
    what = "cannot be read, or is of events that the log does not have"
    assert bus.verify().findings == [Finding("snapshot", f"{names.snapshots} {snapped}{reported}", what)]


@pytest.fixture
def final(bus: Bus, page: Page) -> str:
    """A final observation that may be paged out, before an open one."""
    id = page.archive(page.add("observation", "final", tags=["t"]).id).id
    page.add("observation", "open")
    project(bus)
    return id


@pytest.fixture
def paged(bus: Bus, final: str) -> str:
    """A paged-out observation."""
    eventually(lambda: bus.converse(page_out(bus.core, 0)).documents == 1)
    assert bus.verify().findings == []
    return final


def test_an_observation_in_a_bucket_with_another_number_is_found(bus: Bus, names: PageKeys, paged: str) -> None:
    ((id, added),) = ids_in(send(bus, "HGET", names.paged, bucket_of(paged))).items()
    send(bus, "HSET", names.paged, bucket_of(paged), ID.pack(id, added + 1))
    assert bus.verify().findings == [
        Finding("paged", f"{names.paged} {bucket_of(paged)}", f"{paged} was not added by event {added + 1}"),
        Finding("paged", f"{names.paged} {paged}", "is missing"),
    ]


def test_an_unknown_observation_in_a_bucket_is_found(bus: Bus, names: PageKeys, paged: str) -> None:
    ghost = paged[:-1] + ("0" if paged[-1] != "0" else "1")
    send(bus, "HSET", names.paged, bucket_of(ghost), ID.pack(bytes_of(ghost), 1))
    assert bus.verify().findings == [
        Finding("paged", f"{names.paged} {bucket_of(ghost)}", f"{ghost} was not added by event 1"),
        Finding("paged", f"{names.paged} {ghost}", "is paged out, and should not be there"),
    ]


def test_an_open_observation_that_is_paged_out_is_found(bus: Bus, page: Page, names: PageKeys, paged: str) -> None:
    (other,) = page.active()
    (entry,) = entries_in(send(bus, "HGET", names.places, "0")).values()
    row = send(bus, "HGET", names.places, "0") + ENTRY.pack(*entry._replace(added=other.added_seq))
    send(bus, "HSET", names.places, range_of(other.added_seq), row)
    send(bus, "HSET", names.paged, bucket_of(other.id), ID.pack(bytes_of(other.id), other.added_seq))
    assert bus.verify().findings == [Finding("paged", f"{names.paged} {other.id}", "is stored and paged out at once")]
    stored = send(bus, "HGET", names.docs, other.id)
    send(bus, "HDEL", names.docs, other.id)
    found = bus.verify().findings
    assert Finding("paged", f"{names.paged} {other.id}", "is paged out and not final") in found
    assert Finding("document", f"{names.docs} {other.id}", "is missing") in found
    send(bus, "HSET", names.docs, other.id, stored)


def test_a_checkpoint_that_hides_paged_out_observations_is_found(bus: Bus, page: Page, paged: str) -> None:
    key = keys_of(bus).live
    parts = send(bus, "GET", key).decode().split("|")
    send(bus, "SET", key, "|".join([*parts[:3], str(scratch_page.FORM), *parts[4:]]))
    assert page.list(status="archived") == []
    what = "says that no observation is paged out; some are, on 'main'"
    assert bus.verify().findings == [Finding("checkpoint", key, what)]
    bus.rebuild()
    assert [each.id for each in page.list(status="archived")] == [paged]


@pytest.mark.parametrize(("kind", "value"), [("type", "observation"), ("tag", "t")])
def test_a_stored_final_observation_that_an_index_lacks_is_found(
    bus: Bus, names: PageKeys, final: str, kind: str, value: str
) -> None:
    send(bus, "ZREM", names.index(kind, value), final)
    assert bus.verify().findings == [Finding("paged", f"{names.paged} {final}", "is stored, and missing in an index")]


def test_a_changed_final_observation_that_an_index_lacks_is_found(bus: Bus, names: PageKeys, final: str) -> None:
    row = send(bus, "HGET", names.docs, final)
    send(bus, "ZREM", names.index("tag", "t"), final)
    send(bus, "HSET", names.docs, final, row.replace(b'"final"', b'"other"', 1))
    what = "content is 'other' instead of 'final'"
    assert Finding("paged", f"{names.paged} {final}", what) in bus.verify().findings


def test_a_relation_with_an_erased_observation_is_found(bus: Bus, page: Page, names: PageKeys) -> None:
    first = page.add("observation", "evidence")
    erased = page.add("observation", "private", evidence=[first.id])
    page.erase(erased.id, reason="private")
    member = f"{first.id}\t{erased.id}@main"
    assert bus.verify().findings == []
    send(bus, "ZADD", names.relation("evidence"), 0, member)
    assert bus.verify().findings == [
        Finding("relation", f"{names.relation('evidence')} {member}", "should not be there")
    ]


def test_a_missing_head_of_a_deleted_note_is_found_while_its_events_are_in_the_log(bus: Bus) -> None:
    session = bus.spawn_session("s0")
    notes = bus.notes(session)
    note = notes.add("found").note.id
    notes.delete(note)
    name = f"session:{session}"
    key = keys_of(bus, name).heads(name)
    assert bus.verify().findings == []
    send(bus, "HDEL", key, note)
    assert bus.verify().findings == [Finding("head", f"{key} {note}", "is missing")]


def test_an_index_entry_of_an_erased_observation_is_found(bus: Bus, page: Page, names: PageKeys, paged: str) -> None:
    row = send(bus, "HGET", names.places, "0")
    page.erase(paged, reason="private")
    assert bus.verify().findings == []
    send(bus, "HSET", names.places, "0", row)
    (added,) = entries_in(row)
    what = f"event {added} added no observation to this page"
    assert bus.verify().findings == [Finding("paged", f"{names.places} 0", what)]


@pytest.mark.parametrize(("kind", "value"), [("type", "observation"), ("tag", "t")])
def test_another_score_of_a_final_observation_is_found(
    bus: Bus, names: PageKeys, final: str, kind: str, value: str
) -> None:
    send(bus, "ZADD", names.index(kind, value), 7, final)
    what = "has the score 7 instead of 1"
    assert bus.verify().findings == [Finding("index", f"{names.index(kind, value)} {final}", what)]


def test_a_page_without_events_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    key = keys_of(bus).pages
    send(bus, "HSET", key, "ghost", "12")
    assert bus.verify().findings == [Finding("page", f"{key} ghost", "should not be there")]


@pytest.mark.parametrize("value", ["2", ""])
def test_another_value_of_a_type_whose_observations_were_erased_is_found(
    bus: Bus, page: Page, names: PageKeys, value: str
) -> None:
    page.erase(page.add("observation", "private").id, reason="private")
    send(bus, "HSET", names.types, "observation", value)
    assert bus.verify().findings == [Finding("index", f"{names.types} observation", "should not be there")]


def test_an_event_that_cannot_be_read_is_the_only_finding_of_an_open_observation(bus: Bus, page: Page) -> None:
    one = page.add("observation", "one", dedupe_key="k", ttl="1d")
    raw_append(bus, subject=one.id, kind="linked", event="garbage", prev=page.history(one.id)[-1].id)
    project(bus)
    assert [each.kind for each in bus.verify().findings] == ["event"]
    page.add("observation", "one", dedupe_key="k")
    assert [each.kind for each in bus.verify().findings] == ["event"]


def test_a_time_of_a_page_after_its_first_expiry_is_found(bus: Bus, page: Page) -> None:
    page.add("observation", "one", ttl="1d")
    key = keys_of(bus).pages
    moment = int(send(bus, "HGET", key, "main"))
    send(bus, "HSET", key, "main", moment + 1)
    what = f"is b'{moment + 1}', after {moment}, when the first on it expires"
    assert bus.verify().findings == [Finding("page", f"{key} main", what)]
    send(bus, "HSET", key, "main", moment - 1)
    assert bus.verify().findings == []


@pytest.mark.parametrize(("value", "what"), [("ghost", "is b'ghost' instead of {id}"), (None, "is missing")])
def test_a_wrong_holder_of_a_dedupe_key_is_found(bus: Bus, page: Page, value: str | None, what: str) -> None:
    one, key = page.add("observation", "one", dedupe_key="k"), keys_of(bus).dedupe("main")
    send(bus, *(("HDEL", key, "k") if value is None else ("HSET", key, "k", value)))
    assert bus.verify().findings == [Finding("key", f"{key} k", what.format(id=one.id))]


def test_each_changed_field_of_a_document_is_named(bus: Bus, page: Page, names: PageKeys) -> None:
    one = page.add("observation", "one", owner="ada")
    project(bus)
    row = send(bus, "HGET", names.docs, one.id)
    send(bus, "HSET", names.docs, one.id, row.replace(b'"one"', b'"two"', 1).replace(b'"ada"', b'"eve"', 1))
    ((kind, where, what),) = bus.verify().findings
    assert (kind, where) == ("document", f"{names.docs} {one.id}")
    assert sorted(what.split(", ")) == ["content is 'two' instead of 'one'", "owner is 'eve' instead of 'ada'"]


def test_an_event_that_is_not_the_next_of_its_batch_is_found(bus: Bus, page: Page) -> None:
    added = page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(3)])
    log = keys_of(bus).log
    entries = send(bus, "XRANGE", log, "-", "+")
    send(bus, "DEL", log)
    for number, (id, fields) in enumerate(entries):
        send(bus, "XADD", log, id, *(b"1/3" if number == 1 and each == b"2/3" else each for each in fields))
    assert bus.verify().findings == [
        Finding("batch", str(page.history(added[1].id)[0].position), "is 1/3 of a batch, behind 1/3"),
        Finding("batch", str(page.history(added[2].id)[0].position), "is 3/3 of a batch, behind 1/3"),
    ]
