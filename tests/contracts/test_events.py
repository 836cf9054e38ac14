"""`bus.events`: every event after a position, in order, or an error that says what is missing."""

import threading
from contextlib import contextmanager

import pytest

from scratchbus.domain.position import Position
from scratchbus.errors import CodeTooOld, InvalidPosition, LogGap, LogRewound, PositionLost
from scratchbus.eventlog import reader
from scratchbus.eventlog.below_floor import entries_at
from scratchbus.eventlog.raw_entries import entry_position
from tests.engines import ONE
from tests.inspection import entries, forget, keys_of, log_length, project, raw_append, send
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _short_block(monkeypatch):
    monkeypatch.setattr(reader, "STOPPABLE_BLOCK_MS", 20)


def fill(page, count):
    return [page.add("observation", f"{n}") for n in range(count)]


def contents(events):
    return [event.content for event in events]


@contextmanager
def following(bus, *args, **more):
    """Follow the log in a thread; yield the events so far and the errors that ended it."""
    seen, ended, stop = [], [], threading.Event()

    def follow():
        try:
            seen.extend(bus.events(*args, follow=True, stop=stop, **more))
        except Exception as error:  # each test checks it
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield seen, ended
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def test_event_has_author_source_time_and_position(connect, clock):
    bus = connect("fraud_detector")
    added = bus.page().add("risk_alert", "x", source="tool-1")
    (event,) = bus.events()
    assert (event.kind, event.type, event.page, event.subject) == ("added", "risk_alert", "main", added.id)
    assert (event.by, event.source, event.at, event.position) == (
        "fraud_detector", "tool-1", clock.now, added.position,
    )  # fmt: skip


def test_events_start_at_the_beginning_or_after_a_position(bus, page):
    added = fill(page, 5)
    assert contents(bus.events()) == ["0", "1", "2", "3", "4"]
    for after in (added[1].position, str(added[1].position)):
        assert contents(bus.events(after)) == ["2", "3", "4"]
    end = bus.position()
    assert list(bus.events(end)) == list(bus.events(str(end))) == []
    page.add("observation", "5")
    assert contents(bus.events(end)) == contents(bus.events(str(end))) == ["5"]


def test_events_can_be_filtered(bus, page):
    alert = page.add("risk_alert", "a")
    bus.page("other").add("observation", "b")
    page.resolve(alert.id)
    assert contents(bus.events(pages=["other"])) == ["b"]
    assert [event.kind for event in bus.events(types=["risk_alert"])] == ["added", "status_changed"]
    assert contents(bus.events(kinds="added", pages="main")) == ["a"]


@pytest.mark.engines(*ONE)
def test_more_events_than_one_read_are_complete(connect):
    from scratchbus import NewObservation

    bus = connect(max_observations=3000)
    for _ in range(2):
        bus.page().add_many([NewObservation(type="observation", content="x") for _ in range(1000)])
    seqs = [event.position.seq for event in bus.events()]
    assert seqs == list(range(1, 2001))


def test_follower_sees_new_events_until_stopped(bus, page):
    fill(page, 2)
    with following(bus) as (seen, ended):
        eventually(lambda: len(seen) == 2)
        page.add("observation", "later")
        eventually(lambda: contents(seen) == ["0", "1", "later"])
    assert ended == []


def test_follower_of_an_empty_bus_waits_for_an_event(bus, page):
    with following(bus) as (seen, _):
        page.add("observation", "first")
        eventually(lambda: contents(seen) == ["first"])


def test_an_invalid_position_is_refused(bus, page):
    fill(page, 2)
    for bad in ("nonsense", "1-2-3", "9/1-1", "0-1,0-2,0-3"):
        with pytest.raises(InvalidPosition):
            list(bus.events(bad))


def test_a_time_can_stand_for_a_position(bus, page, clock):
    fill(page, 2)
    clock.advance("1m")
    page.add("observation", "later")
    assert contents(bus.events(Position(clock.ms, 0))) == ["later"]


@pytest.mark.damages_the_log
def test_a_trimmed_log_raises_position_lost(bus, page):
    added = fill(page, 5)
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 2)
    with pytest.raises(
        PositionLost, match=r"trimmed past .*, it begins at .*; read the page, and continue .* bus\.position"
    ):
        list(bus.events(added[0].position))
    with pytest.raises(PositionLost):
        list(bus.events())
    assert contents(bus.events(added[2].position)) == ["3", "4"]


@pytest.mark.damages_the_log
def test_follower_continues_after_a_trim_behind_it(bus, page):
    with following(bus) as (seen, ended):
        fill(page, 3)
        eventually(lambda: len(seen) == 3)
        send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
        page.add("observation", "next")
        eventually(lambda: len(seen) == 4 or ended)
    assert ended == []


@pytest.mark.damages_the_log
def test_a_gap_raises_log_gap(bus, page):
    added = fill(page, 5)
    send(bus, "XDEL", keys_of(bus).log, added[2].position.stream_id)
    with pytest.raises(LogGap, match=r"lost event 3, before .*; read the page, and continue .* `scratchbus tail"):
        list(bus.events())
    with pytest.raises(LogGap):
        list(bus.events(added[1].position))
    assert contents(bus.events(added[2].position)) == ["3", "4"]


