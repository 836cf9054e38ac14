"""`page.as_of`: the page at a position or time, computed in every way."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, BusPosition, NewObservation, Page, Position
from scratchbus.domain.position import START
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import (
    Conflict,
    EngineUnreachable,
    InvalidField,
    InvalidInput,
    InvalidPosition,
    LogGap,
    LogRewound,
    NotFound,
    PositionLost,
    UnknownType,
)
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.keys import PageKeys
from scratchbus.readmodel import published_statuses, snapshots
from scratchbus.readmodel.projector import run_projector
from scratchbus.timetravel.fold_page import OpenSnapshotCollector, fold_events
from scratchbus.timetravel.lazy_page import LazyPage
from tests.engines import ONE
from tests.faults.interposing import interposed
from tests.inspection import archive, keys_of, project, raw_append, send
from tests.past_pages import WAYS, assert_past, assert_reads_as, batch_ends, only, stored_snapshots, told_again
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ONE)


@pytest.mark.parametrize(
    ("events", "documents", "whole", "open"),
    [
        (999, 10, False, False),
        (1_000, 250, False, True),
        (1_000, 251, False, False),
        (5_000, 1_250, True, True),
        (5_000, 1_251, False, False),
        (20_000, 5_000, True, True),
        (30_000, 5_001, True, False),
    ],
)
def test_snapshots_are_due_after_enough_events_for_their_size(events, documents, whole, open):
    assert (snapshots.is_due(events, documents), snapshots.is_open_due(events, documents)) == (whole, open)


@pytest.fixture(params=WAYS)
def way(request) -> Iterator[str]:
    """How the past is computed."""
    with only(request.param):
        yield request.param


def contents(observations):
    return [one.content for one in observations]


def test_as_of_returns_the_page_at_a_position(page, way):
    first = page.add("risk_alert", "first", tags=["a"], dedupe_key="k")
    second = page.add("observation", "second")
    then = second.position
    page.add("risk_alert", "again", dedupe_key="k", times=3)
    page.update(first.id, content="else", tags=["b"])
    page.resolve(second.id)
    page.clear_resolved([second.id])
    third = page.add("observation", "third")
    past = page.as_of(then)
    assert past.list() == [second, first]
    assert past.active() == [first, second]
    assert (past.get(first.id), past.get(third.id)) == (first, None)
    assert (past.list(tags="a"), past.list(tags="b")) == ([first], [])
    assert (past.name, past.position, past.at) == ("main", then, second.updated_at)


def test_as_of_handles_unfolded_events(bus, page, way):
    first = page.add("observation", "first")
    project(bus)
    second = page.add("observation", "second")
    page.archive(first.id)
    assert page.as_of(second.position).list() == [second, first]


def test_past_page_does_not_change_with_new_events(bus, page, way):
    first, second = page.add("observation", "first"), page.add("observation", "second")
    past = page.as_of(bus.position())
    for _ in range(2):
        page.add("observation", "later")
        page.review(first.id)
        page.reopen(first.id)
        project(bus)
        assert past.list() == past.active() == [second, first]
    page.archive(second.id)
    assert past.list(status="active") == [second, first]


def test_every_past_page_equals_the_fold_up_to_it(connect, clock, way):
    bus = connect(max_observations=5)
    page, other = bus.page(), bus.page("other")
    for n in range(6):
        one = page.add("observation", f"{n}", ttl="2m", tags=[f"t{n % 2}"])  # the last displaces one
        other.add("observation", "elsewhere", evidence=[one.id])
        page.claim(one.id, ttl="1m")
        if n % 2:
            page.resolve(one.id)
        clock.advance("50s")
    page.clear_resolved([each.id for each in page.list(status="resolved")])
    page.add_many([NewObservation(type="risk_alert", content=f"{n}") for n in range(3)])
    ends = batch_ends(bus, page)
    assert len(ends) > 12
    for past, wanted in assert_past(page, ends[::3], way):
        assert_reads_as(past, wanted)


def test_as_of_a_batch_item_includes_the_whole_batch(page, way):
    before = page.add("observation", "before")
    batch = page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(3)])
    page.add("observation", "after")
    for each in batch:
        past = page.as_of(each.position)
        assert contents(past.list()) == ["2", "1", "0", "before"]
        assert past.position == batch[-1].position
    assert contents(page.as_of(before.position).list()) == ["before"]


def test_as_of_accepts_positions_times_and_their_text(bus, page, clock, way):
    first = page.add("observation", "first")
    token = bus.position()
    clock.advance("1h")
    page.add("observation", "second")
    at = first.created_at
    times = [at, at + timedelta(minutes=59), at.replace(tzinfo=None), at.isoformat(), at.astimezone().isoformat()]
    for when in (first.position, str(first.position), token, str(token), *times):
        assert contents(page.as_of(when).list()) == ["first"], when
    assert contents(page.as_of(clock.now).list()) == ["second", "first"]
    before = first.created_at - timedelta(milliseconds=1)
    for when in (before, datetime(1970, 1, 1, tzinfo=UTC), START, Position(first.position.ms, 0)):
        assert page.as_of(when).list() == page.as_of(when).active() == [], when


def test_as_of_applies_expiry_and_claims_at_that_time(bus, page, clock, way):
    short = page.add("observation", "short", ttl="1m")
    held = page.add("observation", "held")
    page.claim(held.id, ttl="30s")
    begun = clock.now
    clock.advance("1h")
    page.add("observation", "late")
    project(bus)
    early, late = page.as_of(begun + timedelta(seconds=20)), page.as_of(begun + timedelta(seconds=61))
    assert contents(early.active()) == contents(early.list(status="active")) == ["held", "short"]
    assert early.get(held.id).claim.by == "tester"
    assert contents(late.active()) == ["held"]
    assert late.get(held.id).claim is None
    assert (late.get(short.id).status, late.get(short.id).reason_code) == ("archived", "expired")
    assert late.list(status="archived") == [late.get(short.id)]


def test_position_on_another_shard_counts_by_its_time(connect, clock):
    bus = connect(shards=4)
    here, there = (
        bus.page("main"),
        next(page for page in map(bus.page, "abcdefgh") if _shard(bus, page) != _shard(bus, bus.page())),
    )
    here.add("observation", "before")
    clock.advance("1m")
    elsewhere = there.add("observation", "elsewhere")
    whole = bus.position()
    clock.advance("1m")
    here.add("observation", "after")
    for when in (elsewhere.position, whole):
        past = here.as_of(when)
        assert contents(past.list()) == ["before"]
        assert past.at == elsewhere.created_at
    assert contents(here.as_of(bus.position()).list()) == ["after", "before"]


def _shard(bus, page):
    return bus.core.log.shard(page.name)


def test_lists_of_a_past_page_continue_after_an_item(bus: Bus, page: Page, way: str) -> None:
    added = [page.add("observation", f"{n}") for n in range(4)]
    past = page.as_of(bus.position())
    later = page.add("observation", "later")
    for last in (added[2], added[2].position, added[2].id):
        assert contents(past.list(after=last, limit=1)) == ["1"], last
        assert past.count(after=last) == 2, last
    with pytest.raises(NotFound, match=f"after: there is no {later.id} on page 'main'"):
        past.list(after=later.id)


def test_history_of_a_past_page_ends_at_its_position(page, way):
    one = page.add("observation", "x")
    then = page.update(one.id, content="y").position
    later = page.resolve(one.id)
    other = page.add("observation", "later")
    past = page.as_of(then)
    assert past.history(one.id) == page.history(one.id)[:2]
    assert page.as_of(later.position).history(one.id) == page.history(one.id)
    with pytest.raises(NotFound):
        past.history(other.id)


def test_diff_lists_added_changed_and_gone_observations(bus, page, way):
    gone, changed = page.resolve(page.add("observation", "gone").id), page.add("observation", "changed", tags=["a"])
    page.add("observation", "the same")
    before = page.as_of(bus.position())
    page.clear_resolved([gone.id])
    after = page.update(changed.id, content="else", tags=["b"])
    added = page.add("observation", "added")
    now = page.as_of(bus.position())
    assert [(each.kind, each.id, each.fields) for each in before.diff(now)] == [
        ("gone", gone.id, ()),
        ("changed", changed.id, ("content", "tags", "version")),
        ("added", added.id, ()),
    ]
    difference = before.diff(now)[1]
    assert (difference.before, difference.after) == (changed, after)
    assert difference.changes() == {"content": ("changed", "else"), "tags": (["a"], ["b"]), "version": (1, 2)}
    assert now.diff(now) == []
    with pytest.raises(InvalidField, match="other: None is not a past page; pass what page"):
        now.diff(None)
    assert [each.kind for each in now.diff(before)] == ["added", "changed", "gone"]


# -- bad input -------------------------------------------------------------------------------------------------------


def test_invalid_and_future_times_are_refused(bus, page, clock):
    page.add("observation", "x")
    for when in ("someday", "12", "", "1-2-3", 12, None, 1.5):
        with pytest.raises(InvalidPosition, match="neither a position nor a time"):
            page.as_of(when)
    with pytest.raises(InvalidPosition, match="is in the future; the engine has"):
        page.as_of(clock.now + timedelta(minutes=1))
    skewed = page.as_of(clock.now + timedelta(seconds=1))
    assert (contents(skewed.list()), skewed.at) == (["x"], clock.now), "tolerates clock skew"
    with pytest.raises(InvalidPosition, match="is in the future"):
        page.as_of(clock.now + timedelta(milliseconds=1_001))


def test_position_of_another_bus_is_refused(bus, page):
    one = page.add("observation", "x")
    position = one.position
    for unknown in (position._replace(seq=position.seq + 1), position._replace(ms=position.ms + 9999)):
        with pytest.raises(LogRewound, match=r"the log ends at .* of another bus"):
            page.as_of(unknown)
    with pytest.raises(LogRewound, match="has no event at"):
        page.as_of(position._replace(ms=position.ms - 1))
    with pytest.raises(InvalidPosition, match=f"is on shard 7; the bus has {bus.core.log.shards}"):
        page.as_of("7/1-1")
    with pytest.raises(InvalidPosition, match=f"a bus with 9 shards, not {bus.core.log.shards}"):
        page.as_of(BusPosition((START,) * 9))


@pytest.mark.damages_the_log
def test_trimmed_position_raises_position_lost(bus, page, way):
    early = page.add("observation", "early")
    kept = [page.add("observation", f"{n}") for n in range(3)]
    keys = keys_of(bus)
    project(bus)
    send(bus, "XTRIM", keys.log, "MINID", kept[1].position.stream_id)
    with pytest.raises(PositionLost, match="the log was trimmed to"):
        page.as_of(early.position)
    with pytest.raises(PositionLost, match="the log was trimmed to"):
        page.as_of(early.created_at - timedelta(days=1))


@pytest.mark.damages_the_log
@pytest.mark.parametrize("is_folded", [True, False])
def test_as_of_is_refused_before_a_gap_and_matches_the_page_after_it(bus, page, is_folded):
    early, gone, after = (page.add("observation", f"{n}") for n in range(3))
    if is_folded:
        project(bus)
    send(bus, "XDEL", keys_of(bus).log, gone.position.stream_id)
    with pytest.raises(LogGap, match=r"the log has lost event 2, before"):
        page.as_of(early.position)
    contents = [one.content for one in page.as_of(after.position).list()]
    assert contents == [one.content for one in page.list()] == (["2", "1", "0"] if is_folded else ["2", "0"])
    page.add("observation", "3")
    assert [one.content for one in page.as_of(after.position).list()] == contents


def test_past_page_refuses_the_same_arguments_as_the_page(page, way):
    past = page.as_of(page.add("observation", "x").position)
    with pytest.raises(UnknownType):
        past.list(type="risk_alrt")
    with pytest.raises(InvalidInput):
        past.list(limit=0)
    with pytest.raises(InvalidInput):
        past.get("nonsense")


# -- cost ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fetched(bus):
    """The number of event bodies in each reply of the engine."""
    counts = []

    def counting(_, send):
        replies = send()
        counts.append(_bodies(replies))
        return replies

    with interposed(bus, counting):
        yield counts


def _bodies(reply):
    if isinstance(reply, list):
        return sum(map(_bodies, reply))
    return isinstance(reply, bytes) and reply.startswith(b'{"v":')


def test_as_of_a_recent_position_fetches_few_events(connect, fetched, bus, page):
    busy = page.add("observation", "busy", dedupe_key="k")
    connect(max_observations=10_000).page().add_many(
        [NewObservation(type="observation", content="x") for _ in range(900)]
    )
    project(bus)
    then = bus.position()
    for _ in range(3):
        page.add("observation", "busy", dedupe_key="k")
    fetched.clear()
    past = page.as_of(then)
    assert past.get(busy.id) == busy
    assert len(past.list(limit=20)) == 20
    assert sum(fetched) < 30


def test_no_reply_has_too_many_events(connect, fetched, bus, way):
    page = connect(max_observations=10_000).page()
    page.add_many([NewObservation(type="observation", content="x") for _ in range(900)])
    project(bus)
    fetched.clear()
    assert len(bus.page().as_of(bus.position()).list(limit=None)) == 900
    assert max(fetched) < 600


def test_snapshot_saves_folding_earlier_events(connect, fetched, monkeypatch, bus, page):
    page = connect(max_observations=10_000).page()
    one = page.add("observation", "one")
    monkeypatch.setattr("scratchbus.readmodel.snapshots.MIN_EVENTS", 900)
    monkeypatch.setattr("scratchbus.readmodel.snapshots.EVENTS_PER_DOCUMENT", 1)
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(950)])
    at = page.update(one.id, content="changed").position
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(20)])
    project(bus)
    with only("folded"):
        there = bus.page().as_of(at)
        assert stored_snapshots(page) == 1
        fetched.clear()
        again, later = bus.page().as_of(at), bus.page().as_of(bus.position())
        assert sum(fetched) < 100
        assert stored_snapshots(page) == 1, "the next one is not due yet"
    assert_reads_as(again, told_again(page, at, at.ms))
    assert there.list(limit=None) == again.list(limit=None)
    assert len(later.list(limit=None)) == 971


def test_snapshot_is_read_instead_of_a_damaged_archive(connect, monkeypatch, tmp_path):
    monkeypatch.setattr(snapshots, "MIN_EVENTS", 3)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 1)
    bus = connect(archive_url=tmp_path / "archive", retain="1ms", retain_events=1)
    page = bus.page("main")
    added = [page.add("observation", f"{n}") for n in range(5)]
    project(bus)
    assert bus.converse(snapshots.take(keys_of(bus), "main", lambda: True))
    assert any(each.trimmed for each in archive(bus))
    page.update(added[0].id, content="changed")
    for segment in (tmp_path / "archive").rglob("*.jsonl.zst"):
        segment.write_bytes(b"damaged")
    past = connect("other", archive_url=tmp_path / "archive").page("main").as_of(added[-1].position)
    assert contents(past.list()) == ["4", "3", "2", "1", "0"]


def test_long_fold_stores_snapshots_of_open_observations(connect, fetched, monkeypatch, bus):
    page = connect(max_observations=50).page()
    for _ in range(30):
        page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(50)])
    project(bus)
    *_, middle, _, _, _, end = batch_ends(bus, page)
    monkeypatch.setattr("scratchbus.timetravel.past.MAX_UNDONE", 500)
    with only("folded"):
        assert page.as_of(end).active() == page.active()
        assert stored_snapshots(page, snapshots.OPEN_ENDING) == 2, "one for every 1,000 events"
        wanted = told_again(page, middle, middle.ms)
        fetched.clear()
        past = bus.page().as_of(middle)
        assert len(past.active()) == 50
        assert sum(fetched) < 1_500, "from the snapshot before it, not from the beginning"
    assert_reads_as(past, wanted)


def test_snapshot_of_open_observations_has_those_that_long_did_not_change(
    bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scratchbus.eventlog.reader.CHUNK", 5)
    with only("folded"):
        monkeypatch.setattr(snapshots, "OPEN_MIN_EVENTS", 5)
        monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
        early = page.add("observation", "early")
        for n in range(20):
            closed = page.resolve(page.add("observation", f"{n}").id)
            if n % 2:
                page.clear_resolved([closed.id])
        page.as_of(bus.position())
    assert stored_snapshots(page, snapshots.OPEN_ENDING) > 1
    with only("from what was open"):
        assert page.as_of(bus.position()).active() == [early]


def test_long_fold_looks_at_all_documents_once(bus, page, monkeypatch):
    monkeypatch.setattr(snapshots, "OPEN_MIN_EVENTS", 1)
    monkeypatch.setattr("scratchbus.eventlog.reader.CHUNK", 10)
    for n in range(60):
        one = page.add("observation", f"{n}")
        if n % 2:
            page.resolve(one.id)
    scans = []

    class Documents(dict[str, Any]):
        def __iter__(self) -> Iterator[str]:
            scans.append(len(self))
            return super().__iter__()

        def values(self):
            scans.append(len(self))
            return super().values()

    documents, collector = Documents(), OpenSnapshotCollector()
    (cursor,) = bus.converse(cursors(bus.core.log, None, ["main"]))
    bus.converse(
        fold_events(bus.core.log, "main", cursor, page.as_of(bus.position()).position, documents, None, collector)
    )
    assert len(documents) == 60
    assert len(scans) <= 1


def test_observation_reopened_after_a_snapshot_is_open(bus, page):
    one, other = page.add("observation", "one"), page.add("observation", "other")
    page.resolve(one.id)
    with only("from what was open"):
        closed = page.as_of(bus.position())
        assert stored_snapshots(page, snapshots.OPEN_ENDING) == 1
        page.update(other.id, content="changed")
        opened = page.reopen(one.id)
        past = page.as_of(opened.position)
        assert contents(past.active()) == ["changed", "one"]
        assert past.get(one.id) == opened
        assert contents(closed.active()) == ["other"]
        assert closed.get(one.id).status == "resolved"


OLD_TICKETS = """types:
  ticket:
    lifecycle:
      statuses: {todo: open, done: closed, doing: open}
      initial: [todo, doing]
      transitions: {todo: [done], doing: [done], done: [todo, archived]}
