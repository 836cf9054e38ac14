"""`last_events` and `histogram`: the newest events, and event counts over time."""

import re
from itertools import pairwise

import pytest

from scratchbus import NewObservation
from scratchbus.domain.position import Position
from scratchbus.errors import InvalidField, InvalidInput
from scratchbus.eventlog import newest_events
from scratchbus.readmodel import histogram
from scratchbus.readmodel.catch_up import fold_once
from tests.engines import ONE
from tests.inspection import archive, project, round_trips, send


def fill(bus, count, clock=None, pages=5):
    added = []
    for n in range(count):
        added.append(bus.page(f"p{n % pages}").add("observation", f"{n}"))
        if clock is not None:
            clock.advance("1s")
    return added


def contents(events):
    return [event.content for event in events]


# -- last_events ------------------------------------------------------------------------------------------------------


def test_last_events_of_all_shards_are_sorted_oldest_first(bus, clock):
    fill(bus, 20, clock)
    assert contents(bus.last_events(6)) == [f"{n}" for n in range(14, 20)]
    assert contents(bus.last_events(100)) == contents(bus.events())
    assert bus.last_events(1)[0].position == list(bus.events())[-1].position


def test_paging_backwards_returns_every_event_once(bus, clock):
    for n in range(30):
        bus.page(f"p{n % 5}").add("observation", f"{n}")
        if n % 7 == 0:
            clock.advance("1s")  # many events share a millisecond
    seen: list[Position] = []
    before = None
    while some := bus.last_events(4, before=before):
        seen = [event.position for event in some] + seen
        before = str(some[0].position)
    assert seen == [event.position for event in bus.events()]


def test_filters_read_further_back_for_enough_events(bus, monkeypatch):
    monkeypatch.setattr(newest_events, "MAX_CHUNK", 8)
    bus.page("p1").add("risk_alert", "old")
    fill(bus, 40)
    assert contents(bus.last_events(3, types=["risk_alert"])) == ["old"]
    assert contents(bus.last_events(2, pages=["p2"])) == ["32", "37"]
    assert bus.last_events(2, kinds=["erased"]) == []
    wanted = bus.last_events(1, types=["risk_alert"])[0]
    assert bus.last_events(5, subjects=[wanted.subject]) == [wanted]
    assert list(bus.events(subjects=[wanted.subject])) == [wanted]


@pytest.mark.parametrize("folded", [0, 15, 30])
def test_last_events_of_one_page_include_unfolded_ones(bus, folded):
    fill(bus, folded, pages=3)
    project(bus)
    fill(bus, 30 - folded, pages=3)
    expected = [event.position for event in bus.events(pages=["p1"])]
    assert len(expected) == 10
    seen, before = list[Position](), None
    while some := bus.last_events(3, pages=["p1"], before=before):
        seen = [event.position for event in some] + seen
        before = some[0].position
    assert seen == expected
    wanted = next(iter(bus.events(pages=["p1"]))).subject
    assert [event.subject for event in bus.last_events(3, pages=["p1"], subjects=[wanted])] == [wanted]
    after = Position(expected[4].ms + 1, 0)
    assert bus.last_events(1, pages=["p1"], before=after)[-1].position.ms <= expected[4].ms


def fold_before(monkeypatch, bus, module, name):
    """Fold a few events of each shard before each call of a module's function, as a projector could."""
    real = getattr(module, name)

    def late(*arguments):
        for shard in range(bus.core.log.shards):
            bus.converse(fold_once(bus.core.log, shard, chunk=10))
        return (yield from real(*arguments))

    monkeypatch.setattr(module, name, late)


def test_events_folded_during_a_read_are_returned_once(connect, bus, monkeypatch):
    fill(bus, 3, pages=1)
    project(bus)
    fill(bus, 2, pages=1)
    expected = list(bus.events(pages=["p0"]))
    fold_before(monkeypatch, connect(), newest_events, "read_positions_back")
    assert bus.last_events(10, pages=["p0"]) == expected


def test_last_events_omit_entries_after_the_tail(connect):
    bus = connect()
    bus.page().add("observation", "x")
    keys = bus.core.log.keys(bus.core.log.shard("main"))
    send(bus, "XADD", keys.log, "9999999999999-77", "by", "hand")
    assert contents(bus.last_events(5)) == ["x"]
    bus.repair()