@pytest.mark.damages_the_log
def test_a_gap_of_several_events_names_the_first_and_the_last(bus, page):
    added = fill(page, 5)
    send(bus, "XDEL", keys_of(bus).log, *(each.position.stream_id for each in added[1:4]))
    with pytest.raises(LogGap, match=r"the log has lost events 2 to 4, before"):
        list(bus.events())


@pytest.mark.damages_the_log
def test_a_gap_on_one_page_raises_log_gap(bus, page):
    added = fill(page, 5)
    project(bus)
    send(bus, "XDEL", keys_of(bus).log, added[2].position.stream_id)
    with pytest.raises(LogGap, match=rf"1 events of page 'main' are missing, the first at {added[2].position}"):
        list(bus.events(pages=page.name))
    with pytest.raises(PositionLost, match=rf"trimmed past {added[1].position}, {added[2].position} is not there"):
        list(bus.events(added[1].position, pages=page.name))


def test_a_flushed_log_raises_log_rewound(bus, page):
    fill(page, 3)
    with following(bus) as (seen, ended):
        eventually(lambda: len(seen) == 3)
        forget(bus)
        eventually(lambda: ended)
    assert isinstance(ended[0], LogRewound)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_refilled_log_after_a_flush_raises_log_rewound(bus, page, count):
    fill(page, 3)
    events = bus.events(follow=True, stop=threading.Event())
    assert [next(events).content for _ in range(3)] == ["0", "1", "2"]
    forget(bus)
    fill(page, count)
    with pytest.raises(LogRewound, match="this is not the log that was read before"):
        next(events)


@pytest.mark.damages_the_log
@pytest.mark.parametrize("as_given", [str, lambda end: end], ids=["text", "object"])
def test_position_beyond_the_log_raises_log_rewound(connect, bus, page, as_given):
    fill(page, 3)
    end = bus.position()
    forget(bus)
    with pytest.raises(LogRewound, match="was rewound or replaced"):
        list(bus.events(as_given(end)))
    connect().page().add("observation", "in the new log")
    with pytest.raises(LogRewound):
        list(bus.events(as_given(end), follow=True))


def test_log_gets_a_new_origin_after_a_flush(bus, page):
    fill(page, 1)
    origin = send(bus, "GET", keys_of(bus).origin)
    forget(bus)
    fill(page, 1)
    assert send(bus, "GET", keys_of(bus).origin) != origin


@pytest.mark.parametrize("pages", [None, ["main"]])
@pytest.mark.parametrize("is_folded", [True, False])
def test_a_position_of_another_log_raises_log_rewound(bus, page, pages, is_folded):
    last = [page.add("observation", str(number)) for number in range(3)][-1]
    if is_folded:
        project(bus)
    with pytest.raises(
        LogRewound, match=r"it has .* after it; it was rewound or replaced, or the position is of another"
    ):
        list(bus.events(last.position._replace(ms=5), pages=pages))


@pytest.mark.damages_the_log
def test_log_that_lost_its_last_event_raises_log_rewound(bus, page):
    fill(page, 3)
    keys = keys_of(bus)
    *_, before, last = entries(bus, keys.shard)
    with following(bus) as (seen, ended):
        eventually(lambda: len(seen) == 3)
        send(bus, "XDEL", keys.log, last[0])
        send(bus, "SET", keys.tail, before[0] + b"|x")
        eventually(lambda: ended)
    assert isinstance(ended[0], LogRewound)


@pytest.mark.damages_the_log
def test_event_of_a_newer_schema_raises_code_too_old(bus, page):
    observation = page.add("observation", "x")
    raw_append(bus, subject=observation.id, kind="teleported", event='{"v":3,"by":"someone","to":"elsewhere"}')
    with pytest.raises(CodeTooOld):
        project(bus)
    with pytest.raises(CodeTooOld, match="schema version 3, this code knows 2; upgrade"):
        list(bus.events())
    with pytest.raises(CodeTooOld):
        page.list()
    assert page.list(stale_ok=True) == []
    assert send(bus, "GET", keys_of(bus).live) is None
    assert log_length(bus) == 2


def test_wait_for_events_returns_whether_one_arrived(bus, page):
    ends = dict(enumerate(bus.position().shards))
    assert bus.wait_for_events(ends, 0.02) is False
    page.add("observation", "x")
    assert bus.wait_for_events(ends, 5) is True


def test_an_event_that_follows_a_lost_one_by_number_is_read(bus, page, clock):
    for number in range(4):
        page.add("observation", f"{number}")
        clock.advance("1s")
    positions = [event.position for event in bus.events()]
    lost = positions[2]._replace(ms=positions[0].ms + 1)  # as before a failover
    (entry,) = bus.converse(entries_at(bus.core.log, [lost, positions[3]]))
    assert entry_position(entry, positions[3].shard) == positions[3]
