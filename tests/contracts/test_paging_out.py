"""Final observations are paged out of the engine's memory; every read answers as before."""

from __future__ import annotations

import struct
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from scratchbus import Bus, NewObservation, Page
from scratchbus.domain.events import StatusChanged
from scratchbus.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    BusClosed,
    CodeTooOld,
    InvalidTransition,
    NotFound,
    PositionLost,
)
from scratchbus.eventlog import index_tables as index_of
from scratchbus.eventlog.append import append
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_checkpoint, write_if_unchanged
from scratchbus.eventlog.dropped_heads import _drop_heads
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.paged_out import locate, read_index
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections import scratch_page
from scratchbus.readmodel import search
from scratchbus.readmodel.relations import find_pages
from scratchbus.scheduling import paging_out
from scratchbus.scheduling.expiry import run_expirer
from scratchbus.scheduling.paging_out import page_out
from scratchbus.scheduling.reminders import complete_all
from tests.cases import case
from tests.clock import Clock
from tests.engines import ALL, ONE
from tests.faults.interposing import interposed
from tests.inspection import archive, assert_sound, documents, forget, heads, keys_of, project, send, settle
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ALL, slow=("memory", "system"))


def names_of(bus, page="main"):
    keys = keys_of(bus, page)
    return PageKeys(keys, page, bus.converse(read_checkpoint(keys)).build)


def page_all_out(bus):
    """Page out all final documents; return how many."""
    project(bus)
    clock = send(bus, "TIME")
    eventually(lambda: send(bus, "TIME") > [clock[0], clock[1] + b"9"] or send(bus, "TIME")[0] > clock[0])
    count, some = 0, -1
    while some:
        some = bus.converse(page_out(bus.core, 0)).documents
        count += some
    return count


def fill(page, count=12):
    """Add observations to a page; archive those whose number does not end in 0, 3, 6 or 9."""
    added = page.add_many(
        [
            NewObservation(
                type="risk_alert" if n % 2 else "observation", content=f"story {n}", tags=[f"t{n % 3}"],
                owner=f"o{n % 2}", source=f"s{n % 4}", context={"n": n},
            )
            for n in range(count)
        ]
    )  # fmt: skip
    for one in added:
        if one.content[-1] not in "0369":
            page.archive(one.id, reason="done")
    return added


@pytest.fixture(params=["in the engine", "in tables"], autouse=True)
def index_is(request, monkeypatch):
    """Where the index of paged-out observations is."""
    if request.param == "in tables":
        monkeypatch.setattr("scratchbus.scheduling.paging_out.MIN_ENTRIES", 1)
    return request.param


@pytest.fixture
def bus(connect, tmp_path):
    return connect(archive_url=tmp_path / "archive", retain="1ms", retain_events=2, archive_segment=5)


@pytest.fixture(params=["in the log", "in the archive"])
def paged(request, bus):
    """A page whose archived observations are paged out, with its answers from before."""
    page = bus.page("main")
    added = fill(page)
    page.link(added[1].id, "goal-1")
    page.add("observation", "rests", evidence=[added[1].id])
    before = {
        "all": page.list(limit=None),
        "histories": {one.id: page.history(one.id) for one in added},
        "trace": page.trace("goal-1"),
    }
    if request.param == "in the archive":
        archive(bus)
    assert page_all_out(bus) == 7
    if request.param == "in the archive":
        archive(bus)
    return page, added, before


@pytest.mark.engines(*ONE)
def test_an_observation_with_many_events_is_read_from_the_log(bus):
    page = bus.page("main")
    id = page.add("observation", "0").id
    for n in range(1, 13):
        page.update(id, content=f"{n}")
    last = page.archive(id)
    assert page_all_out(bus) == 1
    assert page.get(id) == last