"""


NEW_TICKETS = """types:
  ticket:
    lifecycle:
      statuses: {todo: open, done: open, doing: closed}
      initial: [todo]
      transitions: {todo: [doing], done: [doing], doing: [archived]}
"""


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_past_status_that_was_closed_then_is_listed_although_it_is_open_now(bus, page, monkeypatch, is_readable):
    bus.push_types(parse_registry(OLD_TICKETS, "types.yaml"))
    done, todo = (page.add("ticket", word) for word in ("done", "todo"))
    page.update(done.id, status="done")
    with only("from what was open"):
        page.as_of(bus.position())
        page.update(todo.id, content="changed")
        page.update(todo.id, status="done")
        before = bus.position()
        bus.push_types(parse_registry(NEW_TICKETS, "types.yaml"))
        if not is_readable:
            monkeypatch.setattr(published_statuses, "history", unreadable)
        past = page.as_of(before)
        assert isinstance(past._past.reads, LazyPage)
        assert contents(past.list(status="done")) == ["changed", "done"]
        assert past.list(status="doing") == []


def unreadable(*_):
    yield from ()
    raise EngineUnreachable("shard 0 is down")


def test_open_past_observations_are_listed_without_folding_the_page(bus, page, monkeypatch):
    bus.push_types(parse_registry(OLD_TICKETS, "types.yaml"))
    page.resolve(page.add("ticket", "done").id)
    page.add("ticket", "todo")
    with only("from what was open"):
        page.as_of(bus.position())
        past = page.as_of(page.add("ticket", "doing", status="doing").position)
        monkeypatch.setattr(past._past.reads, "fold", None)
        assert contents(past.list(status=["todo", "doing"])) == ["doing", "todo"]


def test_progress_is_reported_from_the_snapshot_on(bus: Bus, page: Page) -> None:
    early = page.add("observation", "early")
    later = page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(3)])
    reports: list[tuple[int, int]] = []
    with only("from a snapshot"):
        page.as_of(early.position)
        page.as_of(later[-1].position, progress=lambda done, total: reports.append((done, total)))
    assert reports == [(3, 3)]


@pytest.mark.damages_the_log
def test_unreadable_open_snapshot_is_reported_and_not_used(bus, page):
    one = page.add("observation", "one")
    project(bus)
    stored, field = PageKeys(keys_of(bus), "main").snapshots, f"{one.position.stream_id}/open"
    with only("from what was open"):
        page.as_of(one.position)
        assert bus.verify().is_sound
        row = send(bus, "HGET", stored, field)
        for damaged in (row[:-1], row[:-5] + b"?" + row[-4:], b"other" + row, b"", b"|"):
            send(bus, "HSET", stored, field, damaged)
            (finding,) = bus.verify().findings
            assert (finding.kind, finding.where) == ("snapshot", f"{stored} {field}")
            page.add("observation", "later")
            assert page.as_of(one.position).list() == [one]


@pytest.mark.damages_the_log
def test_snapshot_of_events_lost_in_a_failover_is_ignored(bus, page):
    page.add("observation", "kept")
    with only("from a snapshot"):
        lost = page.add("observation", "lost")
        page.as_of(lost.position)
        assert stored_snapshots(page) == 1
        stored = PageKeys(keys_of(bus), "main").snapshots
        send(bus, "HSET", stored, lost.position.stream_id, "0|0|another event")  # of an empty page
        assert contents(page.as_of(lost.position).list()) == ["lost", "kept"]


def test_no_snapshot_is_written_of_events_lost_in_a_failover(bus, page):
    kept = page.add("observation", "kept")
    keys, names = keys_of(bus), PageKeys(keys_of(bus), "main")
    at, id = kept.position, page.history(kept.id)[0].id
    lost = at._replace(seq=at.seq + 1)
    for position, event_id, count in ((lost, "lost", 0), (at, "lost", 0), (at, id, 1)):
        made = snapshots.Snapshot(position, 0, 1)
        bus.converse(snapshots.store(keys, names, made, event_id, [snapshots.pack([])], 0))
        bus.converse(snapshots.store_open(keys, names, [snapshots.OpenSnapshot(position, event_id, [])], 0))
        assert (stored_snapshots(page), stored_snapshots(page, snapshots.OPEN_ENDING)) == (count, count)


@pytest.mark.damages_the_log
def test_unreadable_snapshot_is_reported_and_not_used(bus, page):
    one = page.add("observation", "one")
    project(bus)
    stored, at = PageKeys(keys_of(bus), "main").snapshots, one.position.stream_id
    with only("from a snapshot"):
        page.as_of(one.position)
        assert bus.verify().is_sound
        packed = send(bus, "HGET", stored, f"{at}/0")
        for damaged in (packed[:-1], packed[:-5] + b"?" + packed[-4:], snapshots.pack([]), snapshots.pack([b"?"]), b""):
            send(bus, "HSET", stored, f"{at}/0", damaged)
            (finding,) = bus.verify().findings
            assert (finding.kind, finding.where) == ("snapshot", f"{stored} {at}")
            page.add("observation", "later")
            assert page.as_of(one.position).list() == [one]


@pytest.mark.damages_the_log
def test_an_open_past_page_keeps_an_observation_that_an_entry_by_hand_concerns_later(bus, page):
    one = page.add("observation", "one")
    other = page.add("observation", "other")
    past = page.as_of(other.position)
    raw_append(bus, subject=one.id, kind="linked", type="observation", event='{"v":1,"by":"x","action":"a"}')
    page.link(one.id, "goal-1")
    page.add("observation", "later")
    assert past.get(one.id) == one
    assert past.list() == [other, one]
    assert past.active() == [other, one]


@pytest.mark.damages_the_log
def test_unreadable_event_marks_the_past_observation_damaged(bus, page, way):
    one = page.add("observation", "x")
    raw_append(bus, subject=one.id, kind="updated", event='{"v":1,"nonsense":true}')
    broken = Position.parse(send(bus, "GET", keys_of(bus).tail).partition(b"|")[0].decode())
    broken = broken._replace(shard=one.shard)
    page.link(one.id, "goal")
    project(bus)
    for position in (one.position, broken):
        assert_reads_as(page.as_of(position), told_again(page, position, position.ms))
    assert page.as_of(broken).get(one.id).damaged


@pytest.mark.anyio
async def test_async_as_of_reads_the_same(engine, bus_name):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        page = bus.page()
        first = await page.add("observation", "first")
        second = await page.add("observation", "second", source="other")
        await page.archive(first.id)
        past = await page.as_of(second.position)
        assert await past.list() == await past.active() == [second, first]
        assert (await past.get(first.id), past.name) == (first, "main")
        assert [event.kind for event in await past.history(first.id)] == ["added"]
        silent = await page.as_of(await bus.position(), without_sources="other")
        assert [(each.kind, each.id) for each in await past.diff(silent)] == [
            ("changed", first.id),
            ("gone", second.id),
        ]
        with pytest.raises(NotFound):
            await silent.history(second.id)
        with pytest.raises(Conflict):
            await page.add("observation", "x", fence=1)


@pytest.fixture
def projector(connect):
    """A projector in a thread of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=run_projector, args=(connect("projector"), stop))
    yield thread
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_idle_projector_writes_snapshots(bus, page, monkeypatch, projector):
    monkeypatch.setattr(snapshots, "MIN_EVENTS", 5)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 1)
    monkeypatch.setattr(snapshots, "PART", 2)
    kept = [page.add("observation", f"{n}", tags=["t"]) for n in range(5)]
    projector.start()
    eventually(lambda: stored_snapshots(page) == 1)
    page.archive(kept[0].id)
    assert_past(page, batch_ends(bus, page)[3:], "folded")
    assert stored_snapshots(page) == 1, "the next one is not due yet"


