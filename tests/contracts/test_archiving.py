"""Old events leave the log for the archive, and nobody who reads notices."""

from __future__ import annotations

import threading

import pytest

from scratchbus import NewObservation
from scratchbus.archive.archive_check import verify
from scratchbus.archive.archiver import Progress, archive_bus, run_archiver
from scratchbus.archive.stores import DirectoryStore, open_store
from scratchbus.domain.position import Position
from scratchbus.engine.steps import ask_all
from scratchbus.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    ArchiveForeign,
    ArchiveUnavailable,
    LogRewound,
    NotChangeable,
    NotFound,
    PositionLost,
    SessionOver,
    SettingsError,
)
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.positions import WIDTH
from scratchbus.eventlog.trim import Archiving
from scratchbus.readmodel.rebuild import rebuild
from tests.engines import ONE
from tests.inspection import archive, forget, keys_of, log_length, now_ms, outdate, project, send
from tests.travelling import WAYS, only
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ONE)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let every segment have several blocks."""
    monkeypatch.setattr("scratchbus.archive.blocks.BLOCK_BYTES", 1_000)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def bus(connect, directory):
    """A bus that keeps five events of each log live, and has four in a segment."""
    return connect(archive_url=directory, retain="1ms", retain_events=5, archive_segment=4)


@pytest.fixture
def read_segments(monkeypatch):
    """A list that gets the number of the first event of a segment whenever a part of it is read."""
    seen = []
    get_part = DirectoryStore.get_part

    def noted(store, name, start, length):
        seen.append(int(name.rpartition("/")[2][:16]))
        return get_part(store, name, start, length)

    monkeypatch.setattr(DirectoryStore, "get_part", noted)
    return seen


def fill(bus, count=30, page="main"):
    return [bus.page(page).add("observation", f"{n}", tags=["t"]) for n in range(count)]


def neighbour(bus, page="main"):
    """Return the name of another page on the same shard."""
    names = (f"beside-{number}" for number in range(1_000))
    return next(name for name in names if bus.core.log.shard(name) == bus.core.log.shard(page))


def floor_of(bus, page="main"):
    return bus.converse(read_floor(bus.core.log, bus.core.log.shard(page))).position


def problems(directory):
    return [problem for log in verify(open_store(str(directory))) for problem in log.problems]


def in_order(event):
    return event.ms, event.shard, event.seq


def names(directory):
    return sorted(file.name for file in directory.rglob("*") if file.is_file())


# -- what is moved ---------------------------------------------------------------------------------------------------


def test_what_is_old_leaves_the_log_and_the_rest_stays(bus, directory):
    fill(bus)
    (done,) = [each for each in archive(bus) if each.events]
    assert (done.segments, done.events, done.trimmed) == (7, 25, 25)
    assert log_length(bus) == 5
    assert floor_of(bus).seq == 25
    assert problems(directory) == []
    assert all(each.events == each.trimmed == 0 for each in archive(bus))


def test_a_reader_goes_on_though_more_is_trimmed_while_it_looks_where_the_log_begins(bus, monkeypatch):
    fill(bus, 15)
    archive(bus)
    fill(bus, 15)

    def trimming(shard, commands):
        monkeypatch.undo()
        archive(bus)
        return ask_all(shard, commands)

    monkeypatch.setattr("scratchbus.eventlog.cursor.ask_all", trimming)
    assert [event.content for event in bus.events()] == [f"{n}" for n in range(15)] * 2
    assert floor_of(bus).seq == 25


def test_what_is_young_stays_however_much_there_is(connect, directory):
    bus = connect(archive_url=directory, retain="1h", retain_events=5)
    fill(bus)
    assert all(each.events == 0 for each in archive(bus))
    assert log_length(bus) == 30


def test_a_batch_is_never_torn(bus, directory):
    for _ in range(3):
        bus.page().add_many([NewObservation(type="observation", content=f"{n}") for n in range(7)])
    archive(bus)
    assert floor_of(bus).seq == 14
    assert len([name for name in names(directory) if name.endswith("manifest.json")]) == 2


def test_a_segment_that_is_not_full_waits_if_it_may(bus):
    fill(bus, 12)
    assert sum(each.events for each in archive(bus, patience=3600)) == 4
    assert sum(each.events for each in archive(bus)) == 3


def test_without_archive_url_there_is_nothing_to_run(connect):
    with pytest.raises(SettingsError, match="archive_url is not set"):
        archive_bus(connect())


def test_progress_is_told(bus):
    fill(bus)
    seen: list[Progress] = []
    archive(bus, report=seen.append)
    most = max(seen, key=lambda each: each.archived + each.trimmed)
    assert (most.archived, most.wanted, most.trimmed) == (25, 25, 25)


# -- reading as one --------------------------------------------------------------------------------------------------


def test_events_and_histories_are_as_before(bus):
    added = fill(bus)
    page = bus.page()
    for each in added[:4]:
        page.resolve(each.id)
    page.clear_resolved([each.id for each in added[:2]])
    page.archive(added[2].id)
    fill(bus, 8, "other")
    fill(bus, 8, "third")
    events = list(bus.events())
    histories = {each.id: page.history(each.id) for each in added}
    archive(bus)
    assert log_length(bus) < len(events)
    assert list(bus.events()) == events
    assert {each.id: page.history(each.id) for each in added} == histories
    for event in events:
        assert list(bus.events(event.position)) == [each for each in events if each.position > event.position] or (
            bus.core.log.shards > 1
        )
    for name in ("main", "other", "third"):
        assert list(bus.events(pages=name)) == [event for event in events if event.page == name]
    kinds = list(bus.events(kinds="status_changed"))
    assert kinds == [event for event in events if event.kind == "status_changed"]


def test_events_of_some_time_are_as_before(bus, clock):
    times = []
    for _ in range(6):
        fill(bus, 4)
        times.append(clock.ms)
        clock.advance("1m")
    clock.advance("1h")
    expected = [[event.content for event in bus.events(Position(ms, 0))] for ms in times]
    archive(bus)
    assert [[event.content for event in bus.events(Position(ms, 0))] for ms in times] == expected
    assert [len(each) for each in expected] == [24, 20, 16, 12, 8, 4]


def test_several_pages_are_read_in_times_order_across_archive_and_log(bus):
    for n in range(40):
        bus.page(f"page-{n % 7}").add("observation", f"{n}")
    before = list(bus.events())
    archive(bus)
    after = list(bus.events())
    assert [event.ms for event in after] == [event.ms for event in before] == sorted(event.ms for event in before)
    assert sorted(after, key=in_order) == sorted(before, key=in_order)


def test_a_follower_reads_the_archive_and_goes_on_in_the_log(bus):
    fill(bus)
    archive(bus)
    stop, seen = threading.Event(), []
    for event in bus.events(follow=True, stop=stop):
        seen.append(event.content)
        if len(seen) == 30:
            fill(bus, 1)
        if len(seen) == 31:
            stop.set()
    assert seen == [*map(str, range(30)), "0"]


def test_a_follower_whose_place_is_archived_meanwhile_goes_on(bus):
    fill(bus)
    events = bus.events()
    first = next(events)
    archive(bus)
    assert [first.content, *(event.content for event in events)] == [*map(str, range(30))]


def test_a_new_subscription_begins_in_the_archive(bus):
    fill(bus)
    archive(bus)
    seen = []
    with bus.subscribe("late") as deliveries:
        for delivery in deliveries:
            seen.append(delivery.event.content)
            delivery.ack()
            if len(seen) == 30:
                break
    assert seen == [*map(str, range(30))]


def test_a_retry_whose_event_is_archived_gets_the_same_answer(bus):
    page = bus.page()
    added = page.add("observation", "x", event_id="mine")
    page.update(added.id, content="y", event_id="second")
    fill(bus)
    archive(bus)
    assert page.add("observation", "x", event_id="mine") == added
    assert page.update(added.id, content="y", event_id="second").content == "y"
    assert log_length(bus) == 5


def test_a_retry_with_an_id_that_the_bus_made_finds_its_event_in_the_archive(bus, connect):
    page = bus.page()
    first = page.add("observation", "before")
    page.add("observation", "x")
    *_, event = page.history(page.list(text="x")[0].id)
    fill(bus)
    archive(bus)
    assert page.add("observation", "x", event_id=event.id).position == event.position
    assert page.get(first.id) == first
    assert log_length(bus) == 5
    with pytest.raises(PositionLost, match="set archive_url"):
        connect().page().add("observation", "x", event_id=event.id)
    assert log_length(bus) == 5


def test_traces_reach_into_the_archive(bus):
    page = bus.page()
    ground = page.add("observation", "the ground")
    alert = page.add("risk_alert", "what rests on it", evidence=[ground.id])
    page.link(alert.id, action="goal-1")
    page.archive(ground.id)
    trace, consequences = page.trace("goal-1"), page.consequences(ground.id)
    fill(bus)
    archive(bus)
    assert page.trace("goal-1") == trace
    assert page.consequences(ground.id) == consequences


def test_pages_read_as_before_also_what_is_final(bus):
    page = bus.page()
    added = fill(bus)
    for each in added[:6]:
        page.archive(each.id)
    fill(bus, 10)
    reads = [
        lambda: page.list(limit=None),
        lambda: page.list(status="archived", limit=None),
        lambda: page.list(status=["archived", "active"], tags="t", limit=3),
        lambda: page.list(limit=4, after=added[4].id),
        lambda: page.active(),
        lambda: [page.get(each.id) for each in added],
    ]
    before = [read() for read in reads]
    archive(bus)
    assert send(bus, "HLEN", keys_of(bus).heads("main")) == 34
    assert [read() for read in reads] == before
    with bus.view() as view:
        assert view.list(limit=None) == before[0]


def test_what_is_final_and_archived_is_refused_and_linked_as_ever(bus):
    page = bus.page()
    archived, cleared, *_ = fill(bus, 10)
    page.archive(archived.id)
    page.resolve(cleared.id)
    page.clear_resolved([cleared.id])
    page.link(archived.id, action="first")
    with pytest.raises(NotChangeable) as before:
        page.update(archived.id, content="else")
    fill(bus, 10)
    archive(bus)
    assert send(bus, "HMGET", keys_of(bus).heads("main"), archived.id, cleared.id) == [None, None]
    with pytest.raises(NotChangeable) as after:
        page.update(archived.id, content="else")
    assert str(after.value) == str(before.value)
    for write in (page.claim, page.resolve, page.reopen):
        with pytest.raises(NotChangeable.__mro__[1]):
            write(archived.id)
    with pytest.raises(NotFound):
        page.update(cleared.id, content="else")
    with pytest.raises(NotFound):
        page.update("01M7YS0X7YM47HSFZZZJC2DZ9D", content="else")
    linked = page.link(archived.id, action="second")
    assert linked.links == ["first", "second"]
    assert [event.kind for event in page.history(archived.id)] == ["added", "status_changed", "linked", "linked"]
    assert [event.kind for event in page.history(cleared.id)] == ["added", "status_changed", "cleared"]
    fill(bus, 10)
    archive(bus)
    assert len(page.history(archived.id)) == 4


def test_the_registry_in_force_is_known_to_all_when_its_event_is_archived(connect, bus):
    text = "types:\n  observation: {description: Made up, priority: 7}\n"
    from scratchbus.domain.registry_yaml import parse_registry

    bus.push_types(parse_registry(text, "types.yaml"))
    for n in range(40):
        bus.page(f"page-{n}").add("observation", "x")
    archive(bus)
    assert floor_of(bus, "_bus").seq >= 1
    assert connect().page().add("observation", "x").priority == 7


def test_the_state_is_rebuilt_from_archive_and_log(bus):
    page = bus.page()
    added = fill(bus)
    page.archive(added[0].id)
    page.resolve(added[1].id)
    page.clear_resolved([added[1].id])
    fill(bus, 6)
    before = page.list(limit=None)
    archive(bus)
    bus.converse(rebuild(bus.core))
    assert page.list(limit=None) == before
    names = PageKeys(keys_of(bus), "main", bus.converse(read_checkpoint(keys_of(bus))).build)
    assert send(bus, "STRLEN", names.positions) == WIDTH * log_length(bus), "of what is archived it has no positions"
    assert bus.verify().findings == []
    assert list(bus.events(pages="main")) == [event for event in bus.events() if event.page == "main"]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_page_of_the_past_is_as_it_was_before_it_was_archived(bus, clock, way):
    page = bus.page()
    added, moments = [], []
    for number in range(6):
        added += page.add_many([NewObservation(type="observation", content=f"{number} {n}") for n in range(3)])
        page.archive(added[-1].id)
        page.resolve(added[-2].id)
        if number > 2:
            page.clear_resolved([added[3 * number - 5].id])
        moments += [added[-2].position, clock.now]
        clock.advance("1m")
    clock.advance("1h")
    reads = [
        lambda when: page.as_of(when).list(limit=None),
        lambda when: page.as_of(when).active(),
        lambda when: page.as_of(when).history(added[1].id),
        lambda when: page.as_of(when, without_sources=["someone"]).list(limit=None),
    ]
    before = [[read(when) for read in reads] for when in moments]
    archive(bus)
    assert floor_of(bus).seq > 20
    with only(way):
        assert [[read(when) for read in reads] for when in moments] == before
        with pytest.raises(LogRewound, match="has no event at"):
            page.as_of(added[4].position._replace(ms=added[4].position.ms + 1))


@pytest.mark.parametrize("pages", [["main"], ["main", "other"], ["other"]], ids=" and ".join)
def test_a_moment_long_ago_costs_what_came_before_it(bus, connect, directory, read_segments, monkeypatch, pages):
    monkeypatch.setattr("scratchbus.timetravel.past.CHEAP_EVENTS", 10)
    early = fill(bus, 8)
    later = [fill(bus, 4, page) for _ in range(10) for page in pages]
    archive(bus)
    read_segments.clear()
    past = connect(archive_url=directory).page().as_of(early[-1].position)
    assert past.list(limit=None) == early[::-1]
    assert max(read_segments) <= early[-1].position.seq < later[0][0].position.seq, "no segment of what came later"


def test_a_page_whose_events_are_recent_is_not_looked_for_in_every_segment(bus, connect, read_segments, monkeypatch):
    monkeypatch.setattr("scratchbus.timetravel.past.CHEAP_EVENTS", 10)
    others = fill(bus, 40, neighbour(bus))
    fill(bus, 60)
    archive(bus)
    read_segments.clear()
    page = connect(archive_url=bus.settings.archive_url).page()
    assert page.as_of(others[21].position).list(limit=None) == []
    assert min(read_segments) == 21, "the one that has the moment"


def test_no_more_events_are_undone_than_allowed_however_few_were_expected(bus, connect, directory, monkeypatch):
    monkeypatch.setattr("scratchbus.timetravel.past.CHEAP_EVENTS", 30)
    monkeypatch.setattr("scratchbus.timetravel.past.MAX_UNDONE", 20)
    undone = []
    monkeypatch.setattr("scratchbus.timetravel.past.states_before", lambda *given: undone.append(given))
    early = fill(bus, 40)
    fill(bus, 24)
    fill(bus, 4, neighbour(bus))
    fill(bus, 1)
    archive(bus)
    page = connect(archive_url=directory).page()
    assert page.as_of(early[-1].position).list(limit=None) == early[::-1]
    assert undone == []


def test_what_was_erased_from_the_log_is_a_line_without_content(bus, directory):
    added = bus.page().add_many([NewObservation(type="observation", content=f"secret {n}") for n in range(6)])
    fill(bus, 10)
    for each in (added[0], added[2], added[5]):
        bus.page().erase(each.id, reason="they asked for it")
    fill(bus, 10)
    events = list(bus.events())
    archive(bus)
    assert floor_of(bus).seq > 16
    assert problems(directory) == []
    assert sum(log.erased for log in verify(open_store(str(directory)))) == 3
    assert list(bus.events()) == events
    assert list(bus.events(pages="main")) == events
    assert [event.kind for event in bus.page().history(added[2].id)] == ["erased"]
    bus.converse(rebuild(bus.core))
    assert len(bus.page().list(limit=None)) == 23


def test_without_archive_url_a_reader_is_told_what_to_set(connect, bus):
    page = bus.page()
    added = fill(bus)
    page.archive(added[0].id)
    fill(bus, 10)
    archive(bus)
    other = connect()
    live = [event.content for event in other.events(floor_of(bus))]
    assert live == [str(n) for n in range(5, 10)]
    for read in (
        lambda: list(other.events()),
        lambda: list(other.events(pages="main")),
        lambda: list(other.events(Position(1, 0, added[0].position.shard))),
        lambda: other.page().history(added[0].id),
        lambda: other.page().history(added[1].id),
        lambda: other.page().as_of(added[3].position).list(),
        lambda: other.page().as_of(added[3].updated_at).list(),
    ):
        with pytest.raises(PositionLost, match="set archive_url"):
            read()
    assert other.page().get(added[0].id).status == "archived"
    assert len(other.page().list(limit=None)) == 40


# -- who is waited for -----------------------------------------------------------------------------------------------


def test_nothing_leaves_that_a_subscription_has_still_to_read(bus):
    fill(bus, 10)
    with bus.subscribe("slow") as deliveries:
        for _, delivery in zip(range(6), deliveries, strict=False):
            delivery.ack()
    fill(bus)
    archive(bus)
    assert floor_of(bus).seq == 6
    with bus.subscribe("slow") as deliveries:
        assert next(iter(deliveries)).event.position.seq == 7


def test_a_subscription_to_pages_elsewhere_is_not_waited_for(bus):
    with bus.subscribe("elsewhere", pages=["main"]) as deliveries:
        for number in range(12):
            bus.page(f"page-{number}").add("observation", "x")
        added = fill(bus)
        for delivery in deliveries:
            delivery.ack()
            if delivery.event.subject == added[-1].id:
                break
    archive(bus)
    assert floor_of(bus).seq > 0


def test_nothing_leaves_that_the_reminders_have_still_to_see(bus):
    fill(bus)
    position = ",".join("1-3" for _ in range(bus.core.log.shards))
    send(bus, "SET", bus.core.log.keys(0).cursor("reminders"), position)
    archive(bus)
    assert floor_of(bus).seq == 3


def test_nothing_leaves_that_is_not_folded(bus, monkeypatch):
    from scratchbus.archive import archiver

    fill(bus, 3)
    project(bus)
    fill(bus)
    monkeypatch.setattr(archiver, "catch_up", lambda log, shard: read_floor(log, shard))
    archive(bus)
    assert floor_of(bus).seq == 3


def test_nothing_leaves_that_a_rebuild_has_still_to_read(bus, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild.CHUNK", 2)
    page, seen = bus.page(), []
    added = fill(bus)

    def archive_meanwhile(done, total):
        if done:
            archive(bus)
            seen.append((done, floor_of(bus).seq))

    bus.rebuild(archive_meanwhile)
    assert seen[:3] == [(2, 2), (4, 4), (6, 6)]
    assert page.list(limit=None) == added[::-1]
    assert bus.verify().findings == []


def test_the_floor_is_guarded_in_the_moment_in_which_it_goes_up(bus):
    fill(bus, 10)
    project(bus)
    fill(bus, 2)
    keys, shard = keys_of(bus), bus.core.log.shard("main")
    events = list(bus.events())
    origin, lease = read_origin(bus, shard), Archiving(keys, "0123", "someone", 60_000)

    def may_rise(event, origin=origin, id=""):
        return bus.converse(lease.raise_floor(origin, event.position, id or event.id))

    with pytest.raises(ArchiveBusy):
        may_rise(events[0])
    bus.converse(lease.take())
    assert not may_rise(events[10]), "it is not folded"
    project(bus)
    assert not may_rise(events[11]), "it is the last one"
    for other in ({"origin": "another"}, {"id": "another"}):
        with pytest.raises(LogRewound, match="nothing was trimmed"):
            may_rise(events[5], **other)
    assert floor_of(bus).seq == 0
    assert may_rise(events[10])
    assert may_rise(events[3]), "it is there already"
    assert floor_of(bus) == events[10].position
    bus.converse(lease.leave())
    send(bus, "DEL", keys.floor)


def read_origin(bus, shard):
    return bus.converse(read_floor(bus.core.log, shard)).origin


def test_a_subscription_that_begins_while_the_log_is_trimmed_reads_the_archive(bus, monkeypatch):
    fill(bus)
    trim = Archiving.raise_floor

    def begin(lease, *given):  # after it was looked who has still to read what
        monkeypatch.setattr(Archiving, "raise_floor", trim)
        with bus.subscribe("late") as deliveries:
            next(deliveries).ack()
        return trim(lease, *given)

    monkeypatch.setattr(Archiving, "raise_floor", begin)
    archive(bus)
    seen = ["0"]
    with bus.subscribe("late") as deliveries:
        for delivery in deliveries:
            seen.append(delivery.event.content)
            delivery.ack()
            if len(seen) == 30:
                break
    assert seen == [*map(str, range(30))]


def test_a_subscription_that_nobody_consumes_is_dropped_recorded_and_told(connect, directory, clock):
    bus = connect(archive_url=directory, retain="1m", retain_events=5, subscription_ttl="1d")
    fill(bus, 10)
    with bus.subscribe("forgotten") as deliveries:
        next(iter(deliveries)).ack()
    fill(bus)
    clock.advance("23h")
    archive(bus)
    assert floor_of(bus).seq == 1
    clock.advance("2h")
    archive(bus)
    assert floor_of(bus).seq == 35
    (status,) = bus.status().subscriptions
    assert status.dropped == clock.now
    assert "-1" in status.cursor
    told = pytest.raises(PositionLost, match=r"was dropped at .*; it was at .*its last consumer was tester@")
    with told, bus.subscribe("forgotten") as deliveries:
        next(iter(deliveries))
    with bus.subscribe("forgotten", reset=True) as deliveries:
        assert next(iter(deliveries)).event.position.seq == 1
    assert bus.status().subscriptions[0].dropped is None
    bus.unsubscribe("forgotten")


def test_ids_of_callers_are_remembered_as_long_as_is_promised(connect, directory, clock):
    bus = connect(archive_url=directory, retain="1m", retain_events=1, idempotency_window="2d")
    added = bus.page().add("observation", "x", event_id="mine")
    fill(bus, 3)
    clock.advance("1d")
    archive(bus)
    assert bus.page().add("observation", "x", event_id="mine").id == added.id
    clock.advance("5d")
    fill(bus, 3)
    archive(bus)
    assert not send(bus, "EXISTS", f"{keys_of(bus).ids}{added.position.ms // 86_400_000}")


# -- two archivers, and other bad days -------------------------------------------------------------------------------


def test_of_two_archivers_one_works(bus):
    fill(bus)
    shard = bus.core.log.shard("main")
    other = Archiving(bus.core.log.keys(shard), "0123", "someone@elsewhere", 60_000)
    bus.converse(other.take())
    with pytest.raises(ArchiveBusy, match="someone@elsewhere is archiving it"):
        archive(bus)
    assert log_length(bus) == 30
    bus.converse(other.leave())
    archive(bus)
    assert log_length(bus) == 5


def test_an_archiver_that_lost_its_lease_writes_no_manifest_beside_that_of_another(bus, directory, monkeypatch):
    fill(bus)
    put = DirectoryStore.put_new

    def put_late(store, name, content):
        if name.endswith("manifest.json"):  # in this moment another archiver is faster
            monkeypatch.setattr(DirectoryStore, "put_new", put)
            outdate(bus)
            archive_bus(bus)
        return put(store, name, content)

    monkeypatch.setattr(DirectoryStore, "put_new", put_late)
    with pytest.raises(ArchiveBusy):
        archive(bus)
    archive(bus)
    assert problems(directory) == []
    assert len(list(bus.events())) == 30


def test_files_that_came_to_nothing_are_taken_away(bus, directory):
    fill(bus)
    archive(bus)
    left = next(directory.rglob("*.jsonl.zst"))
    left.with_name(f"{1:016d}-{9:016d}.beef0000.jsonl.zst").write_bytes(b"half")
    left.with_name(f".{1:016d}.manifest.json.beef.tmp").write_bytes(b"half")
    left.with_name("notes.txt").write_text("someone's own")
    archive(bus)
    assert [name for name in names(directory) if "beef" in name] == []
    assert "notes.txt" in names(directory)
    assert problems(directory) == []
    assert bus.verify().findings == []


def test_a_store_that_fails_half_way_loses_nothing(bus, directory, monkeypatch):
    fill(bus)
    events = list(bus.events())
    put = DirectoryStore.put_new
    for at in range(1, 8):
        left = iter(range(at, 0, -1))

        def failing(store, name, content, left=left):
            if next(left) == 1:
                raise ArchiveUnavailable(f"archive {name}: No space left on device")
            return put(store, name, content)

        monkeypatch.setattr(DirectoryStore, "put_new", failing)
        with pytest.raises(ArchiveUnavailable, match="No space left"):
            archive(bus)
        assert list(bus.events()) == events
    monkeypatch.setattr(DirectoryStore, "put_new", put)
    archive(bus)
    assert list(bus.events()) == events
    assert problems(directory) == []


def test_what_does_not_arrive_as_it_was_sent_does_not_count(bus, directory, monkeypatch):
    fill(bus)
    put = DirectoryStore.put_new
    monkeypatch.setattr(DirectoryStore, "put_new", lambda store, name, content: put(store, name, content[:-1]))
    with pytest.raises(ArchiveDamaged):
        archive(bus)
    assert log_length(bus) == 30
    assert floor_of(bus).seq == 0


@pytest.mark.damages_the_log
@pytest.mark.parametrize("kind", ["*.jsonl.zst", "*.manifest.json"])
@pytest.mark.parametrize("harm", ["gone", "short"])
def test_a_missing_or_truncated_segment_is_reported(connect, bus, directory, kind, harm):
    fill(bus)
    archive(bus)
    file = sorted(directory.rglob(kind))[2]
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-10])
    other = connect(archive_url=directory, retain="1ms", retain_events=5)
    with pytest.raises(ArchiveDamaged, match=r"; restore it from a copy of the archive|, or restore the segment"):
        list(other.events())
    assert [event.content for event in other.events(floor_of(bus))] == [str(n) for n in range(25, 30)]


@pytest.mark.damages_the_log
def test_an_archive_of_another_bus_or_log_is_not_read_nor_written(connect, bus, directory, bus_name):
    fill(bus)
    archive(bus)
    before = names(directory)
    shard = bus.core.log.shard("main")
    folder = directory / bus_name / f"{shard:04d}"
    other = connect(archive_url=directory.with_name("other"), bus=f"{bus_name}-2", retain="1ms", retain_events=1)
    fill(other, 3)
    (directory.with_name("other") / f"{bus_name}-2").mkdir(parents=True)
    folder.rename(directory.with_name("other") / f"{bus_name}-2" / f"{shard:04d}")
    with pytest.raises(ArchiveForeign, match="is the archive of bus"):
        archive(other)
    (directory.with_name("other") / f"{bus_name}-2" / f"{shard:04d}").rename(folder)
    send(bus, "SET", keys_of(bus).origin, "another")
    with pytest.raises(ArchiveForeign, match="of another log of bus"):
        archive(bus)
    with pytest.raises(ArchiveForeign, match="of another log of bus"):
        list(connect(archive_url=directory).events())
    assert names(directory) == before


@pytest.mark.damages_the_log
def test_a_log_that_was_rewound_behind_its_archive_is_not_gone_on_with(bus, directory):
    fill(bus)
    archive(bus)
    before, keys = names(directory), keys_of(bus)
    tail = send(bus, "GET", keys.tail)
    send(bus, "SET", keys.tail, f"{floor_of(bus).ms}-{floor_of(bus).seq - 3}|other")
    with pytest.raises(ArchiveForeign, match="was rewound or restored from an older backup"):
        archive(bus)
    send(bus, "SET", keys.tail, tail)
    assert names(directory) == before


@pytest.mark.damages_the_log
def test_an_archive_that_lacks_what_was_trimmed_is_not_gone_on_with(connect, bus, directory):
    fill(bus)
    archive(bus)
    fill(bus)
    other = connect(archive_url=directory.with_name("empty"), retain="1ms", retain_events=5)
    with pytest.raises(
        ArchiveDamaged, match=r"the log of shard .* begins at 26; set archive_url to the archive that has"
    ):
        archive(other)
    with pytest.raises(ArchiveDamaged, match="does not have event 1, which was archived"):
        list(other.events())


def test_the_daemon_archives_until_it_is_stopped(connect, directory):
    bus = connect(archive_url=directory, retain="1ms", retain_events=5, archive_segment=4, archive_interval="10ms")
    fill(bus)
    stop = threading.Event()
    thread = threading.Thread(target=run_archiver, args=(bus, stop))
    thread.start()
    try:
        eventually(lambda: log_length(bus) < 10)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


# -- what agents remember --------------------------------------------------------------------------------------------


def test_notes_and_notepads_read_on_when_their_events_are_archived(bus, connect, directory):
    for number in range(6):
        bus.notes("s1").add(f"note {number}")
        bus.notepad("s1").append(f"{number}")
    reader = connect("reader", archive_url=directory)
    notes, gone = reader.notes("s1").list().notes, bus.notes("s1").delete(bus.notes("s1").list().notes[0].id).note
    fill(bus)
    archive(bus)
    assert floor_of(bus, "session:s1").seq > 0
    assert reader.notes("s1").list().notes == bus.notes("s1").list().notes == notes[1:]
    assert bus.notepad("s1").read() == "012345"
    assert len(bus.notes("s1").history()) == 7
    assert len(bus.notepad("s1").history()) == 6
    assert bus.notepad("s1").as_of(gone.position) == "01234"
    assert bus.notes("s1").as_of(gone.position).notes == notes
    bus.notepad("s1").append("!")
    bus.notes("s1").update(notes[-1].id, "changed")
    bus.rebuild()
    assert bus.notepad("s1").read() == "012345!"
    assert bus.verify().findings == []


def test_a_session_that_is_over_leaves_one_head_when_it_is_archived(bus):
    notes = [bus.notes("s1").add(f"note {number}").note for number in range(12)]
    bus.notepad("s1").write("plan")
    bus.end_session("s1")
    fill(bus, page="session:s1")
    archive(bus)
    keys = keys_of(bus, "session:s1")
    assert floor_of(bus, "session:s1").seq > 14
    left = {head for head in send(bus, "HKEYS", keys.heads("session:s1")) if head.islower()}
    assert left == {b"session"}
    assert [event.kind for event in bus.notes("s1").history(notes[0].id)] == ["note_added", "session_ended"]
    with pytest.raises(SessionOver):
        bus.notes("s1").update(notes[0].id, "late")
    assert bus.notes("s1").as_of(notes[-1].position).notes == notes[::-1]
    assert bus.verify().findings == []


def test_a_reader_of_notes_whose_place_was_archived_still_sees_all_of_them(bus, connect, directory):
    reader = connect("reader", archive_url=directory)
    assert reader.notes("s1").list().notes == []
    fill(bus)
    archive(bus)
    late = bus.notes("s1").add("behind what was archived").note
    assert reader.notes("s1").list().notes == [late]
    fill(bus)
    archive(bus)
    assert reader.notes("s1").add("one more").metadata["total_notes"] == 2


def test_facts_outlive_their_events_and_can_be_retracted_then(bus, connect, directory):
    reader, facts = connect("reader", archive_url=directory), bus.facts("p1")
    assert reader.facts("p1").query() == []
    old, new = facts.ingest("App -> runs_on -> Node 20\nApp -> runs_on -> Node 24")
    fill(bus, page="knowledge:p1")
    archive(bus)
    assert reader.facts("p1").query() == connect().facts("p1").query() == [new]
    gone = facts.retract(new.id, "not yet")
    assert reader.facts("p1").query() == [old]
    archive(bus)
    bus.rebuild()
    known = connect("later", archive_url=directory).facts("p1")
    assert known.query() == [old]
    assert known.query(known_at=new.position) == [new]
    assert [event.kind for event in known.why(new.id).events] == ["fact_asserted", "fact_retracted"]
    assert (known.query(known_at=gone.position), bus.verify().findings) == ([old], [])


def test_an_archiver_raises_the_floor_again_that_a_failover_lost(bus, monkeypatch):
    fill(bus)
    before, trim = list(bus.events()), Archiving.trim
    lost: list[int] = []

    def losing(lease, stream_id):
        if not lost:
            lost.append(send(bus, "DEL", lease.keys.floor))
        return (yield from trim(lease, stream_id))

    monkeypatch.setattr(Archiving, "trim", losing)
    archive(bus)
    assert lost == [1]
    assert log_length(bus) < len(before)
    assert list(bus.events()) == before
    assert bus.verify().findings == []


def test_an_archiver_whose_floor_is_lost_every_time_says_what_to_do(bus, monkeypatch):
    fill(bus)
    before, trim = list(bus.events()), Archiving.trim

    def losing(lease, stream_id):
        send(bus, "DEL", lease.keys.floor)
        return (yield from trim(lease, stream_id))

    with monkeypatch.context() as patch:
        patch.setattr(Archiving, "trim", losing)
        with pytest.raises(LogRewound, match="Run the archiver again"):
            archive(bus)
    archive(bus)
    assert list(bus.events()) == before
    assert bus.verify().findings == []


@pytest.mark.parametrize("follow", [False, True])
def test_a_reader_of_a_log_that_was_flushed_is_told_so_though_the_new_one_is_archived_already(bus, follow):
    read = bus.events(follow=follow)
    fill(bus)
    for _ in range(30):
        last = next(read)
    forget(bus)
    eventually(lambda: now_ms(bus) > last.ms)
    fill(bus, 12)
    archive(bus)
    assert last.position < floor_of(bus)
    assert last.seq > floor_of(bus).seq
    for again in (read, bus.events(after=last.position, follow=follow)):
        with pytest.raises(LogRewound):
            next(again)