def test_paged_out_observations_leave_the_engine_and_read_as_before(bus, paged):
    page, _, before = paged
    gone = {one.id for one in before["all"] if one.status == "archived"}
    assert {id for _, id in documents(bus)} == {one.id for one in before["all"]} - gone
    assert {id for _, id in heads(bus)}.isdisjoint(gone)
    names = names_of(bus)
    for type in send(bus, "HKEYS", names.types):
        assert {id.decode() for id in send(bus, "ZRANGE", names.index("type", type.decode()), 0, -1)}.isdisjoint(gone)
    for one in before["all"]:
        assert page.get(one.id) == one
        assert one.id not in before["histories"] or page.history(one.id) == before["histories"][one.id]
    assert page.list(limit=None) == before["all"]
    assert page.trace("goal-1") == before["trace"]
    assert bus.verify().is_sound


WANTED: list[dict[str, Any]] = [
    {"status": "archived"},
    {"status": ["archived", "active"]},
    {"status": "active"},
    {"type": "risk_alert"},
    {"type": "observation", "status": "archived"},
    {"tags": ["t1"]},
    {"tags": ["t1", "t2"]},
    {"owner": "o1", "tags": "t2"},
    {"source": "s2"},
    {"source": "tester"},
    {"text": "STORY 1"},
    {"context": {"n": 4}},
]


def test_lists_have_paged_out_observations_in_order(paged):
    page, _, before = paged
    for wanted in WANTED:
        expected = _matching(before["all"], wanted)
        with case(wanted):
            assert page.list(limit=None, **wanted) == expected
            assert page.list(limit=3, **wanted) == expected[:3]
            after, pages = None, []
            while some := page.list(limit=2, after=after, **wanted):
                pages += some
                after = some[-1].id
            assert pages == expected


def _matching(found, wanted):
    def has(one):
        statuses = [wanted["status"]] if isinstance(wanted.get("status"), str) else wanted.get("status", [one.status])
        tags = [wanted["tags"]] if isinstance(wanted.get("tags"), str) else wanted.get("tags", [])
        return (
            one.status in statuses
            and one.type == wanted.get("type", one.type)
            and one.owner == wanted.get("owner", one.owner)
            and one.source == wanted.get("source", one.source)
            and set(tags) <= set(one.tags)
            and wanted.get("text", "").lower() in one.content
            and one.context.get("n") == wanted.get("context", one.context).get("n")
        )

    return [one for one in found if has(one)]


def test_a_write_to_a_paged_out_observation_is_refused(bus, paged):
    page, added, _ = paged
    id = added[1].id
    for write in (
        lambda: page.update(id, content="other"),
        lambda: page.reopen(id),
        lambda: page.archive(id),
        lambda: page.resolve(id),
        lambda: page.claim(id, by="x"),
    ):
        with pytest.raises(InvalidTransition):
            write()
    with pytest.raises(InvalidTransition):
        page.clear_resolved([id])
    assert ("main", id) not in heads(bus)
    assert len(page.history(id)) == 3
    with pytest.raises(NotFound):
        page.update("01M7YS0X7YM47HSFZZZJC2DZ9D", content="x")


def test_a_retry_on_a_paged_out_observation_returns_the_first_result(bus):
    page = bus.page("main")
    one = page.add("observation", "once", event_id="add-1")
    done = page.archive(one.id, event_id="archive-1")
    assert page_all_out(bus) == 1
    assert page.add("observation", "once", event_id="add-1").id == one.id
    assert page.archive(one.id, event_id="archive-1") == done
    assert [event.kind for event in page.history(one.id)] == ["added", "status_changed"]


def test_a_link_pages_an_observation_in_until_the_next_page_out(bus, paged):
    page, added, _ = paged
    id = added[2].id
    linked = page.link(id, "goal-2")
    assert page.get(id) == linked  # folded by the reader
    assert linked in page.list(limit=None, status="archived")
    project(bus)
    assert page.get(id) == linked
    assert ("main", id) in documents(bus)
    assert page.list(limit=None).count(linked) == 1
    assert bus.verify().is_sound
    assert page_all_out(bus) == 1
    assert ("main", id) not in documents(bus)
    assert page.get(id) == linked
    assert bus.verify().is_sound


