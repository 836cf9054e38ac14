"""Old events move from the log to the archive; reads stay the same."""

from __future__ import annotations

import re
import shutil
import threading

import pytest

from scratchbus import NewObservation, Observation
from scratchbus.archive.archive_check import verify
from scratchbus.archive.archive_reader import Archive
from scratchbus.archive.archiver import Progress, archive_bus, run_archiver
from scratchbus.archive.manifest import number_of
from scratchbus.archive.stores import DirectoryStore, open_store
from scratchbus.domain.position import Position
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.domain.relation_registry import parse_relations
from scratchbus.engine.steps import ask_all
from scratchbus.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    ArchiveForeign,
    ArchiveUnavailable,
    EventIdReused,
    InvalidField,
    LogGap,
    LogRewound,
    NotChangeable,
    NotFound,
    PositionLost,
    SessionOver,
    SettingsError,
)
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.bus_log import bounded_event_id
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.positions import WIDTH
from scratchbus.eventlog.stored_documents import decode_observation
from scratchbus.eventlog.trim import Archiving
from scratchbus.readmodel.rebuild import rebuild
from scratchbus.readmodel.verify.findings import Finding
from tests.engines import ONE
from tests.faults.interposing import answering_first, interposed
from tests.inspection import archive, forget, keys_of, log_length, now_ms, outdate, project, send
from tests.past_pages import WAYS, only
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ONE)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Divide every segment into several blocks."""
    monkeypatch.setattr("scratchbus.archive.blocks.BLOCK_BYTES", 1_000)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def bus(connect, directory):
    """A bus that keeps five events in each log and puts four into each segment."""
    return connect(archive_url=directory, retain="1ms", retain_events=5, archive_segment=4)


@pytest.fixture
def read_segments(monkeypatch):
    """The first sequence number of each segment that is read, once per read."""
    seen = []
    get_part = DirectoryStore.get_part

    def recording(store, name, start, length):
        seen.append(int(name.rpartition("/")[2][:16]))
        return get_part(store, name, start, length)

    monkeypatch.setattr(DirectoryStore, "get_part", recording)
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


# -- moving events ---------------------------------------------------------------------------------------------------


def test_old_events_move_to_the_archive(bus, directory):
    fill(bus)
    (done,) = [each for each in archive(bus) if each.events]
    assert (done.segments, done.events, done.trimmed) == (7, 25, 25)
    assert log_length(bus) == 5
    assert floor_of(bus).seq == 25
    assert problems(directory) == []
    assert all(each.events == each.trimmed == 0 for each in archive(bus))


def test_reader_survives_a_trim_while_it_reads_the_floor(bus, monkeypatch):
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


def test_young_events_stay_in_the_log(connect, directory):
    bus = connect(archive_url=directory, retain="1h", retain_events=5)
    fill(bus)
    assert all(each.events == 0 for each in archive(bus))
    assert log_length(bus) == 30


def test_full_segments_wait_until_they_are_old_enough_and_others_for_the_patience_after_that(connect, directory, clock):
    bus = connect(archive_url=directory, retain="1h", retain_events=5, archive_segment=4)
    fill(bus, 11)
    clock.advance("59m")
    assert sum(each.events for each in archive_bus(bus)) == 0
    clock.advance("2m")
    assert sum(each.events for each in archive_bus(bus, patience=3600)) == 4
    clock.advance("58m")
    assert sum(each.events for each in archive_bus(bus, patience=3600)) == 0
    clock.advance("2m")
    assert sum(each.events for each in archive_bus(bus, patience=3600)) == 2


def test_archiver_never_splits_a_batch(bus, directory):
    for _ in range(3):
        bus.page().add_many([NewObservation(type="observation", content=f"{n}") for n in range(7)])
    archive(bus)
    assert floor_of(bus).seq == 14
    assert len([name for name in names(directory) if name.endswith("manifest.json")]) == 2


def test_partial_segment_waits_while_patience_lasts(bus):
    fill(bus, 12)
    assert sum(each.events for each in archive(bus, patience=3600)) == 4
    assert sum(each.events for each in archive(bus)) == 3


@pytest.mark.engines("embedded-4-shards")
@pytest.mark.damages_the_log
def test_a_shard_without_its_archive_does_not_keep_the_others_from_being_archived(bus, directory):
    log = bus.core.log
    pages = {log.shard(name): bus.page(name) for name in map("p{}".format, range(50))}
    for page in pages.values():
        page.add_many([NewObservation(type="observation", content="x")] * 5)
        page.add_many([NewObservation(type="observation", content="x")] * 5)
    archive(bus)
    shutil.rmtree(directory / log.bus / "0000")
    for page in pages.values():
        page.add_many([NewObservation(type="observation", content="x")] * 5)
    before = [log_length_of(bus, shard) for shard in range(4)]
    log.archive = Archive(open_store(str(directory)), log.bus)  # as in a new process
    with pytest.raises(ArchiveDamaged, match="0000"):
        archive(bus)
    assert [log_length_of(bus, shard) < count for shard, count in enumerate(before)] == [False, True, True, True]


def log_length_of(bus, shard):
    return send(bus, "XLEN", bus.core.log.keys(shard).log)


def test_archiving_without_archive_url_is_refused(connect):
    with pytest.raises(SettingsError, match="archive_url is not set"):
        archive_bus(connect())


def test_progress_is_reported(bus):
    fill(bus)
    seen: list[Progress] = []
    archive(bus, report=seen.append)
    most = max(seen, key=lambda each: each.archived + each.trimmed)
    assert (most.archived, most.wanted, most.trimmed) == (25, 25, 25)


# -- reads across archive and log ------------------------------------------------------------------------------------


def test_events_and_histories_stay_the_same(bus):
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
        shard = event.position.shard
        after = [each for each in events if each.position.shard == shard and each.position > event.position]
        assert [each for each in bus.events(event.position) if each.position.shard == shard] == after
    for name in ("main", "other", "third"):
        assert list(bus.events(pages=name)) == [event for event in events if event.page == name]
    kinds = list(bus.events(kinds="status_changed"))
    assert kinds == [event for event in events if event.kind == "status_changed"]


def test_events_since_a_time_stay_the_same(bus, clock):
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


def test_events_of_several_pages_stay_in_time_order(bus):
    for n in range(40):
        bus.page(f"page-{n % 7}").add("observation", f"{n}")
    before = list(bus.events())
    archive(bus)
    after = list(bus.events())
    assert [event.ms for event in after] == [event.ms for event in before] == sorted(event.ms for event in before)
    assert sorted(after, key=in_order) == sorted(before, key=in_order)


def test_follower_reads_the_archive_then_the_log(bus):
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


def test_reader_continues_after_its_position_is_archived(bus):
    fill(bus)
    events = bus.events()
    first = next(events)
    archive(bus)
    assert [first.content, *(event.content for event in events)] == [*map(str, range(30))]


def test_new_subscription_starts_in_the_archive(bus):
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


def test_retry_of_an_archived_event_returns_the_same_result(bus):
    page = bus.page()
    added = page.add("observation", "x", event_id="mine")
    page.update(added.id, content="y", event_id="second")
    fill(bus)
    archive(bus)
    assert page.add("observation", "x", event_id="mine") == added
    assert page.update(added.id, content="y", event_id="second").content == "y"
    assert log_length(bus) == 5


def test_retry_with_a_generated_event_id_finds_the_archived_event(bus, connect):
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


def test_a_batch_with_a_generated_event_id_from_the_archive_and_a_new_one_is_refused(bus):
    page = bus.page()
    page.add("observation", "before")
    known = page.history(page.add("observation", "x").id)[0].id
    fill(bus)
    archive(bus)
    items = [NewObservation(type="observation", content=id, event_id=id) for id in ("new", known)]
    items[1] = items[1].model_copy(update={"content": "x"})
    with pytest.raises(
        EventIdReused, match=f"event id '{known}' was used before, but 'new', of the same batch, was not"
    ):
        page.add_many(items)
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


def test_unknown_evidence_is_sought_in_the_archive_once_however_many_pages_there_are(bus, monkeypatch):
    for page in "abcdefgh":
        fill(bus, 6, page)
    archive(bus)
    listed, listing = [], DirectoryStore.list

    def counted(store, prefix=""):
        listed.append(prefix)
        return listing(store, prefix)

    monkeypatch.setattr(DirectoryStore, "list", counted)
    with pytest.raises(InvalidField, match="is not on any page"):
        bus.page("a").add("observation", "rests", evidence=["01J0000000000000000000000A"])
    assert len(listed) <= bus.core.log.shards


def test_past_traces_reach_cleared_evidence_of_another_page(bus, connect):
    desk, evidence = bus.page("desk"), bus.page("main").add("observation", "seen")
    alert = desk.add("risk_alert", "it is so", evidence=[evidence.id])
    desk.link(alert.id, "goal-17")
    bus.page("main").resolve(evidence.id)
    then = bus.position()
    before = desk.as_of(then).trace("goal-17")
    assert list(before.observations) == [alert.id, evidence.id]
    bus.page("main").clear_resolved([evidence.id])
    fill(bus)
    archive(bus)
    assert desk.as_of(then).trace("goal-17") == before
    assert list(desk.as_of(then).evidence(alert.id)) == [evidence.id]
    with pytest.raises(PositionLost, match="archive_url"):
        connect().page("desk").as_of(then).trace("goal-17")


def test_page_reads_with_final_observations_stay_the_same(bus):
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


def test_paged_out_observations_refuse_all_writes_but_links(bus):
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
    assert page.add("observation", "rests", evidence=[cleared.id]).evidence == [cleared.id]
    fill(bus, 10)
    archive(bus)
    assert len(page.history(archived.id)) == 4


def test_the_head_of_a_final_observation_stays_while_its_last_event_is_not_archived(bus, monkeypatch):
    page = bus.page()
    final = page.archive(fill(bus, 1)[0].id)
    fill(bus, 10)
    drop_heads, linked = Archiving.drop_heads, list[Observation]()

    def overtaken(lease, name, subjects):
        if final.id in subjects and not linked:
            linked.append(page.link(final.id, "first"))
        return drop_heads(lease, name, subjects)

    monkeypatch.setattr(Archiving, "drop_heads", overtaken)
    archive(bus)
    again = page.link(final.id, "second")
    assert (again.version, again.links) == (linked[0].version + 1, ["first", "second"])
    assert bus.verify().findings == []


def test_a_writer_does_not_restore_a_head_over_the_one_that_another_has_restored_and_changed(bus, connect, monkeypatch):
    page = bus.page()
    final = page.archive(fill(bus, 1)[0].id)
    fill(bus, 10)
    archive(bus)
    assert not send(bus, "HEXISTS", keys_of(bus).heads("main"), final.id)
    others = [lambda: connect("other").page("main").link(final.id, "theirs")]

    def overtaken(row):
        document = decode_observation(row)
        if others:
            others.pop()()
        return document

    monkeypatch.setattr("scratchbus.eventlog.dropped_heads.decode_observation", overtaken)
    mine = page.link(final.id, "mine")
    assert not others
    assert (mine.version, mine.links) == (final.version + 2, ["theirs", "mine"])
    assert bus.verify().findings == []


def test_an_archiver_goes_on_after_one_that_ended_between_keeping_the_types_and_the_trim(bus, monkeypatch):
    bus.push_types(parse_registry("types:\n  observation: {priority: 7}\n", "types.yaml"))
    fill(bus, 20, neighbour(bus, "_bus"))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Archiving, "trim", killed)
        with pytest.raises(KeyboardInterrupt):
            archive(bus)
    assert send(bus, "XLEN", keys_of(bus, "_bus").kept) == 1
    archive(bus)
    assert send(bus, "XLEN", keys_of(bus, "_bus").log) < 20
    assert bus.verify().findings == []
    kept = keys_of(bus, "_bus").kept
    ((id, fields),) = send(bus, "XRANGE", kept, "-", "+")
    send(bus, "DEL", kept)
    what = "is missing; it has the current types"
    assert bus.verify().findings == [Finding("kept", f"{kept} {id.decode()}", what)]
    send(bus, "XADD", kept, id, *fields[:-1], "forged")
    what = "is not the event that the archive has there"
    assert bus.verify().findings == [Finding("key", f"{kept} {id.decode()}", what)]


@pytest.mark.parametrize("subject", ["types", "relations"])
def test_publishing_a_change_ends_the_loss_of_what_is_kept(bus, subject):
    def publish(text):
        if subject == "types":
            bus.push_types(parse_registry(f"types:\n  observation: {{description: {text}}}\n", "types.yaml"))
        else:
            bus.push_relations(parse_relations(f"relations:\n  is_near: {{inverse: {text}}}\n", "relations.yaml"))

    publish("one")
    for n in range(40):
        bus.page(f"page-{n}").add("observation", "x")
    archive(bus)
    project(bus)
    kept = keys_of(bus, "_bus").kept
    send(bus, "DEL", kept)
    (found,) = bus.verify().findings
    assert (found.kind, found.what) == ("kept", f"is missing; it has the current {subject}")
    assert "publish the types or relations again, with a change" in found.advice
    publish("two")
    assert bus.verify().findings == []


def test_new_bus_reads_the_registry_from_the_archive(connect, bus):
    text = "types:\n  observation: {description: Made up, priority: 7}\n"
    bus.push_types(parse_registry(text, "types.yaml"))
    for n in range(40):
        bus.page(f"page-{n}").add("observation", "x")
    archive(bus)
    assert floor_of(bus, "_bus").seq >= 1
    assert connect().page().add("observation", "x").priority == 7


def test_rebuild_reads_archive_and_log(bus):
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
    assert send(bus, "STRLEN", names.positions) == WIDTH * log_length(bus), "no positions of archived events"
    assert bus.verify().findings == []
    assert list(bus.events(pages="main")) == [event for event in bus.events() if event.page == "main"]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_past_pages_stay_the_same(bus, clock, way):
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
def test_as_of_an_early_position_reads_no_later_segments(bus, connect, directory, read_segments, monkeypatch, pages):
    monkeypatch.setattr("scratchbus.timetravel.past.CHEAP_EVENTS", 10)
    early = fill(bus, 8)
    later = [fill(bus, 4, page) for _ in range(10) for page in pages]
    archive(bus)
    read_segments.clear()
    past = connect(archive_url=directory).page().as_of(early[-1].position)
    assert past.list(limit=None) == early[::-1]
    assert max(read_segments) <= early[-1].position.seq < later[0][0].position.seq, "no later segment"


def test_as_of_a_page_with_recent_events_skips_older_segments(bus, connect, read_segments, monkeypatch):
    monkeypatch.setattr("scratchbus.timetravel.past.CHEAP_EVENTS", 10)
    others = fill(bus, 40, neighbour(bus))
    fill(bus, 60)
    archive(bus)
    read_segments.clear()
    page = connect(archive_url=bus.settings.archive_url).page()
    assert page.as_of(others[21].position).list(limit=None) == []
    assert min(read_segments) == 21, "the segment with that position"


def test_as_of_never_undoes_more_than_max_undone(bus, connect, directory, monkeypatch):
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


def test_erased_events_are_archived_without_content(bus, directory):
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


def test_reads_below_the_floor_without_archive_url_say_to_set_it(connect, bus):
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


# -- readers that hold events back -----------------------------------------------------------------------------------


def test_archiver_keeps_events_a_subscription_has_not_read(bus):
    fill(bus, 10)
    with bus.subscribe("slow") as deliveries:
        for _, delivery in zip(range(6), deliveries, strict=False):
            delivery.ack()
    fill(bus)
    archive(bus)
    assert floor_of(bus).seq == 6
    with bus.subscribe("slow") as deliveries:
        assert next(iter(deliveries)).event.position.seq == 7


def test_archiver_ignores_subscriptions_to_other_pages(bus):
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


def test_archiver_keeps_events_the_reminders_have_not_read(bus):
    fill(bus)
    position = ",".join("1-3" for _ in range(bus.core.log.shards))
    send(bus, "SET", bus.core.log.keys(0).reminders, position)
    archive(bus)
    assert floor_of(bus).seq == 3


def test_archiver_keeps_unfolded_events(bus, monkeypatch):
    from scratchbus.archive import archiver

    fill(bus, 3)
    project(bus)
    fill(bus)
    monkeypatch.setattr(archiver, "catch_up", lambda log, shard: read_floor(log, shard))
    archive(bus)
    assert floor_of(bus).seq == 3


def test_archiver_keeps_events_a_rebuild_has_not_read(bus, monkeypatch):
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


def test_raise_floor_checks_lease_checkpoint_tail_and_origin(bus):
    fill(bus, 10)
    project(bus)
    fill(bus, 2)
    keys, shard = keys_of(bus), bus.core.log.shard("main")
    events = list(bus.events())
    origin, lease = read_origin(bus, shard), Archiving(keys, "0123", "someone", 60_000)

    def raises_floor(event, origin=origin, id=""):
        return bus.converse(lease.raise_floor(origin, event.position, id or event.id))

    with pytest.raises(ArchiveBusy):
        raises_floor(events[0])
    bus.converse(lease.take())
    assert not raises_floor(events[10]), "not folded"
    project(bus)
    assert not raises_floor(events[11]), "the last event"
    for other in ({"origin": "another"}, {"id": "another"}):
        with pytest.raises(LogRewound, match="nothing was trimmed"):
            raises_floor(events[5], **other)
    assert floor_of(bus).seq == 0
    assert raises_floor(events[10])
    assert raises_floor(events[3]), "already below the floor"
    assert floor_of(bus) == events[10].position
    bus.converse(lease.leave())
    send(bus, "DEL", keys.floor)


def test_the_floor_may_be_an_erased_event(bus):
    page, shard = bus.page(), bus.core.log.shard("main")
    secret = page.add("observation", "secret")
    page.erase(secret.id, reason="they asked for it")
    fill(bus, 3)
    project(bus)
    lease = Archiving(keys_of(bus), "0123", "someone", 60_000)
    bus.converse(lease.take())
    assert bus.converse(lease.raise_floor(read_origin(bus, shard), secret.position, "erased"))
    assert floor_of(bus) == secret.position
    bus.converse(lease.leave())
    send(bus, "DEL", keys_of(bus).floor)


def read_origin(bus, shard):
    return bus.converse(read_floor(bus.core.log, shard)).origin


def test_subscription_started_during_a_trim_reads_the_archive(bus, monkeypatch):
    fill(bus)
    trim = Archiving.raise_floor

    def begin(lease, *given):  # after the archiver has read all cursors
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


def test_unused_subscription_is_dropped_and_refused(connect, directory, clock):
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
    refused = pytest.raises(PositionLost, match=r"was dropped at .*; it was at .*its last consumer was tester@")
    with refused, bus.subscribe("forgotten") as deliveries:
        next(iter(deliveries))
    with bus.subscribe("forgotten", reset=True) as deliveries:
        assert next(iter(deliveries)).event.position.seq == 1
    assert bus.status().subscriptions[0].dropped is None
    bus.unsubscribe("forgotten")


def test_event_ids_are_kept_for_the_idempotency_window(connect, directory, clock):
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


def test_an_event_id_is_recognised_until_the_idempotency_window_ends(connect, clock):
    bus = connect(idempotency_window="2d")
    clock.set((clock.ms // 86_400_000 + 1) * 86_400_000)  # ids are kept by day: begin with one
    clock.advance("23h")
    added = bus.page().add("observation", "x", event_id="mine")
    clock.advance("2d")
    assert bus.page().add("observation", "x", event_id="mine").id == added.id


def test_a_new_event_id_removes_those_of_days_before_the_window(connect, clock):
    bus = connect(idempotency_window="2d")
    added = bus.page().add("observation", "x", event_id="old")
    clock.advance("4d")
    bus.page().add("observation", "y", event_id="new")
    assert not send(bus, "EXISTS", f"{keys_of(bus).ids}{added.position.ms // 86_400_000}")


# -- failures --------------------------------------------------------------------------------------------------------


def test_second_archiver_is_refused(bus):
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


def test_the_lease_of_a_killed_archiver_ends_in_time_although_the_clock_was_set_back(bus):
    fill(bus)
    killed = Archiving(bus.core.log.keys(bus.core.log.shard("main")), "0123", "killed", 60_000)
    taken = bus.converse(killed.take())
    send(bus, "SET", killed.keys.archiver, f"0123|{taken + 3_600_000}|killed")
    with pytest.raises(ArchiveBusy):
        archive(bus)
    until = int(send(bus, "GET", killed.keys.archiver).split(b"|")[1])
    assert taken + 60_000 <= until < taken + 600_000
    bus.converse(killed.keep())
    with pytest.raises(ArchiveBusy, match="killed"):
        archive(bus)


def test_an_archiver_that_is_refused_does_not_extend_the_lease_of_a_killed_one(bus):
    fill(bus)
    killed = Archiving(bus.core.log.keys(bus.core.log.shard("main")), "0123", "killed", 20_000)
    bus.converse(killed.take())
    held = send(bus, "GET", killed.keys.archiver)
    with pytest.raises(ArchiveBusy):
        archive(bus)
    assert send(bus, "GET", killed.keys.archiver) == held


def test_a_killed_archiver_is_replaced_when_its_lease_ends(bus):
    fill(bus)
    killed = Archiving(bus.core.log.keys(bus.core.log.shard("main")), "0123", "killed", 60_000)
    bus.converse(killed.take())
    outdate(bus)
    archive(bus)
    assert log_length(bus) == 5
    with pytest.raises(ArchiveBusy):
        bus.converse(killed.keep())


@pytest.mark.damages_the_log
def test_a_session_whose_end_is_lost_in_a_failover_keeps_its_notes_writable(bus, monkeypatch):
    note = bus.notes("s1").add("first").note
    name = f"{{{bus.core.log.bus}:*"
    project(bus)
    saved = {key: send(bus, "DUMP", key) for key in send(bus, "KEYS", name)}
    bus.end_session("s1")
    fill(bus, page="session:s1")
    drop, failed_over = Archiving.drop_remembered, []

    def fail_over(lease, page, over):
        held = send(bus, "GET", lease.keys.archiver)
        for key in send(bus, "KEYS", name):
            send(bus, "DEL", key)
        for key, content in saved.items():
            send(bus, "RESTORE", key, 0, content)
        send(bus, "SET", lease.keys.archiver, held)
        failed_over.append(over)
        yield from drop(lease, page, over)

    monkeypatch.setattr(Archiving, "drop_remembered", fail_over)
    archive(bus)
    assert len(failed_over) == 1
    assert bus.notes("s1").update(note.id, "second").note.content == "second"


def test_archiver_without_its_lease_writes_no_second_manifest(bus, directory, monkeypatch):
    fill(bus)
    put = DirectoryStore.put_new

    def put_late(store, name, content):
        if name.endswith("manifest.json"):  # another archiver is faster
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


def test_leftover_files_of_failed_archivers_are_deleted(bus, directory):
    fill(bus)
    archive(bus)
    left = next(directory.rglob("*.jsonl.zst"))
    left.with_name(f"{1:016d}-{9:016d}.beef0000.jsonl.zst").write_bytes(b"half")
    left.with_name(f".{1:016d}.manifest.json.beef.tmp").write_bytes(b"half")
    for suffix in ("beef0001.jsonl.zst", "beef0001.index.zst", "beef0002.jsonl.zst"):  # as many as a segment has
        left.with_name(f"{2:016d}-{9:016d}.{suffix}").write_bytes(b"half")
    left.with_name(".end.json.beef.tmp").write_bytes(b"half")
    left.with_name("notes.txt").write_text("someone's own")
    coming = f"{27:016d}-{29:016d}.beef0003.jsonl.zst"  # another archiver may be about to name it
    left.with_name(coming).write_bytes(b"half")
    archive(bus)
    assert [name for name in names(directory) if "beef" in name] == [coming]
    left.with_name(coming).unlink()
    assert "notes.txt" in names(directory)
    assert problems(directory) == []
    assert bus.verify().findings == []


def test_failing_store_loses_no_events(bus, directory, monkeypatch):
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


def test_full_disk_keeps_no_files_without_a_manifest(bus, directory, monkeypatch):
    page, put = bus.page(), DirectoryStore.put_new
    erased = fill(bus)[0]
    archive(bus)
    fill(bus)

    def without_room_for_indexes(store, name, content):
        if ".index." in name:
            raise ArchiveUnavailable(f"archive {name}: No space left on device")
        return put(store, name, content)

    before = names(directory)
    monkeypatch.setattr(DirectoryStore, "put_new", without_room_for_indexes)
    with pytest.raises(ArchiveUnavailable, match="No space left"):
        archive(bus)
    with pytest.raises(ArchiveUnavailable, match="No space left"):
        page.erase(erased.id, reason="personal")
    assert names(directory) == before


def test_corrupted_upload_does_not_raise_the_floor(bus, directory, monkeypatch):
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
def test_events_before_a_damaged_last_manifest_are_read(connect, bus, directory):
    fill(bus)
    archive(bus)
    last = sorted(directory.rglob("*.manifest.json"))[-1]
    last.write_bytes(last.read_bytes()[:-10])
    other = connect(archive_url=directory, retain="1ms", retain_events=5)
    events = iter(other.events())
    assert [next(events).content for _ in range(20)] == [str(n) for n in range(20)]
    with pytest.raises(ArchiveDamaged, match=r"restore it from a copy of the archive"):
        list(events)
    with pytest.raises(ArchiveDamaged, match=r"restore it from a copy of the archive"):
        archive(other)


@pytest.mark.damages_the_log
def test_archive_of_another_bus_or_log_is_refused(connect, bus, directory, bus_name):
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
def test_log_rewound_behind_its_archive_is_refused(bus, directory):
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
def test_a_restored_bus_goes_on_with_the_segments_that_it_shares(connect, bus, directory):
    fill(bus)
    archive(bus)
    saved = {key: send(bus, "DUMP", key) for key in send(bus, "KEYS", f"{{{bus.core.log.bus}:*")}
    fill(bus)
    archive(bus)
    for key in send(bus, "KEYS", f"{{{bus.core.log.bus}:*"):
        send(bus, "DEL", key)
    for key, content in saved.items():
        send(bus, "RESTORE", key, 0, content)
    fill(connect(archive_url=directory, retain="1ms", retain_events=5, archive_segment=4))
    (found,) = connect(archive_url=directory).verify().findings
    assert found.kind == "archive"
    assert found.what.endswith("restored from an older backup; `scratchbus log-archive run` says what to do")
    with pytest.raises(ArchiveForeign, match=r"delete end\.json and the files numbered above") as refused:
        archive(connect(archive_url=directory, retain="1ms", retain_events=5, archive_segment=4))
    copy = shutil.copytree(directory, directory.with_name("copy"))
    number, folder = re.search(r"numbered above (\d+) from (\S+) there", str(refused.value)).groups()
    assert number == "29", "archived since, but also in the backup"
    for file in (copy / folder).iterdir():
        if file.name == "end.json" or (number_of(file.name) or 0) > int(number):
            file.unlink()
    again = connect(archive_url=copy, retain="1ms", retain_events=5, archive_segment=4)
    archive(again)
    assert problems(copy) == again.verify().findings == []
    assert [event.seq for event in again.events()] == [*range(1, 61)]


@pytest.mark.damages_the_log
def test_log_that_grew_past_its_archive_after_a_rewind_is_refused(bus, directory):
    send(bus, "SET", bus.core.log.keys(0).reminders, ",".join("1-3" for _ in range(bus.core.log.shards)))
    fill(bus, 10)
    saved = {key: send(bus, "DUMP", key) for key in send(bus, "KEYS", f"{{{bus.core.log.bus}:*")}
    fill(bus, 10)
    archive(bus)
    before = names(directory)
    forget(bus)
    for key, value in saved.items():
        send(bus, "RESTORE", key, 0, value)
    fill(bus, 40)
    with pytest.raises(ArchiveForeign, match="was rewound or restored from an older backup"):
        archive(bus)
    assert names(directory) == before


@pytest.mark.damages_the_log
def test_verify_finds_another_event_at_the_position_of_the_last_archived_one(bus, directory):
    keys = keys_of(bus)
    with bus.subscribe("slow"):  # nothing is trimmed before it has read it
        pass
    fill(bus, 20)
    (end,) = {Position.parse(run.end) for run in archive(bus) if run.events}
    assert floor_of(bus).seq < end.seq
    entries = send(bus, "XRANGE", keys.log, "-", "+")
    send(bus, "DEL", keys.log)
    for stream_id, fields in entries:
        if stream_id.decode() == end.stream_id:
            fields[fields.index(b"id") + 1] = b"another"
        send(bus, "XADD", keys.log, stream_id, *fields)
    (found,) = bus.verify().findings
    assert (found.kind, found.where) == ("archive", str(directory))
    assert re.match(rf"is beyond the log, which does not have event (\d/)?{end}: it was rewound", found.what)


def test_a_segment_that_cannot_be_read_is_found(connect, bus, directory):
    fill(bus)
    archive(bus)
    segment = max(directory.glob(f"*/{bus.core.log.shard('main'):04d}/*.jsonl.zst"))
    segment.unlink()
    segment.mkdir()
    file, rest = connect("another", archive_url=directory).verify().findings
    assert (file.kind, file.where) == ("archive", segment.relative_to(directory).as_posix())
    assert file.what.startswith("it cannot be read: ")
    assert "make it readable" in file.advice
    assert rest.what.startswith("nothing that rests on it could be compared: ")


def test_a_store_that_goes_down_after_the_check_of_its_files_is_no_finding(bus, directory, monkeypatch):
    fill(bus)
    archive(bus)
    folder = directory / bus.settings.bus / f"{bus.core.log.shard('main'):04d}"
    (folder / f"{1:016d}-{9:016d}.beef0000.jsonl.zst").write_bytes(b"half")  # something else to be found

    def down(*_):
        raise ArchiveUnavailable("it does not answer")

    monkeypatch.setattr(Archive, "last_until", down)
    with pytest.raises(ArchiveUnavailable, match="it does not answer"):
        bus.verify()


@pytest.mark.damages_the_log
def test_archive_without_the_trimmed_events_is_refused(connect, bus, directory):
    fill(bus)
    archive(bus)
    fill(bus)
    other = connect(archive_url=directory.with_name("empty"), retain="1ms", retain_events=5)
    with pytest.raises(
        ArchiveDamaged,
        match=r"has no segments, and the log of shard .* begins at 26; if .* mount that; else set archive_url",
    ):
        archive(other)
    with pytest.raises(ArchiveDamaged, match="does not have event 1, which was archived"):
        list(other.events())


@pytest.mark.damages_the_log
def test_a_log_with_a_gap_is_not_archived(bus, directory):
    lost = fill(bus)[9].position
    project(bus)
    send(bus, "XDEL", keys_of(bus).log, lost.stream_id)
    with pytest.raises(LogGap, match=rf"the log has lost event {lost.seq}; see `scratchbus verify`"):
        archive(bus)
    assert (log_length(bus), floor_of(bus).seq) == (29, 0)
    assert problems(directory) == []


def test_an_unmounted_archive_is_not_begun_a_second_time(connect, bus, directory):
    send(bus, "SET", bus.core.log.keys(0).reminders, ",".join("0-0" for _ in range(bus.core.log.shards)))
    fill(bus)
    archive(bus)
    before = names(directory)
    mounted = directory.rename(directory.with_name("mounted"))
    fill(bus)
    for _ in range(2):
        bus = connect(archive_url=directory, retain="1ms", retain_events=5, archive_segment=4)
        with pytest.raises(ArchiveDamaged, match=r"had events up to \d+, and has no segments now; .* mount that"):
            archive(bus)
        assert not directory.exists()
    archive(connect(archive_url=directory.with_name("new"), retain="1ms", retain_events=5, archive_segment=4))
    assert names(directory.with_name("new"))
    mounted.rename(directory)
    archive(bus)
    assert set(before) < set(names(directory))
    assert problems(directory) == []


def test_daemon_archives_until_stopped(connect, directory):
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


# -- memory, lost floors and flushes ---------------------------------------------------------------------------------


def test_notes_and_notepads_survive_archiving(bus, connect, directory):
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


def test_sessions_as_of_a_moment_stay_the_same(bus, connect):
    bus.notes("first").add("found")
    bus.spawn_session("first", session="child")
    then = bus.position()
    bus.notes("later").add("found")
    bus.end_session("first")
    fill(bus)
    archive(bus)
    bus.notes("first-again").add("found")
    listed = {each.id: (each.parent, each.children, each.ended) for each in bus.sessions(as_of=then)}
    assert listed == {"first": (None, ["child"], False), "child": ("first", [], False)}
    assert [each.id for each in bus.sessions()] == ["child", "first", "first-again", "later"]
    with pytest.raises(PositionLost, match="archive_url"):
        connect().sessions(as_of=then)


def test_session_that_spawned_and_goes_on_keeps_its_heads_after_archiving(bus):
    note = bus.notes("s1").add("first").note
    bus.notepad("s1").write("plan")
    bus.spawn_session("s1", session="child")
    fill(bus, page="session:s1")
    archive(bus)
    assert floor_of(bus, "session:s1").seq > 3
    kept = {head for head in send(bus, "HKEYS", keys_of(bus, "session:s1").heads("session:s1")) if head.islower()}
    assert len(kept) == 3, "the session, its notepad and its note"
    assert bus.notes("s1").update(note.id, "changed").note.content == "changed"
    assert bus.verify().findings == []


@pytest.mark.parametrize("later", [5, 30], ids=["its end is the floor", "its end is below the floor"])
def test_ended_session_keeps_one_head_after_archiving(bus, later):
    notes = [bus.notes("s1").add(f"note {number}").note for number in range(12)]
    bus.notepad("s1").write("plan")
    bus.end_session("s1")
    fill(bus, later, page="session:s1")
    with interposed(bus, answering_first({"INFO": b"run_id:before", "HSCAN": [b"0", []]})):  # as after a restart
        archive(bus)
    keys = keys_of(bus, "session:s1")
    assert floor_of(bus, "session:s1").seq == 14 + later - 5
    left = {head for head in send(bus, "HKEYS", keys.heads("session:s1")) if head.islower()}
    assert left == {b"session"}
    assert [event.kind for event in bus.notes("s1").history(notes[0].id)] == ["note_added", "session_ended"]
    with pytest.raises(SessionOver):
        bus.notes("s1").update(notes[0].id, "late")
    assert bus.notes("s1").as_of(notes[-1].position).notes == notes[::-1]
    assert bus.verify().findings == []


def test_notes_reader_behind_the_floor_sees_all_notes(bus, connect, directory):
    reader = connect("reader", archive_url=directory)
    assert reader.notes("s1").list().notes == []
    fill(bus)
    archive(bus)
    late = bus.notes("s1").add("behind what was archived").note
    assert reader.notes("s1").list().notes == [late]
    fill(bus)
    archive(bus)
    assert reader.notes("s1").add("one more").metadata["total_notes"] == 2


def test_archived_facts_can_be_queried_and_retracted(bus, connect, directory):
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


def test_archiver_restores_a_floor_lost_in_a_failover(bus, monkeypatch):
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


def test_archiver_that_always_loses_the_floor_says_what_to_do(bus, monkeypatch):
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
def test_reader_of_a_flushed_log_raises_once_the_new_log_is_archived(bus, follow):
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


def test_notes_and_preferences_are_deleted_without_the_archive(bus, connect):
    note, preference = bus.notes("s1").add("a").note, bus.preferences("ada").remember("editor", "vim")
    for page in ("session:s1", "knowledge:ada"):
        fill(bus, page=page)
    archive(bus)
    other = connect()
    deleted = other.notes("s1").delete(note.id)
    assert (deleted.note, deleted.metadata["total_notes"]) == (note, 0)
    assert other.preferences("ada").forget("editor") == preference


@pytest.mark.parametrize("is_pulled", [False, True])
def test_an_archived_dead_letter_does_not_hold_up_other_events(bus, connect, is_pulled):
    fill(bus)
    with bus.subscribe("router", pages="main", max_attempts=1) as deliveries:
        next(deliveries).fail("no")
        for _ in range(29):
            next(deliveries).ack()
    assert bus.retry_dead_letters("router") == 1
    archive(bus)
    without_archive = connect()
    added = without_archive.page().add("observation", "new")
    if is_pulled:
        assert [each.event.subject for each in without_archive.pull("router").deliveries] == [added.id]
    else:
        with without_archive.subscribe("router", pages="main") as deliveries:
            assert next(deliveries).event.subject == added.id
    (letter,) = without_archive.dead_letters("router")
    assert "was archived; set archive_url to the location of the archive" in letter.reason
    assert bus.retry_dead_letters("router") == 1


@pytest.mark.damages_the_log
def test_an_observation_is_reopened_although_its_archived_events_are_damaged(connect, bus, directory):
    page = bus.page()
    added = page.add("observation", "x")
    page.resolve(added.id)
    fill(bus)
    archive(bus)
    for file in directory.rglob("*.jsonl.zst"):
        file.write_bytes(b"")
    reopened = connect(archive_url=directory).page().reopen(added.id)
    assert (reopened.status, reopened.expires_at) == ("active", added.expires_at)


def page_on_another_shard(bus, prefix):
    """Return the name of a page, beginning with this prefix, on another shard than the page `main`."""
    names = (f"{prefix}{number}" for number in range(100))
    return next(name for name in names if bus.core.log.shard(name) != bus.core.log.shard("main"))


def archive_later(bus, page, clock):
    """Add to a page later than to all others, and archive it up to a number below theirs."""
    clock.advance("1h")
    fill(bus, 20, page)
    clock.advance("1s")
    project(bus)
    archive(bus)


def test_refutation_reaches_a_shard_that_was_archived_since_the_last_write(bus, clock):
    fill(bus, 60)
    clock.advance("1m")
    (wrong,) = fill(bus, 1)
    name = page_on_another_shard(bus, "page")
    archive_later(bus, name, clock)
    dependent = bus.page(name).add("observation", "x", evidence=[wrong.id])
    bus.page().refute(wrong.id, reason="a misread line")
    assert bus.page(name).get(dependent.id).status == "pending_review"


def test_session_is_forked_onto_a_shard_that_was_archived_since_the_last_write(bus, clock):
    shard = bus.core.log.shard
    parent = next(each for each in "abcdefghijkl" if shard(f"session:{each}") == shard("main"))
    fill(bus, 60)
    clock.advance("1m")
    bus.turns(parent).append("user", "hello")
    event_id = bus.converse(bounded_event_id(bus.core.log, f"session:{parent}"))
    fork = page_on_another_shard(bus, "session:fork").removeprefix("session:")
    name = next(f"page{number}" for number in range(100) if shard(f"page{number}") == shard(f"session:{fork}"))
    archive_later(bus, name, clock)
    assert bus.fork_session(parent, session=fork, event_id=event_id) == fork
    assert [turn.content for turn in bus.turns(fork).list()] == ["hello"]


def test_retries_of_writes_to_a_cleared_observation_get_their_results_when_its_head_is_dropped(bus):
    page, ids = bus.page(), [each.id for each in fill(bus, 4)]
    writes = [
        lambda: page.resolve(ids[0], event_id="EV-1"),
        lambda: page.update(ids[1], content="new", tags=["u"], event_id="EV-2"),
        lambda: page.link(ids[2], "goal-1", event_id="EV-3"),
        lambda: page.update(ids[3], content="new", status="resolved", event_id="EV-4"),
    ]
    results = [write() for write in writes]
    for id in ids[1:3]:
        page.resolve(id)
    page.clear_resolved(ids)
    fill(bus, 20)
    project(bus)
    archive(bus)
    assert not any(send(bus, "HMGET", keys_of(bus).heads("main"), *ids))
    length = log_length(bus)
    assert [write() for write in writes] == results
    with pytest.raises(NotFound, match=f"there is no {ids[0]} on page"):
        page.resolve(ids[0], event_id="EV-5")
    assert log_length(bus) == length