def test_idle_projector_writes_snapshots_of_open_observations(bus, page, monkeypatch, projector):
    monkeypatch.setattr(snapshots, "OPEN_MIN_EVENTS", 5)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 1)
    kept = [page.add("observation", f"{n}", tags=["t"]) for n in range(5)]
    page.resolve(kept[0].id)
    projector.start()
    eventually(lambda: stored_snapshots(page, snapshots.OPEN_ENDING) == 1)
    keys = keys_of(bus, page.name)
    position, opened = bus.converse(
        snapshots.nearest_open(keys, PageKeys(keys, page.name), page.get(kept[0].id).position)
    )
    assert (position.seq, sorted(contents(opened))) == (6, ["1", "2", "3", "4"])


@pytest.mark.damages_the_log
def test_no_snapshot_is_taken_of_a_page_whose_index_lists_a_missing_document(bus, page, monkeypatch):
    monkeypatch.setattr(snapshots, "MIN_EVENTS", 1)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
    lost = page.add("observation", "lost")
    page.add("observation", "kept")
    project(bus)
    keys = keys_of(bus, page.name)
    send(bus, "HDEL", PageKeys(keys, page.name).docs, lost.id)
    assert bus.converse(snapshots.take(keys, page.name, lambda: True)) is False
    assert stored_snapshots(page) == 0


def test_snapshot_is_abandoned_when_folding_continues(bus, page, monkeypatch):
    monkeypatch.setattr(snapshots, "MIN_EVENTS", 1)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 1)
    monkeypatch.setattr(snapshots, "PART", 1)
    first = page.add("observation", "x")
    page.add("observation", "y")
    project(bus)

    def meanwhile():
        page.update(first.id, content="else")
        project(bus)
        return True

    for is_wanted in (meanwhile, lambda: False):
        assert bus.converse(snapshots.take(keys_of(bus), page.name, is_wanted)) is False
    assert stored_snapshots(page) == 0