@pytest.mark.parametrize("change", ["rebuilt", "paged in"])
@pytest.mark.parametrize("find", ["its page", "by a short id"])
def test_an_id_is_found_while_the_state_changes(bus, page, connect, find, change):
    id = page.archive(page.add("observation", "story").id).id
    assert page_all_out(bus) == 1
    other, paged = connect(archive_url=bus.core.log.archive.where), names_of(bus).paged
    log, done = bus.core.log, list[bool]()

    def around(call, send):
        if not done and any(paged in command for command in call.commands):
            done.append(True)
            if change == "rebuilt":
                other.rebuild()
            else:
                other.page("main").link(id, "goal-1")
                project(other)
        return send()

    with interposed(bus, around):
        if find == "its page":
            assert bus.converse(find_pages(log, [id])) == {id: "main"}
        else:
            assert page.whole_id(id[-10:]) == id
    assert done


def test_a_bus_closed_after_a_link_paged_an_observation_in_returns_the_result(bus, page):
    story = page.archive(page.add("observation", "story").id)
    assert page_all_out(bus) == 1

    def around(call, send):
        if any(command[1] == _drop_heads.sha for command in call.commands):
            raise BusClosed
        return send()

    with interposed(bus, around):
        assert page.link(story.id, "goal-1").version == 3


def test_refuting_evidence_leaves_paged_out_dependents_archived(bus):
    page = bus.page("main")
    base = page.add("observation", "base")
    rests = page.add("observation", "rests", evidence=[base.id])
    page.archive(rests.id)
    assert page_all_out(bus) == 1
    page.refute(base.id, reason="wrong")
    assert page.get(rests.id).status == "archived"
    page_all_out(bus)
    again = page.add("observation", "rests too", evidence=[base.id, rests.id])
    assert page.consequences(base.id).observations.keys() >= {rests.id, again.id}


def test_a_paged_out_observation_of_the_page_can_be_named_as_a_blocker(paged):
    page, added, _ = paged
    waits = page.add("observation", "waits", blocked_by=[added[1].id])
    assert waits.blocked_by == [added[1].id]
    assert waits.id in [each.id for each in page.ready()]


def test_a_paged_out_observation_can_be_erased(bus, paged):
    page, added, before = paged
    id = added[4].id
    page.erase(id, reason="asked for")
    assert page.get(id) is None
    assert id not in {one.id for one in page.list(limit=None)}
    assert len(page.list(limit=None)) == len(before["all"]) - 1
    assert bus.verify().is_sound


def test_as_of_has_observations_paged_out_since(bus, paged):
    page, added, before = paged
    middle = before["histories"][added[5].id][-1].position
    was = page.as_of(middle)
    assert {one.id: one.status for one in was.list(limit=None)} == {
        one.id: "archived"
        if one.content[-1] not in "0369" and before["histories"][one.id][1].position <= middle
        else "active"
        for one in added
    }
    now = page.as_of(datetime.now(UTC))
    assert now.list(limit=None) == before["all"]
    assert now.get(added[1].id) == before["all"][-2]


def test_a_rebuild_restores_documents_and_they_page_out_again(bus, paged):
    page, _, before = paged
    bus.rebuild()
    assert page.list(limit=None) == before["all"]
    assert len(documents(bus)) == len(before["all"])
    assert bus.verify().is_sound
    assert page_all_out(bus) == 7
    assert page.list(limit=None) == before["all"]
    assert bus.verify().is_sound