def test_no_events_are_before_the_first(bus):
    fill(bus, 3)
    first = next(iter(bus.events()))
    assert bus.last_events(5, before=first.position) == []
    assert bus.last_events(5, before=Position(0, 0)) == []


@pytest.mark.parametrize("before", ["yesterday", 7, "999/1-1"])
def test_bad_position_is_refused(bus, before):
    with pytest.raises(InvalidInput):
        bus.last_events(5, before=before)


@pytest.mark.parametrize("count", [0, 10_001, True, "5"])
def test_count_out_of_bounds_is_refused(bus, count):
    with pytest.raises(InvalidField):
        bus.last_events(count)


# -- histogram --------------------------------------------------------------------------------------------------------


def expected(bus, found, page=None):
    """Return the expected buckets, counted event by event."""
    edges = [bucket.at for bucket in found.buckets] + [found.until]
    rows = []
    events = [event for event in bus.events() if page in (None, event.page)]
    for begin, end in pairwise(edges):
        some = [event for event in events if begin <= event.position.at < end]
        kinds = {kind: sum(event.kind == kind for event in some) for kind in sorted({each.kind for each in some})}
        rows.append((str(some[0].position) if some else None, len(some), kinds))
    return rows


def rows_of(found):
    return [(bucket.position, bucket.count, bucket.kinds) for bucket in found.buckets]


def add_over_time(bus, clock, count=40):
    for n in range(count):
        page = bus.page(f"p{n % 5}")
        added = page.add("observation", f"{n}")
        if n % 3 == 0:
            page.resolve(added.id)
        clock.advance(f"{n % 4 + 0.5}s")


def test_every_event_is_in_its_bucket(bus, clock):
    add_over_time(bus, clock)
    found = bus.histogram(buckets=13)
    assert len(found.buckets) == 13
    assert rows_of(found) == expected(bus, found)
    assert (sum(bucket.count for bucket in found.buckets), found.archived, found.sampled) == (54, 0, False)
    assert (found.since, found.first) == (found.buckets[0].at, found.buckets[0].at)


def test_range_counts_only_its_events(bus, clock):
    add_over_time(bus, clock)
    events = list(bus.events())
    since, until = events[10].position.at, events[30].position.at
    found = bus.histogram(since=since, until=until.isoformat(), buckets=7)
    assert rows_of(found) == expected(bus, found)
    assert (found.since, found.until) == (since, until)


@pytest.mark.parametrize("folded", [0, 20, 40])
def test_histogram_of_one_page_includes_unfolded_events(bus, clock, folded):
    add_over_time(bus, clock, folded)
    project(bus)
    add_over_time(bus, clock, 40 - folded)
    found = bus.histogram(buckets=11, page="p3")
    assert rows_of(found) == expected(bus, found, "p3")


def test_events_folded_during_a_count_are_counted_once(bus, connect, clock, monkeypatch):
    add_over_time(bus, clock, 20)
    project(bus)
    add_over_time(bus, clock, 40)
    fold_before(monkeypatch, connect(), histogram, "_count_until")
    found = bus.histogram(buckets=11, page="p3")
    assert rows_of(found) == expected(bus, found, "p3")


@pytest.mark.parametrize("name", ["_count_until", "read_positions"])
def test_rebuild_during_a_count_changes_nothing(bus, connect, clock, monkeypatch, name):
    add_over_time(bus, clock, 40)
    project(bus)
    other, real, left = connect(), getattr(histogram, name), [1]

    def late(*arguments):
        if left:
            left.pop()
            other.rebuild()
        return (yield from real(*arguments))

    monkeypatch.setattr(histogram, name, late)
    found = bus.histogram(buckets=11, page="p3")
    assert rows_of(found) == expected(bus, found, "p3")
    assert not left


def test_kinds_folded_during_a_count_are_counted_once(bus, connect, monkeypatch):
    added = fill(bus, 4, pages=1)
    project(bus)
    fill(bus, 10, pages=1)
    for each in added:
        bus.page("p0").resolve(each.id)
    fold_before(monkeypatch, connect(), histogram, "read_positions")
    found = bus.histogram(buckets=1, page="p0")
    assert rows_of(found) == expected(bus, found, "p0")


