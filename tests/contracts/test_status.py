"""The status of a bus: its pages, claims, subscriptions and lags, at a bounded cost."""

from datetime import UTC, datetime, timedelta

import pytest

from scratchbus.commands import read
from scratchbus.errors import InvalidPosition
from scratchbus.eventlog.lag import Lag, read_lags
from scratchbus.readmodel import queries
from scratchbus.readmodel.status import page_status, read_status
from scratchbus.readmodel.status.bus_status import MAX_PAGES
from scratchbus.timetravel import past_pages
from tests.engines import ONE
from tests.inspection import project, round_trips
from tests.past_pages import WAYS, only
from tests.waiting import eventually


def test_status_lists_the_busiest_pages_and_counts_all(bus):
    for number in range(MAX_PAGES + 3):
        bus.page(f"page-{number:02}").add("observation", "x")
    for _ in range(2):
        bus.page("page-07").add("observation", "x")
    found = bus.status()
    assert (found.page_count, found.open) == (MAX_PAGES + 3, MAX_PAGES + 5)
    assert [(each.page, each.open) for each in found.pages[:3]] == [("page-07", 3), ("page-00", 1), ("page-01", 1)]
    assert len(found.pages) == MAX_PAGES


@pytest.mark.engines(*ONE)
def test_status_takes_as_many_round_trips_for_many_pages(bus):
    for number in range(20):  # so that every shard has some
        bus.page(f"page-{number}").add("observation", "x")
    few = round_trips(bus, read_status(bus.core, "", None, {}))
    for number in range(200):
        bus.page(f"page-{number}").add("observation", "x")
    assert round_trips(bus, read_status(bus.core, "", None, {})) == few


def test_status_counts_live_claims(bus, page):
    ids = [page.add("observation", f"{number}").id for number in range(4)]
    page.claim(ids[0], by="worker", ttl="1h")
    page.claim(ids[1], by="worker", ttl="1h")
    page.claim(ids[2], by="worker", ttl="50ms")
    (only,) = bus.status().pages
    assert only.claimed in (2, 3)
    eventually(lambda: bus.status().pages[0].claimed == 2)
    page.release(ids[0], by="worker")
    page.resolve(ids[3])
    (only,) = bus.status().pages
    assert (only.open, only.claimed) == (3, 1)


def test_claims_of_large_pages_are_not_counted(bus, monkeypatch):
    monkeypatch.setattr(page_status, "MAX_CLAIMS", 1)
    for name, count in (("long", 2), ("short", 1)):
        for number in range(count):
            bus.page(name).add("observation", f"{number}")
    assert [(each.page, each.claimed) for each in bus.status().pages] == [("long", None), ("short", 0)]


def test_status_has_the_holder_and_lag_of_a_subscription(bus, page):
    for number in range(3):
        page.add("observation", f"{number}")
    with bus.subscribe("router", pages=["main"]) as deliveries:
        next(deliveries).ack()
        (held,) = bus.status().subscriptions
        assert held.holder.startswith("tester@")
        assert held.since < held.until
    (left,) = bus.status().subscriptions
    assert (left.holder, left.since, left.until) == (None, None, None)
    assert (left.lag, left.dead_letters) == (2, 0)
    assert left.lag_seconds >= 0


def test_a_lease_taken_again_has_a_new_start(bus, page):
    page.add("observation", "x")
    with bus.subscribe("router") as deliveries:
        next(deliveries)
        begun = bus.status().subscriptions[0].since
    eventually(lambda: datetime.now(UTC) > begun + timedelta(milliseconds=5))
    with bus.subscribe("router") as deliveries:
        next(deliveries)
        assert bus.status().subscriptions[0].since > begun


def test_status_counts_dead_letters(bus, page):
    page.add("observation", "x")
    with bus.subscribe("router", max_attempts=1) as deliveries:
        next(deliveries).fail("no")
    (only,) = bus.status().subscriptions
    assert (only.dead_letters, only.lag) == (1, 0)


def test_a_position_at_or_beyond_the_end_of_the_log_has_no_lag(bus, page):
    page.add("observation", "x")
    end = bus.position().shards[bus.core.log.shard("main")]
    beyond = end._replace(ms=end.ms + 1000, seq=end.seq + 7)
    lags = bus.converse(read_lags(bus.core.log, [end, beyond, end._replace(ms=0, seq=0)]))
    assert lags[end] == lags[beyond] == Lag(0, 0.0)
    assert lags[end._replace(ms=0, seq=0)].events == 1