@pytest.mark.damages_the_log
@pytest.mark.parametrize("index_is", ["in the engine"], indirect=True)
def test_verify_finds_faults_in_the_index_of_paged_out_observations(bus, page):
    added = fill(page)
    project(bus)
    names = names_of(bus)
    stored = {one.id: send(bus, "HGET", names.docs, one.id) for one in added}
    page_all_out(bus)
    lost, twice, moved, again = added[1], added[2], added[4], added[5]
    send(bus, "HDEL", names.paged, index_of.bucket_of(lost.id))
    send(bus, "HSET", names.docs, twice.id, stored[twice.id])
    index = bus.converse(read_index(bus.core.log, names, keys_of(bus).shard, [moved.id]))
    index.ranges[index_of.range_of(moved.added_seq)][moved.added_seq] = index.find(moved.id)._replace(traits=7)
    row = b"".join(struct.pack(">QQQQ", *place) for place in index.ranges[index_of.range_of(moved.added_seq)].values())
    send(bus, "HSET", names.places, index_of.range_of(moved.added_seq), row)
    send(bus, "HDEL", names.paged, index_of.bucket_of(again.id))
    send(bus, "HSET", names.docs, again.id, stored[again.id])
    send(bus, "HSET", names.places, "999", struct.pack(">QQQQ", 1_022_999, 1, 1, 1))
    found = {each.where.rpartition(" ")[2]: each.what for each in bus.verify().findings if each.kind == "paged"}
    assert found.keys() == {lost.id, moved.id, twice.id, again.id, "999"}
    assert found[again.id] == "is stored, and still has a position in the index of paged-out observations"
    assert found["999"] == "event 1022999 added no observation to this page"
    assert found[twice.id] == "is stored and paged out at once"
    assert found[lost.id] == "is missing"
    assert found[moved.id].startswith("traits is 7 instead of")


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
def test_verify_finds_rows_of_the_index_that_are_cut_short(bus, page):
    added = fill(page)
    page_all_out(bus)
    names = names_of(bus)
    send(bus, "HSET", names.paged, index_of.bucket_of(added[1].id), b"\0" * 23)
    send(bus, "HSET", names.places, index_of.range_of(added[1].added_seq), b"\0" * 31)
    found = {each.where: each.what.partition(":")[0] for each in bus.verify().findings}
    assert found[f"{names.paged} {index_of.bucket_of(added[1].id)}"] == "cannot be read"
    assert found[f"{names.places} {index_of.range_of(added[1].added_seq)}"] == "cannot be read"


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
def test_verify_finds_a_status_that_the_index_does_not_name(bus, page):
    fill(page)
    page_all_out(bus)
    names = names_of(bus)
    assert len(page.list(status="archived")) == 7
    send(bus, "HDEL", names.places, "=archived")
    assert [each[:2] for each in bus.verify().findings] == [("paged", f"{names.places} =archived")]
    bus.rebuild()
    page_all_out(bus)
    assert bus.verify().findings == []
    assert len(page.list(status="archived")) == 7


def test_only_old_final_documents_are_paged_out(bus, page):
    fill(page)
    assert bus.converse(page_out(bus.core, 3_600_000)) == (0, True)
    assert bus.converse(page_out(bus.core, None)) == (0, True)
    assert len(documents(bus)) == 0 or not send(bus, "EXISTS", names_of(bus).paged)
    one = page.add("observation", "resolved")
    page.resolve(one.id)
    page_all_out(bus)
    assert ("main", one.id) in documents(bus)


@pytest.mark.engines(*ONE)
def test_documents_are_paged_out_once_their_events_are_folded(bus: Bus, page: Page) -> None:
    fill(page)
    settle(bus)
    assert bus.converse(page_out(bus.core, 0)) == (0, True)
    assert page_all_out(bus) == 7


@pytest.mark.engines(*ONE)
def test_a_final_document_that_was_linked_since_stays_for_the_whole_time(bus: Bus, page: Page, clock: Clock) -> None:
    now = clock.ms
    clock.set(now - 7_200_000)
    linked, other = (page.archive(page.add("observation", content).id) for content in ("linked", "other"))
    clock.set(now)
    page.link(linked.id, "goal")
    project(bus)
    assert bus.converse(page_out(bus.core, 3_600_000)) == (1, True)
    assert documents(bus).keys() == {("main", linked.id)}
    assert page.get(other.id) == other


@pytest.mark.engines(*ONE)
def test_documents_whose_events_are_archived_early_are_paged_out_once_they_are_old(bus: Bus, page: Page) -> None:
    fill(page)
    project(bus)
    assert any(each.trimmed for each in archive(bus))
    assert bus.converse(page_out(bus.core, 3_600_000)) == (0, True)
    assert page_all_out(bus) == 7


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
def test_a_document_that_its_events_do_not_give_is_not_paged_out(bus, page):
    added = fill(page)
    project(bus)
    names, forged = names_of(bus), added[1].id
    stored = send(bus, "HGET", names.docs, forged)
    send(bus, "HSET", names.docs, forged, stored.replace(b"story 1", b"another"))
    assert page_all_out(bus) == 6
    assert page.get(forged).content == "another"
    assert [each.where.rpartition(" ")[2] for each in bus.verify().findings] == [forged]