def test_erased_events_are_not_counted(bus, clock):
    page = bus.page()
    for n in range(4):
        added = page.add("observation", f"{n}")
        clock.advance("1s")
    page.erase(added.id, reason="asked to")
    clock.advance("1s")
    found = bus.histogram(buckets=5)
    assert rows_of(found) == expected(bus, found)


def test_erased_events_do_not_count_as_archived(bus, clock):
    page = bus.page()
    first = page.add("observation", "first")
    page.add("observation", "second")
    page.erase(first.id, reason="asked to")
    found = bus.histogram(buckets=5)
    assert (sum(bucket.count for bucket in found.buckets), found.archived) == (2, 0)


def test_many_events_are_counted_exactly_with_estimated_kinds(bus, clock, monkeypatch):
    monkeypatch.setattr(histogram, "EXACT", 20)
    add_over_time(bus, clock)
    found = bus.histogram(buckets=4)
    assert found.sampled
    assert [row[:2] for row in rows_of(found)] == [row[:2] for row in expected(bus, found)]
    assert [sum(bucket.kinds.values()) for bucket in found.buckets] == [bucket.count for bucket in found.buckets]
    by_page = bus.histogram(buckets=2, page="p3", since=found.since, until=found.until)
    assert [row[:2] for row in rows_of(by_page)] == [row[:2] for row in expected(bus, by_page, "p3")]


@pytest.mark.engines(*ONE)
def test_the_histogram_of_a_page_takes_as_many_round_trips_for_many_buckets_as_for_few(bus, clock):
    for _ in range(9):
        bus.page().add_many([NewObservation(type="observation", content="x")] * 3)
        clock.advance("1s")
    project(bus)
    found = bus.histogram(buckets=9, page="main")
    assert [bucket.kinds for bucket in found.buckets if bucket.count] == [{"added": 3}] * 9
    few, many = (round_trips(bus, histogram.histogram(bus.core.log, None, None, each, "main")) for each in (1, 9))
    assert few == many


def test_an_empty_log_has_no_buckets(bus):
    found = bus.histogram()
    assert (found.buckets, found.first, found.last, found.archived) == ([], None, None, 0)


def test_archived_events_are_reported_and_not_counted(connect, clock, tmp_path):
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=1, archive_segment=2)
    page = bus.page()
    for n in range(10):
        page.add("observation", f"{n}")
        clock.advance("1s")
    project(bus)
    archive(bus)
    found = bus.histogram(buckets=10)
    left = sum(bucket.count for bucket in found.buckets)
    assert found.archived > 0
    assert found.archived + left == len(list(bus.events()))


def test_range_before_the_first_event_or_after_the_last_has_no_events(bus):
    fill(bus, 3)
    for limits in ({"until": "2020-01-01T00:00:00Z"}, {"since": "2999-01-01T00:00:00Z"}):
        found = bus.histogram(**limits)
        assert (found.buckets, found.since) == ([], found.until)


def test_bad_ranges_are_refused(bus):
    with pytest.raises(InvalidField):
        bus.histogram(since="2026-01-02T00:00:00Z", until="2026-01-01T00:00:00Z")
    with pytest.raises(InvalidField):
        bus.histogram(since="soon")
    with pytest.raises(InvalidField):
        bus.histogram(buckets=1001)


@pytest.mark.engines("embedded")
def test_histogram_cost_does_not_grow_with_the_log(connect):
    """Two reads per bucket and a few more for one shard, for any number of events; on a page searches of its index."""
    bus = connect(max_observations=5000)

    def commands(page=None):
        before = processed()
        bus.histogram(buckets=50, page=page)
        return processed() - before

    def processed():
        return int(re.search(rb"total_commands_processed:(\d+)", send(bus, "INFO", "stats"))[1])

    def add(count):
        for _ in range(count // 100):
            bus.page().add_many([NewObservation(type="observation", content="x") for _ in range(100)])

    add(200)
    assert commands() <= 120
    add(4000)
    project(bus)
    assert commands() <= 120
    assert commands("main") <= 2_000