def test_all_pages_are_listed_busiest_first(bus):
    for number in range(MAX_PAGES + 3):
        bus.page(f"page-{number:02}").add("observation", "x")
    claimed = bus.page("page-07").add("observation", "y")
    bus.page("page-07").claim(claimed.id)
    bus.notes("s1").add("a page without observations")
    pages = bus.pages()
    assert (pages[0].page, pages[0].open, pages[0].claimed) == ("page-07", 2, 1)
    assert (pages[-1].page, pages[-1].open, pages[-1].claimed) == ("session:s1", 0, 0)
    assert len(pages) == bus.status().page_count == MAX_PAGES + 4


def test_pages_are_listed_as_of_a_position(bus):
    first = bus.page("first").add("observation", "x")
    bus.page("first").claim(first.id, ttl="1h")
    for name in ("busy", "session:s1"):
        bus.page(name).add("observation", "y")
    bus.page("busy").add("observation", "z", status="pending_review")
    before = bus.position()
    bus.page("busy").clear_resolved([bus.page("busy").resolve(each.id).id for each in bus.page("busy").list()])
    bus.page("first").release(first.id)
    bus.page("later").add("observation", "x")
    expected = [("busy", 2, 0), ("first", 1, 1), ("session:s1", 1, 0)]
    assert [(each.page, each.open, each.claimed) for each in bus.pages(before)] == expected
    assert {each.page for each in bus.pages()} == {"busy", "first", "later", "session:s1"}
    assert bus.pages(bus.position()) == bus.pages()
    assert bus.pages(first.created_at - timedelta(minutes=1)) == []
    with pytest.raises(InvalidPosition):
        bus.pages(first.created_at + timedelta(days=365))


@pytest.mark.engines(*ONE)
def test_pages_of_the_past_take_as_many_round_trips_for_many_as_for_few(bus):
    asked = []
    for count in (20, 10):  # the first ones, so that every shard has some
        for number in range(count):
            bus.page(f"page-{count + number}").add("observation", "x")
        project(bus)
        asked.append(round_trips(bus, past_pages.pages_as_of(bus.core, bus.position())))
    assert asked[1] == asked[0]


@pytest.mark.parametrize("way", WAYS)
def test_pages_of_the_past_do_not_count_claims_that_had_ended(bus, page, clock, way):
    held = page.add("observation", "x")
    page.claim(held.id, ttl="30s")
    begun = clock.now
    clock.advance("1h")
    page.add("observation", "y")
    with only(way):
        listed = [bus.pages(begun + timedelta(seconds=seconds)) for seconds in (29, 30)]
    assert [[(each.open, each.claimed) for each in pages] for pages in listed] == [[(1, 1)], [(1, 0)]]


def test_pages_of_the_past_are_listed_during_a_rebuild(connect, bus, page, monkeypatch):
    page.resolve(page.add("observation", "x").id)
    project(bus)
    other, real, left = connect(), queries.page_names, [1]

    def late(keys):
        names = yield from real(keys)
        if page.name in names and left:
            left.pop()
            other.rebuild()
        return names

    monkeypatch.setattr(past_pages, "page_names", late)
    assert [each.page for each in bus.pages(bus.position())] == [page.name]
    assert not left


def test_observations_are_counted_by_status_and_type(bus, page, monkeypatch):
    kept = [page.add("observation", "x"), page.add("risk_alert", "y"), page.add("observation", "z")]
    before = bus.position()
    page.resolve(kept[0].id)
    counts = page.counts()
    assert (counts.page, counts.total, counts.is_all) == (page.name, 3, True)
    assert (counts.statuses, counts.types) == ({"active": 2, "resolved": 1}, {"observation": 2, "risk_alert": 1})
    assert page.as_of(before).counts().statuses == {"active": 3}
    monkeypatch.setattr(read, "MAX_COUNTED", 2)
    assert (page.counts().total, page.counts().is_all) == (2, False)


def test_pages_of_the_past_count_open_observations_of_a_removed_lifecycle(bus, page, tmp_path):
    file, observation = tmp_path / "types.yaml", "types:\n  observation: {}\n"
    file.write_text(
        f"{observation}  ticket:\n    lifecycle: tickets\n"
        "lifecycles:\n  tickets:\n    statuses: {new: open, done: closed}\n    initial: [new]\n"
        "    transitions:\n      new: [done, archived]\n      done: [archived]\n"
    )
    bus.push_types(file)
    ticket = page.add("ticket", "x")
    page.add("observation", "y")
    before = bus.position()
    page.archive(ticket.id)
    file.write_text(observation)
    bus.push_types(file)
    assert {each.page: each.open for each in bus.pages(before)}[page.name] == 2