def test_paging_out_raises_the_state_form_that_older_code_refuses(bus, page, index_is, monkeypatch):
    fill(page)
    project(bus)
    key = checkpoint_key(keys_of(bus))
    assert send(bus, "GET", key).decode().rsplit("|", 3)[1] == str(scratch_page.FORM)
    page_all_out(bus)
    form = scratch_page.PAGED if index_is == "in the engine" else scratch_page.IN_TABLES
    assert send(bus, "GET", key).decode().rsplit("|", 3)[1] == str(form)
    with monkeypatch.context() as older:
        older.setattr(scratch_page, "IN_TABLES", scratch_page.FORM)
        Checkpoint.parse.cache_clear()  # as in a new process
        with pytest.raises(CodeTooOld):
            page.list()
    page.add("observation", "more")
    project(bus)
    assert len(page.list(limit=None)) == 13


def test_reading_archived_events_without_archive_url_names_the_setting(connect, bus, paged, tmp_path):
    _, added, _ = paged
    if not any(each.floor for each in archive(bus)):
        pytest.skip("nothing was trimmed on this page's shard")
    other = connect("other").page("main")
    with pytest.raises(PositionLost, match="archive_url"):
        other.get(added[1].id)
    assert [one.content for one in other.active()]


def test_a_head_written_by_hand_does_not_stop_paging_out(bus, page):
    done = page.add("observation", "done")
    page.archive(done.id)
    send(bus, "HSET", keys_of(bus).heads("main"), done.id, "no head")
    assert page_all_out(bus) == 1
    assert page.get(done.id).status == "archived"
    send(bus, "HDEL", keys_of(bus).heads("main"), done.id)


def test_a_damaged_archive_does_not_stop_paging_out(connect, bus, tmp_path):
    page = bus.page("main")
    old = [page.add("observation", f"old {n}") for n in range(6)]
    project(bus)
    archive(bus)
    for one in old:
        page.archive(one.id)
    for segment in (tmp_path / "archive").rglob("*.jsonl.zst"):
        segment.write_bytes(b"damaged")
    other = connect("other", archive_url=tmp_path / "archive")
    assert page_all_out(other) == 0
    late = page.add("observation", "late")
    page.archive(late.id)
    assert page_all_out(other) == 1
    assert {id for _, id in documents(other)} == {one.id for one in old}


@pytest.fixture
def linked(bus, tmp_path):
    """A paged-out observation of a page, linked by a process that has its damaged segment in memory."""
    page = bus.page("main")
    old = page.add("observation", "old")
    page.archive(old.id)
    for n in range(12):
        page.add("observation", f"open {n}")
    archive(bus)
    assert page_all_out(bus) == 1
    archive(bus)
    page.get(old.id)
    segments = [(file, file.read_bytes()) for file in (tmp_path / "archive").rglob("*.jsonl.zst")]
    for file, _ in segments:
        file.write_bytes(b"damaged")
    page.link(old.id, "goal-1")
    return old, segments


def test_an_event_about_an_observation_in_a_damaged_segment_is_set_aside_until_a_rebuild(connect, linked, tmp_path):
    old, segments = linked
    other = connect("other", archive_url=tmp_path / "archive")
    page = other.page("main")
    page.add("observation", "late")
    assert len(page.active()) == 13
    project(other)
    assert sum(shard.rejected for shard in other.status().shards) == 1
    ((_, fields),) = send(other, "XRANGE", names_of(other).rejected, "-", "+")
    assert b"restore it from a copy of the archive" in b"".join(fields)
    with pytest.raises(ArchiveDamaged):
        page.get(old.id)
    for file, content in segments:
        file.write_bytes(content)
    assert {finding.kind for finding in other.verify().findings} >= {"rejected"}
    other.rebuild()
    assert page.get(old.id).links == ["goal-1"]
    assert other.verify().findings == []


def test_an_archive_that_is_not_that_of_the_log_stops_the_projection(connect, linked, tmp_path):
    other = connect("other", archive_url=tmp_path / "another")
    with pytest.raises(ArchiveDamaged, match=r"set archive_url|it is missing"):
        project(other)
    assert not any(shard.rejected for shard in other.status().shards)


def page_out_once_after(monkeypatch, bus, owner, name, before=lambda: None):
    """Page out right after the first call of a conversation; return the numbers of documents paged out."""
    original = getattr(owner, name)
    page_outs: list[int] = []

    def overtaken(*arguments):
        if not page_outs:
            before()
        result = yield from original(*arguments)
        if not page_outs:
            page_outs.append(page_all_out(bus))
        return result

    monkeypatch.setattr(owner, name, overtaken)
    return page_outs


def test_a_list_has_an_observation_that_is_the_first_to_be_paged_out_meanwhile(bus, page, monkeypatch):
    log = bus.core.log
    elsewhere = next(name for n in range(100) if log.shard(name := f"p{n}") == log.shard("main"))
    bus.page(elsewhere).archive(bus.page(elsewhere).add("observation", "first").id)
    assert page_all_out(bus) == 1
    story, last = page.add("observation", "story"), page.add("observation", "last")
    page.archive(story.id)
    project(bus)

    def move_checkpoint():
        page.link(last.id, "goal-1")
        project(bus)

    page_outs = page_out_once_after(monkeypatch, bus, search, "_begin_walk", move_checkpoint)
    assert [one.id for one in page.list(limit=None)] == [last.id, story.id]
    assert page_outs == [1]


def test_a_long_list_has_an_observation_that_is_paged_out_meanwhile(connect, monkeypatch):
    bus = connect(max_observations=1_000)
    page = bus.page("main")
    first, story = page.add("observation", "first"), page.add("observation", "story")
    page.archive(first.id)
    assert page_all_out(bus) == 1
    later = page.add_many([NewObservation(type="observation", content="later")] * 150)
    page.archive(story.id)
    project(bus)
    monkeypatch.setattr(search, "_SCAN", 1)
    page_outs = page_out_once_after(monkeypatch, bus, search._Walk, "between")
    found = [one.id for one in page.list(limit=None)]
    assert found == [*[one.id for one in reversed(later)], story.id, first.id]
    assert page_outs == [1]


def test_concurrent_page_outs_lose_nothing(connect, bus, page):
    fill(page, 60)
    project(bus)
    expected = page.list(limit=None)
    others = [connect() for _ in range(3)]

    def work(mine):
        for _ in range(10):
            mine.converse(page_out(mine.core, 0))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page_all_out(bus)
    assert len(documents(bus)) == sum(one.status != "archived" for one in expected)
    assert page.list(limit=None) == expected
    assert bus.verify().is_sound


def test_documents_are_paged_out_despite_a_busy_projector(bus, page, monkeypatch):
    fill(page)
    project(bus)
    writes = 0

    def overtaken(*arguments):
        nonlocal writes
        writes += 1
        page.add("observation", f"news {writes}")
        project(bus)
        return (yield from write_if_unchanged(*arguments))

    monkeypatch.setattr("scratchbus.scheduling.paging_out.write_if_unchanged", overtaken)
    assert page_all_out(bus) == 7
    assert writes
    assert_sound(bus)


def test_a_document_changed_during_a_page_out_keeps_its_change(bus, page, monkeypatch):
    fill(page)
    project(bus)
    archived = next(one for one in page.list(status="archived"))
    writes = 0

    def overtaken(*arguments):
        nonlocal writes
        writes += 1
        if writes == 1:
            page.link(archived.id, "late-action")
            project(bus)
        return (yield from write_if_unchanged(*arguments))

    monkeypatch.setattr("scratchbus.scheduling.paging_out.write_if_unchanged", overtaken)
    page_all_out(bus)
    assert "late-action" in page.get(archived.id).links
    assert_sound(bus)


def test_an_observation_paged_in_during_a_page_out_leaves_the_index(bus, page, monkeypatch):
    first, second, third = (page.add("observation", f"story {n}") for n in range(3))
    page.archive(first.id)
    page.archive(second.id)
    assert page_all_out(bus) == 2
    page.archive(third.id)
    project(bus)

    def overtaken(*arguments):
        if not page.get(first.id).links:
            page.link(first.id, "late-action")
            project(bus)
        is_done = yield from write_if_unchanged(*arguments)
        if is_done:
            raise KeyboardInterrupt  # before the next page-out
        return is_done

    monkeypatch.setattr("scratchbus.scheduling.paging_out.write_if_unchanged", overtaken)
    with pytest.raises(KeyboardInterrupt):
        page_all_out(bus)
    assert bus.verify().is_sound
    assert [one.content for one in page.list(limit=None)] == ["story 2", "story 1", "story 0"]


def overtake_a_write(monkeypatch, when, overtake):
    """Call `overtake` once, before or after a write looks up a paged-out observation."""
    left = [overtake]

    def overtaken(*arguments):
        if left and when == "before":
            left.pop()()
        found = yield from locate(*arguments)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr("scratchbus.eventlog.dropped_heads.locate", overtaken)
    return left


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("is_out_again", [False, True], ids=["paged in", "paged in and out"])
def test_a_write_that_races_paging_is_refused(bus, page, monkeypatch, is_out_again, when):
    gone = fill(page, 2)[1]
    page_all_out(bus)

    def overtake():
        page.link(gone.id, "late-action")
        project(bus)
        if is_out_again:
            assert page_all_out(bus) == 1

    left = overtake_a_write(monkeypatch, when, overtake)
    with pytest.raises(InvalidTransition):
        page.update(gone.id, content="other")
    assert not left
    assert page.get(gone.id).links == ["late-action"]
    assert page.link(gone.id, "later").version == gone.version + 3
    assert_sound(bus)


def test_observations_wait_in_the_engine_while_the_archive_is_away(bus, page, monkeypatch):
    fill(page)
    archive(bus)
    stored = documents(bus)
    with monkeypatch.context() as away:

        def refuse(*_):
            raise ArchiveUnavailable("the archive is away")

        away.setattr(bus.core.log.archive, "catalog", refuse)
        project(bus)
        settle(bus)
        assert bus.converse(page_out(bus.core, 0)) == (0, True)
        assert documents(bus) == stored
    assert page_all_out(bus) > 0
    assert_sound(bus)


@contextmanager
def an_expirer(bus):
    """Run an expirer in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=run_expirer, args=(bus, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_an_expirer_pages_out(connect):
    bus = connect(keep_final="1ms", sweep_interval="10ms")
    page = bus.page("main")
    added = fill(page)
    with an_expirer(bus):
        eventually(lambda: len(documents(bus)) == 5)
    assert {page.get(one.id).status for one in added} == {"active", "archived"}


def test_an_expirer_pages_out_a_backlog_without_waiting(connect, monkeypatch):
    monkeypatch.setattr(paging_out, "CHUNK", 2)
    monkeypatch.setattr(paging_out, "CHUNKS", 1)
    bus = connect(keep_final="1ms", sweep_interval="1h")
    fill(bus.page("main"))
    project(bus)
    settle(bus)
    with an_expirer(bus):
        eventually(lambda: len(documents(bus)) == 5)


def test_a_view_drops_observations_final_longer_than_keep_final(connect):
    bus = connect(keep_final="200ms")
    page = bus.page("main")
    with bus.view("main") as view:
        stays, goes = page.add("observation", "stays"), page.add("observation", "goes", tags=["t"])
        view.wait_for(page.archive(goes.id))
        eventually(lambda: view.get(goes.id) is None)
        assert view.list(limit=None) == [stays]
        page.link(goes.id, "goal")
        later = page.add("observation", "later")
        view.wait_for(later)
        assert view.list(limit=None) == [later, stays]
        page_all_out(bus)
    assert page.get(goes.id).links == ["goal"]
    with bus.view("main") as view:
        assert view.list(limit=None) == [later, stays]


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rounds", "each", "maximum"), [(2, 2_000, 160), pytest.param(5, 10_000, 120, marks=pytest.mark.faults)]
)
def test_engine_memory_does_not_grow_with_archived_observations(
    bus_name, embedded_url, tmp_path, rounds, each, maximum, index_is
):
    """A paged-out observation costs the engine a few bytes, or less than one with the index in tables; a view none."""
    terms = {"archive_url": tmp_path, "retain": "1ms", "retain_events": 10, "keep_final": "1ms"}
    with Bus.connect(embedded_url, bus=bus_name, source="tester", **terms) as bus, bus.view("main") as view:
        page, used = bus.page("main"), list[int]()
        for _ in range(rounds):
            for _ in range(each // 100):
                added = page.add_many(
                    [NewObservation(type="observation", content="x" * 300, tags=["a", "b"]) for _ in range(100)]
                )
                archive_all(bus, [one.id for one in added])
            page_all_out(bus)
            archive(bus)
            used.append(bus.status().memory_bytes or 0)
        eventually(lambda: not view.list(limit=None))
        assert not documents(bus)
        assert not heads(bus)
        grown = (used[-1] - used[0]) / ((rounds - 1) * each)
        assert grown < (maximum if index_is == "in the engine" else 10), f"{grown:.0f} bytes per paged-out observation"
        assert len(page.list(status="archived", limit=5)) == 5
        assert_sound(bus)
        forget(bus)


def archive_all(bus, ids):
    """Archive these in one batch."""
    writes = [
        Write(
            StatusChanged(
                id=new_event_id(), page="main", subject=id, type="observation", by="tester", status="archived",
                status_class="final", reason_code="archived",
            ),
            Op.CHANGE_STATUS, status="archived", status_class="final", argument="tester",
        )
        for id in ids
    ]  # fmt: skip
    bus.converse(append(bus.core.log, "main", writes))


def types_of(bus):
    return {row.decode() for row in send(bus, "HKEYS", names_of(bus).types)}


def test_the_type_index_has_only_types_on_the_page(bus):
    page = bus.page("main")
    risks, other = [page.add("risk_alert", f"risk {n}") for n in range(2)], page.add("observation", "x")
    project(bus)
    assert types_of(bus) == {"risk_alert", "observation"}
    for one in (*risks, other):
        page.resolve(one.id)
    page.clear_resolved([risks[0].id])
    project(bus)
    assert types_of(bus) == {"risk_alert", "observation"}
    page.clear_resolved([risks[1].id])
    page.add("reminder", "new")
    project(bus)
    assert types_of(bus) == {"observation", "reminder"}
    assert [one.type for one in page.list()] == ["reminder", "observation"]
    assert bus.verify().is_sound


def test_paging_in_an_observation_restores_its_type_in_the_type_index(bus):
    page = bus.page("main")
    risk, other = page.add("risk_alert", "risk"), page.add("observation", "x")
    page.archive(risk.id)
    assert page_all_out(bus) == 1
    assert types_of(bus) == {"observation"}
    assert bus.verify().is_sound
    assert {one.id for one in page.list()} == {risk.id, other.id}
    page.link(risk.id, "goal-1")
    project(bus)
    assert types_of(bus) == {"risk_alert", "observation"}
    assert bus.verify().is_sound
    assert_sound(bus)


@pytest.mark.damages_the_log
def test_lost_paged_out_dependents_do_not_stop_a_refutation(connect, bus, tmp_path):
    wrong = bus.page("main").add("observation", "wrong")
    pages = bus.page("main"), bus.page("elsewhere")
    closed = [page.add("observation", "closed", evidence=[wrong.id]) for page in pages]
    others = [page.add("observation", "open", evidence=[wrong.id]) for page in pages]
    for page, one in zip(pages, closed, strict=True):
        page.archive(one.id)
    archive(bus)
    assert page_all_out(bus) == 2
    archive(bus)
    for segment in (tmp_path / "archive").rglob("*.jsonl.zst"):
        segment.write_bytes(b"damaged")
    late = connect("late", archive_url=tmp_path / "archive")
    late.page("main").refute(wrong.id, reason="misread")
    assert [late.page(one.page).get(one.id).status for one in others] == ["pending_review"] * 2
    refutation = list(late.events(kinds={"status_changed"}, after=others[1].position))
    assert late.converse(complete_all(late.core, refutation)) == 0
