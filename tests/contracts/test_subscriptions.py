"""Durable subscriptions: in order, at least once, one consumer at a time, and nothing skipped."""

import asyncio
import inspect
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from scratchbus import AsyncBus, NewObservation
from scratchbus.domain.position import START, Position
from scratchbus.errors import (
    EngineReadOnly,
    InvalidField,
    InvalidName,
    InvalidPosition,
    InvalidTTL,
    LeaseLost,
    LogGap,
    LogRewound,
    NotDelivered,
    NotFound,
    PositionLost,
    SubscriptionHeld,
    SubscriptionMismatch,
    TooManyUnacked,
)
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.subscription_state import CursorEnd, SubscriptionLease, open_cursors
from scratchbus.readmodel.history import history as read_history
from scratchbus.readmodel.status import read_subscriptions
from scratchbus.subscriptions import (
    AsyncDelivery,
    AsyncSubscription,
    Delivery,
    Subscription,
    consumer,
    event_filters,
    window,
)
from scratchbus.telemetry.counters import counts
from tests.clock import renew_a_minute_at_each_check
from tests.engines import ALL
from tests.inspection import forget, keys_of, now_ms, raw_append, send
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ALL, slow=("memory", "system"))


def fill(page, count, **more):
    return [page.add("observation", f"{n}", **more) for n in range(count)]


def contents(deliveries, count):
    """Take and ack `count` deliveries; return their contents."""
    seen = []
    for _ in range(count):
        delivery = next(deliveries)
        seen.append(delivery.event.content)
        delivery.ack()
    return seen


def status_of(bus, name="router"):
    return next(each for each in bus.converse(read_subscriptions(bus.core)) if each.name == name)


@contextmanager
def consuming(deliveries):
    """Consume in a thread; yield the contents it has handled, and the error that ended it, if any."""
    seen, ended = [], []

    def consume():
        try:
            for delivery in deliveries:
                seen.append(delivery.event.content)
                delivery.ack()
        except Exception as error:  # checked by the test
            ended.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield seen, ended
    finally:
        deliveries.close()
        thread.join(30)
        assert not thread.is_alive()


def vanish(bus):
    """Simulate a hung process, which no longer renews its leases."""
    bus.keeper.close()
    eventually(lambda: not bus.keeper._threads[0]._is_running)  # else a renewal under way lasts while the clock stands


def cut_off(bus, added):
    """Delete the last event, as a failover does when it was not replicated.

    The next event needs a later millisecond, because the stream, unlike one after a failover, remembers its last id.
    """
    keys, last = keys_of(bus), added[-2].position.stream_id
    eventually(lambda: now_ms(bus) > added[-1].position.ms)
    send(bus, "XDEL", keys.log, added[-1].position.stream_id)
    id = entry_fields(send(bus, "XRANGE", keys.log, last, last)[0])[b"id"].decode()
    send(bus, "SET", keys.tail, f"{last}|{id}")


# -- order and resumption -------------------------------------------------------------------------------------------


def test_acked_events_are_not_redelivered(bus, page):
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 2) == ["0", "1"]
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["2"]


def test_unacked_events_are_redelivered(bus, page):
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        first, second = next(deliveries), next(deliveries)
        assert (first.event.content, second.event.content) == ("0", "1")
        second.ack()
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 3) == ["0", "1", "2"]


def test_a_delivery_has_its_event_position_and_attempt(bus, page):
    added = page.add("risk_alert", "x")
    with bus.subscribe("router") as deliveries:
        delivery = next(deliveries)
    assert (delivery.event.subject, delivery.position, delivery.attempt) == (added.id, added.position, 1)


def test_events_are_delivered_as_they_happen(bus, page):
    with bus.subscribe("router") as deliveries, consuming(deliveries) as (seen, _):
        eventually(lambda: deliveries.is_active)
        for n in range(3):
            page.add("observation", f"{n}")
            eventually(lambda: len(seen) == n + 1)  # noqa: B023  # called at once
        assert seen == ["0", "1", "2"]


def test_events_of_each_page_are_in_order_over_several_reads(connect):
    bus = connect(max_observations=3000)
    pages = [bus.page(name) for name in ("one", "two", "three")]
    for start in range(0, 250, 10):
        for page in pages:
            page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(start, start + 10)])
    by_page: dict[str, list[str]] = {page.name: [] for page in pages}
    with bus.subscribe("router") as deliveries:
        for _ in range(750):
            delivery = next(deliveries)
            by_page[delivery.event.page].append(delivery.event.content)
            delivery.ack()
    assert all(seen == [f"{n}" for n in range(250)] for seen in by_page.values())


def test_events_of_several_shards_are_in_order_of_time(connect, clock):
    bus = connect()
    shards = range(bus.core.log.shards)
    pages = [next(name for name in map(str, range(99)) if bus.core.log.shard(name) == shard) for shard in shards]
    for n in range(3 * len(pages)):
        bus.page(pages[-1 - n % len(pages)]).add("observation", str(n))
        clock.advance("1ms")
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 3 * len(pages)) == [str(n) for n in range(3 * len(pages))]


def test_after_applies_only_to_a_new_or_reset_subscription(bus, page):
    fill(page, 2)
    end = bus.position()
    page.add("observation", "later")
    with bus.subscribe("router", after=end) as deliveries:
        assert contents(deliveries, 1) == ["later"]
    page.add("observation", "latest")
    with bus.subscribe("router", after=str(end)) as deliveries:
        assert contents(deliveries, 1) == ["latest"]
    with bus.subscribe("router", after=end, reset=True) as deliveries:
        assert contents(deliveries, 2) == ["later", "latest"]


def test_a_subscription_can_be_filtered_by_page_type_and_kind(bus, page):
    alert = page.add("risk_alert", "a")
    bus.page("other").add("observation", "b")
    page.resolve(alert.id)
    page.add("risk_alert", "c")
    with bus.subscribe("by-page", pages="other") as deliveries:
        assert contents(deliveries, 1) == ["b"]
    with bus.subscribe("by-type", types=["risk_alert"]) as deliveries:
        assert [next(deliveries).event.kind for _ in range(3)] == ["added", "status_changed", "added"]
    with bus.subscribe("by-kind", kinds=["status_changed"]) as deliveries:
        changed = next(deliveries).event
        assert (changed.kind, changed.subject) == ("status_changed", alert.id)


def test_filtered_out_events_count_as_acked(bus, page):
    page.add("risk_alert", "a")
    fill(page, 3)
    with bus.subscribe("router", types=["risk_alert"]) as deliveries, consuming(deliveries) as (seen, _):
        eventually(lambda: seen == ["a"] and status_of(bus).lag == 0)


def test_tag_filters_use_the_tags_at_the_time_of_the_event(bus, page):
    first = page.add("observation", "0", tags=["a"])
    second = page.add("observation", "1")
    page.link(first.id, "tagged")
    page.link(second.id, "not yet")
    page.update(second.id, tags=["a", "b"])
    page.update(first.id, tags=[])
    page.link(second.id, "now")
    page.link(first.id, "no longer")
    with bus.subscribe("router", tags=["a"], kinds=["linked"]) as deliveries:
        assert [next(deliveries).event.action for _ in range(2)] == ["tagged", "now"]


def test_a_change_of_tags_is_filtered_by_the_new_tags(bus, page):
    first, second = page.add("observation", "0", tags=["a"]), page.add("observation", "1")
    page.update(first.id, tags=[])
    page.update(second.id, tags=["a"])
    with bus.subscribe("router", tags="a") as deliveries:
        assert [(event.kind, event.subject) for event in (next(deliveries).event for _ in range(2))] == [
            ("added", first.id), ("updated", second.id),
        ]  # fmt: skip


def test_tags_are_kept_over_updates_of_other_fields(bus, page):
    tagged, noted = page.add("observation", "0", tags=["a"]), bus.notes("main").add("1", tags=["a"]).note
    end = bus.position()
    page.update(tagged.id, content="2")
    bus.notes("main").update(noted.id, "3")
    with bus.subscribe("router", tags="a", after=end) as deliveries:
        assert {next(deliveries).event.subject for _ in range(2)} == {tagged.id, noted.id}


def test_tag_filters_see_tags_from_before_the_start(bus, page):
    tagged = page.add("observation", "0", tags=["a"])
    plain = page.add("observation", "1", tags=["b"])
    end = bus.position()
    page.link(plain.id, "no")
    page.link(tagged.id, "yes")
    page.update(tagged.id, tags=[])
    with bus.subscribe("router", tags="a", after=end) as deliveries:
        assert next(deliveries).event.action == "yes"


@pytest.mark.damages_the_log
def test_invalid_events_are_skipped_and_logged(bus, page, capfd):
    fill(page, 1)
    invalid = [raw_append(bus, kind="exploded") for _ in range(2)]
    page.add("observation", "next")
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 2) == ["0", "next"]
    assert status_of(bus).lag == 0
    logged = [line for line in capfd.readouterr().err.splitlines() if "not an event" in line]
    assert [next(id for id in invalid if id in line) for line in logged] == invalid


def test_an_ack_during_a_read_skips_no_event_whose_tags_are_looked_up(bus, page, monkeypatch):
    monkeypatch.setattr(window, "ACKS_FOR", 0)
    tagged = page.add("observation", "0", tags=["a"])
    end = bus.position()
    page.add("observation", "1", tags=["a"])
    lags = []
    with bus.subscribe("router", tags="a", after=end) as deliveries:
        first = next(deliveries)
        page.link(tagged.id, "goal")

        def history(*arguments):
            first.ack()
            lags.append(status_of(bus).lag)
            return read_history(*arguments)

        monkeypatch.setattr(event_filters, "history", history)
        assert next(deliveries).event.subject == tagged.id
    assert lags == [1]


# -- one consumer at a time -----------------------------------------------------------------------------------------


def test_a_standby_takes_over_when_the_active_consumer_closes(connect):
    one, two = connect("one"), connect("two")
    fill(one.page(), 3)
    with one.subscribe("router") as active, two.subscribe("router") as standby:
        assert contents(active, 1) == ["0"]
        with consuming(standby) as (seen, _):
            assert status_of(one).holder.startswith("one@")
            assert contents(active, 1) == ["1"]
            assert (seen, standby.is_active) == ([], False)
            active.close()
            eventually(lambda: seen == ["2"])
            assert status_of(one).holder.startswith("two@")


def test_a_hung_consumer_cannot_ack_or_fail_after_a_takeover(connect, clock, process_clock, capfd, monkeypatch):
    monkeypatch.setattr(window, "ACKS_FOR", 60)
    one, two = connect("one"), connect("two")
    fill(one.page(), 4)
    asleep = one.subscribe("router")
    late = next(asleep)
    vanish(one)
    clock.advance("4s")
    assert "took over" not in capfd.readouterr().err
    with two.subscribe("router") as deliveries:
        assert contents(deliveries, 3) == ["0", "1", "2"]
        cursor = status_of(two).cursor
        process_clock.advance("10s")
        with pytest.raises(LeaseLost, match="this consumer's lease has ended"):
            late.ack()
        with pytest.raises(LeaseLost):
            late.fail("too late")
        assert status_of(two).cursor == cursor
        asleep.close()
        assert status_of(two).holder.startswith("two@")
        assert contents(deliveries, 1) == ["3"]
    assert capfd.readouterr().err.count("took over from a consumer that went away") == 1


def test_the_cursor_never_goes_back(bus, page):
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        contents(deliveries, 3)
        held = deliveries._consumer.window
        bus.converse(deliveries._consumer.write(held))
        cursor = status_of(bus).cursor
        bus.converse(held.lease.keep([CursorEnd(START) for _ in cursor.split(",")], ""))
        assert status_of(bus).cursor == cursor


def test_a_fast_consumer_writes_a_thousand_acks_at_once(connect, monkeypatch):
    for module in (window, consumer):
        monkeypatch.setattr(module, "ACKS_FOR", 30)
    bus = connect(max_observations=2_000, subscription_lease="1m")
    for _ in range(2):
        bus.page().add_many([NewObservation(type="observation", content=f"{n}") for n in range(600)])
    with bus.subscribe("router") as deliveries:
        begin = status_of(bus).cursor
        contents(deliveries, 999)
        assert status_of(bus).cursor == begin
        delivery = next(deliveries)
        delivery.ack()
        assert status_of(bus).cursor.split(",")[delivery.position.shard] == delivery.position.stream_id


def test_the_last_acks_are_written_long_before_the_lease_is_renewed(connect):
    bus = connect(subscription_lease="10m")
    fill(bus.page(), 2)
    with bus.subscribe("router") as deliveries:
        contents(deliveries, 2)
        eventually(lambda: status_of(bus).lag == 0)


def test_after_a_takeover_each_ack_is_written_immediately(connect, clock):
    one, two = connect("one"), connect("two")
    fill(one.page(), 5)
    next(one.subscribe("router"))
    vanish(one)
    clock.advance("4s")
    with two.subscribe("router") as deliveries:
        for _ in range(4):
            delivery = next(deliveries)
            delivery.ack()
            assert status_of(two).cursor.split(",")[delivery.position.shard] == delivery.position.stream_id
            assert status_of(two).trying is None


def test_a_takeover_during_the_wait_after_a_failure_is_no_attempt(connect, clock):
    bus = connect("one")
    fill(bus.page(), 1)
    next(bus.subscribe("router")).fail("busy", delay="1h")
    for name in ("two", "three", "four"):
        vanish(bus)
        clock.advance("4s")
        bus = connect(name)
        deliveries = bus.subscribe("router")
        for _ in range(3):  # takes the lease, reads, waits
            bus.converse(deliveries._consumer.advance())
        assert deliveries.is_active
    assert status_of(bus).attempts == 1
    vanish(bus)
    clock.advance("1h")
    last = next(connect("five").subscribe("router"))
    assert last.attempt == 2


def test_a_consumer_that_vanishes_after_such_a_wait_has_made_an_attempt(connect, clock, process_clock):
    one, two, three = (connect(name, subscription_lease="1h") for name in ("one", "two", "three"))
    fill(one.page(), 1)
    next(one.subscribe("router")).fail("busy", delay="90m")
    vanish(one)
    clock.advance("61m")
    deliveries = two.subscribe("router")
    for _ in range(3):  # takes the lease, reads, waits
        two.converse(deliveries._consumer.advance())
    for each in (clock, process_clock):
        each.advance("30m")
    assert next(deliveries).attempt == 2
    vanish(two)
    clock.advance("61m")
    assert next(three.subscribe("router")).attempt == 3


def test_the_keeper_does_not_write_what_another_thread_is_writing(bus, page):
    fill(page, 1)
    with bus.subscribe("router") as deliveries:
        next(deliveries)
        it = deliveries._consumer
        later = time.monotonic() + 10
        assert it.is_due(later)
        writing = it.write(it.window)
        next(writing)  # sent, and not yet answered
        assert not it.is_due(later)
        writing.close()
        assert it.is_due(later)


def test_an_ack_and_a_failure_during_a_write_are_written_later(bus, page, monkeypatch):
    for module in (consumer, window):
        monkeypatch.setattr(module, "ACKS_FOR", 60)
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        first, acked, failed = (next(deliveries) for _ in range(3))
        current = deliveries._consumer.window
        first.ack()
        _, count, pending = current.pending_writes()
        acked.ack()
        current.record_written(current.written_at, count, pending, 0, is_renewed=True)
        assert current.has_pending_writes
        _, count, pending = current.pending_writes()
        current.fail(failed, "no", 60.0)
        current.record_written(current.written_at, count, pending, 0, is_renewed=True)
        assert current.has_pending_writes
    assert acked.position.stream_id in status_of(bus).cursor
    assert status_of(bus).trying == str(failed.position)


def test_a_consumer_that_lost_its_lease_stands_by_again(connect, clock, process_clock):
    one, two = connect("one"), connect("two")
    fill(one.page(), 2)
    asleep = one.subscribe("router")
    with next(asleep):
        vanish(one)
        clock.advance("4s")
        with two.subscribe("router") as deliveries:
            assert contents(deliveries, 2) == ["0", "1"]
        process_clock.advance("10s")
    one.page().add("observation", "2")
    assert contents(asleep, 1) == ["2"]
    asleep.close()


def test_tags_from_before_a_lost_lease_are_read_again(connect, clock, process_clock):
    one, two = connect("one"), connect("two")
    changed, same = fill(two.page(), 2, tags=["a"])
    asleep = one.subscribe("router", tags="a")
    with next(asleep):
        vanish(one)
        clock.advance("4s")
        two.page().update(changed.id, tags=[])
        with two.subscribe("router", tags="a") as deliveries:
            assert contents(deliveries, 2) == ["0", "1"]
        process_clock.advance("10s")
    for id in (changed.id, same.id):
        two.page().link(id, "goal")
    assert next(asleep).event.subject == same.id
    asleep.close()


def test_a_lost_lease_ends_the_delivery_of_events_that_were_read(connect, clock, monkeypatch):
    monkeypatch.setattr(window, "ACKS_FOR", 0)
    one, two = connect("one"), connect("two")
    fill(one.page(), 2)
    asleep = one.subscribe("router")
    late = next(asleep)
    vanish(one)
    clock.advance("4s")
    with two.subscribe("router") as deliveries:
        assert contents(deliveries, 2) == ["0", "1"]
        with pytest.raises(LeaseLost):
            late.ack()
    two.page().add("observation", "2")
    assert contents(asleep, 1) == ["2"]
    asleep.close()


def test_an_early_ack_under_a_lost_lease_is_refused(connect, clock, monkeypatch, capfd):
    monkeypatch.setattr(window, "ACKS_FOR", 60)
    one, two = connect("one"), connect("two")
    fill(one.page(), 1)
    with one.subscribe("router") as asleep, two.subscribe("router") as deliveries:
        late = next(asleep)
        vanish(one)
        clock.advance("4s")
        assert contents(deliveries, 1) == ["0"]
        one.converse(asleep._consumer.keep())
        assert "lost the lease" in capfd.readouterr().err
        with pytest.raises(LeaseLost, match="this consumer's lease has ended"):
            late.ack()


def test_an_ended_lease_is_kept_if_nobody_takes_it(bus, page, clock):
    fill(page, 2)
    with bus.subscribe("router") as deliveries:
        first = next(deliveries)
        clock.advance("1h")
        first.ack()
        assert contents(deliveries, 1) == ["1"]


def test_a_hung_handler_loses_its_lease(connect):
    one = connect("one", subscription_lease="300ms")
    two = connect("two", subscription_lease="300ms")
    fill(one.page(), 2)
    with one.subscribe("router", handler_timeout="50ms") as stuck:
        late = next(stuck)
        with two.subscribe("router") as deliveries:
            assert contents(deliveries, 2) == ["0", "1"]
            with pytest.raises(LeaseLost):
                late.ack()


def test_the_time_from_a_delivery_to_its_ack_or_failure_is_counted(bus, page, process_clock):
    fill(page, 2)
    counted = counts.subscriptions["router"]
    before = counted.took.sum
    with bus.subscribe("router") as deliveries:
        acked, failed = next(deliveries), next(deliveries)
        process_clock.advance("2s")
        acked.ack()
        assert 2 <= counted.took.sum - before < 4
        process_clock.advance("1s")
        failed.fail("no")
        assert 5 <= counted.took.sum - before < 7


def test_acks_of_other_events_do_not_renew_the_lease_of_a_hung_handler(bus, page, clock, process_clock):
    fill(page, 3)
    with bus.subscribe("router", handler_timeout="1s") as deliveries:
        hung, other = next(deliveries), next(deliveries)
        ends = status_of(bus).until
        for each in (clock, process_clock):
            each.advance("2s")
        other.ack()
        assert status_of(bus).until == ends
        for each in (clock, process_clock):
            each.advance("2s")
        assert contents(deliveries, 3) == ["0", "1", "2"]
        with pytest.raises(LeaseLost):
            hung.ack()


def test_a_lease_is_renewed_while_its_consumer_runs(connect, clock, monkeypatch):
    renew_a_minute_at_each_check(monkeypatch)
    one = connect("one", subscription_lease="1m")
    two = connect("two", subscription_lease="1m")
    looks, take = [], SubscriptionLease.take

    def look(lease, *arguments):
        grant = yield from take(lease, *arguments)
        looks.append(grant)
        return grant

    fill(one.page(), 1)
    with one.subscribe("router") as active, two.subscribe("router") as standby:
        first = next(active)
        monkeypatch.setattr(SubscriptionLease, "take", look)
        with consuming(standby) as (seen, _):
            ends = status_of(one).until
            for _ in range(2):
                clock.advance("40s")
                eventually(lambda: status_of(one).until == clock.now + timedelta(minutes=1), "it is renewed")
            assert clock.now > ends
            earlier = len(looks)
            eventually(lambda: len(looks) >= earlier + 2, "the standby has looked again")
            first.ack()
            assert seen == []


def test_entering_a_subscription_creates_it(bus, page):
    fill(page, 2)
    with bus.subscribe("router", after=bus.position(), types=["observation"]) as deliveries:
        assert not deliveries.is_active
        assert (status_of(bus).lag, status_of(bus).holder) == (0, None)
        assert status_of(bus).filters == '{"types":["observation"]}'
    page.add("observation", "missed by nobody")
    assert status_of(bus).lag == 1
    with bus.subscribe("router", after=bus.position()) as deliveries:
        assert contents(deliveries, 1) == ["missed by nobody"]


def test_entering_moves_an_existing_cursor_only_on_reset(bus, page):
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["0"]
    with bus.subscribe("router", after=bus.position()):
        pass
    assert status_of(bus).lag == 2
    with bus.subscribe("router", after=bus.position(), reset=True):
        assert status_of(bus).lag == 0


def test_entering_does_not_wait_for_the_lease(connect):
    one, two = connect("one"), connect("two")
    fill(one.page(), 1)
    with one.subscribe("router") as active:
        next(active).ack()
        with two.subscribe("router"), two.subscribe("router", types=["risk_alert"]):
            assert status_of(one).holder.startswith("one@")
        with pytest.raises(SubscriptionHeld, match="cannot be reset"), two.subscribe("router", reset=True):
            pass
        assert active.is_active


def test_a_failed_enter_leaves_nothing_behind(bus):
    with pytest.raises(InvalidPosition), bus.subscribe("router", after="nonsense"):
        pass
    assert bus.converse(read_subscriptions(bus.core)) == []
    assert [thread._renewables for thread in bus.keeper._threads.values()] == [[]]


def test_a_consumer_whose_lease_has_ended_does_not_undo_a_reset(bus, connect, page, clock, process_clock):
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["0"]
        late = next(deliveries)
        vanish(bus)
        for each in (clock, process_clock):
            each.advance("4s")
        connect("two").declare_subscription("router", reset=True)
        with pytest.raises(LeaseLost):
            late.ack()
        assert contents(deliveries, 3) == ["0", "1", "2"]


def test_other_filters_are_refused_while_a_subscription_is_held(connect):
    one, two = connect("one"), connect("two")
    fill(one.page(), 1)
    with one.subscribe("router", types=["observation"]) as deliveries:
        next(deliveries).ack()
        with pytest.raises(SubscriptionMismatch, match=r"in use by one@.*observation.*not.*risk_alert"):
            next(two.subscribe("router", types=["risk_alert"]))
    two.page().add("risk_alert", "a")
    with two.subscribe("router", types=["risk_alert"]) as deliveries:
        assert contents(deliveries, 1) == ["a"]
    assert status_of(one).filters == '{"types":["risk_alert"]}'


def test_a_held_subscription_cannot_be_reset_or_removed(connect):
    one, two = connect("one"), connect("two")
    fill(one.page(), 1)
    with one.subscribe("router") as deliveries:
        next(deliveries).ack()
        with pytest.raises(SubscriptionHeld, match="cannot be reset"):
            next(two.subscribe("router", reset=True))
        with pytest.raises(SubscriptionHeld, match="cannot be removed"):
            two.unsubscribe("router")
    two.unsubscribe("router")
    with pytest.raises(NotFound, match="there is no subscription 'router'"):
        two.unsubscribe("router")
    with two.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["0"]


# -- bad input ------------------------------------------------------------------------------------------------------


def test_a_second_ack_changes_nothing(bus, page):
    fill(page, 2)
    with bus.subscribe("router") as deliveries:
        first = next(deliveries)
        first.ack()
        first.ack()
        assert contents(deliveries, 1) == ["1"]
        first.ack()


def test_types_that_the_registry_does_not_have_are_logged(bus, page, capfd):
    with bus.subscribe("router", types=["risk_alert", "observatoin"]):
        pass
    bus.declare_subscription("reader", types=["risk_alert", "observatoin"])
    warnings = [line for line in capfd.readouterr().err.splitlines() if "subscribed to an unknown type" in line]
    assert [each.partition("subscription=")[2] for each in warnings] == ["router", "reader"]
    assert all("'observatoin'; did you mean 'observation'?" in each for each in warnings)


def test_an_ack_of_an_undelivered_event_is_refused(bus, page):
    added = fill(page, 3)
    deliveries = bus.subscribe("router")
    with pytest.raises(NotDelivered, match="is not, or no longer, delivered to this consumer"):
        deliveries.ack(added[0].position)
    with deliveries:
        next(deliveries)
        for position in (added[1].position, str(added[2].position), Position(1, 99)):
            with pytest.raises(NotDelivered):
                deliveries.ack(position)
        deliveries.ack(added[0].position)
        with pytest.raises(NotDelivered):
            deliveries.ack(added[0].position)


def test_an_event_that_is_also_a_retried_dead_letter_is_acked_twice(bus, page):
    added = fill(page, 3)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        for _ in added:
            next(deliveries).fail("no")
    with bus.subscribe("router", reset=True) as deliveries:
        _, second, third = (next(deliveries) for _ in added)
        bus.retry_dead_letters("router")
        third.ack()  # with the write, the consumer learns of the dead letters to deliver again
        assert next(deliveries).position != second.position
        deliveries.ack(second.position)
        again = next(deliveries)
        assert again.position == second.position
        deliveries.ack(second.position)
        deliveries.ack(second.position)
        with pytest.raises(NotDelivered):
            again.fail("it was acked")
        with pytest.raises(NotDelivered):
            second.fail("it was acked")


def test_a_failed_delivery_cannot_be_acked(bus, page):
    fill(page, 1)
    with bus.subscribe("router") as deliveries:
        first = next(deliveries)
        first.fail("no", delay="1h")
        for answer in (first.ack, lambda: first.fail("again")):
            with pytest.raises(NotDelivered):
                answer()


def test_bad_arguments_are_refused_before_a_request(bus):
    for name in ("", "a b", "x" * 129, None):
        with pytest.raises(InvalidName, match="subscription: "):
            bus.subscribe(name)
    for more in ({"kinds": "exploded"}, {"tags": [1]}, {"max_attempts": 0}, {"max_attempts": True}):
        with pytest.raises(InvalidField):
            bus.subscribe("router", **more)
    for more in ({"retry_delay": "soon"}, {"handler_timeout": "0s"}):
        with pytest.raises(InvalidTTL):
            bus.subscribe("router", **more)
    assert bus.converse(read_subscriptions(bus.core)) == []


def test_a_consumer_that_never_acks_is_stopped(bus, page, monkeypatch):
    monkeypatch.setattr(window, "MAX_UNACKED", 3)
    fill(page, 3)
    with bus.subscribe("router") as deliveries:
        taken = [next(deliveries) for _ in range(3)]
        fill(page, 1)
        taken.append(next(deliveries))
        with pytest.raises(TooManyUnacked, match="3 deliveries are not acked"):
            next(deliveries)
        for delivery in taken:
            delivery.ack()
        page.add("observation", "5")
        assert contents(deliveries, 1) == ["5"]


# -- damaged logs, failing engines ----------------------------------------------------------------------------------

CONTINUE_AT_END = (
    "; read the page, and let subscription 'router' continue at the end of the log: pass reset=True and"
    " after=bus.position()"
)


@pytest.mark.damages_the_log
def test_a_log_trimmed_past_the_cursor_raises_position_lost(bus, page):
    added = fill(page, 5)
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["0"]
    cursor = status_of(bus).cursor
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 2)
    for _ in range(2):
        with (
            pytest.raises(PositionLost, match="the log was trimmed past") as lost,
            bus.subscribe("router") as deliveries,
        ):
            next(deliveries)
        assert str(lost.value).endswith(CONTINUE_AT_END)
        assert status_of(bus).cursor == cursor
    with pytest.raises(PositionLost) as lost:
        bus.pull("router")
    assert str(lost.value).endswith(CONTINUE_AT_END)
    with bus.subscribe("router", after=added[2].position, reset=True) as deliveries:
        assert contents(deliveries, 2) == ["3", "4"]


@pytest.mark.damages_the_log
def test_a_gap_raises_log_gap(bus, page):
    added = fill(page, 3)
    send(bus, "XDEL", keys_of(bus).log, added[1].position.stream_id)
    with pytest.raises(LogGap) as gap, bus.subscribe("router") as deliveries:
        next(deliveries)
    assert str(gap.value).endswith(CONTINUE_AT_END)
    with bus.subscribe("router", after=bus.position(), reset=True) as deliveries:
        page.add("observation", "new")
        assert contents(deliveries, 1) == ["new"]


def test_a_flushed_log_raises_log_rewound(bus, page):
    fill(page, 2)
    with bus.subscribe("router") as deliveries, consuming(deliveries) as (seen, ended):
        eventually(lambda: len(seen) == 2)
        forget(bus)
        eventually(lambda: ended)
    assert isinstance(ended[0], LogRewound)


def test_a_flush_is_not_reported_as_a_removal(bus, page, process_clock):
    fill(page, 1)
    with bus.subscribe("router") as deliveries:
        contents(deliveries, 1)
        forget(bus)
        process_clock.advance("10s")  # so that the consumer renews its lease first
        with pytest.raises(LogRewound):
            next(deliveries)


def test_a_removed_subscription_raises_not_found(bus, page, process_clock):
    fill(page, 1)
    with bus.subscribe("router") as deliveries:
        contents(deliveries, 1)
        keys = bus.core.log.keys(0)
        send(bus, "HDEL", keys.subscription("router"), "token")
        bus.unsubscribe("router")
        process_clock.advance("10s")
        with pytest.raises(NotFound, match="there is no subscription 'router'"):
            next(deliveries)


def test_a_subscription_removed_before_its_first_delivery_raises_not_found(bus):
    with bus.subscribe("router") as deliveries:
        bus.unsubscribe("router")
        with pytest.raises(NotFound, match="there is no subscription 'router'"):
            next(deliveries)


@pytest.mark.damages_the_log
def test_a_log_that_lost_its_end_raises_log_rewound(bus, page):
    added = fill(page, 3)
    with bus.subscribe("router", pages="main") as deliveries:
        assert len(contents(deliveries, 3)) == 3
    cut_off(bus, added)
    way_out = "subscription 'router' stays where it is until you pass reset=True"
    with pytest.raises(LogRewound, match=way_out), bus.subscribe("router", pages="main") as deliveries:
        next(deliveries)
    with pytest.raises(LogRewound, match=way_out):
        bus.pull("router")
    with bus.subscribe("router", pages="main", reset=True) as deliveries:
        assert contents(deliveries, 2) == ["0", "1"]


@pytest.mark.damages_the_log
def test_a_followed_log_that_loses_its_end_raises_log_rewound(bus, page):
    with bus.subscribe("router", pages="main") as deliveries, consuming(deliveries) as (seen, ended):
        added = fill(page, 3)
        eventually(lambda: len(seen) == 3)
        cut_off(bus, added)
        page.add("observation", "another third")
        page.add("observation", "a fourth")
        eventually(lambda: ended)
    assert isinstance(ended[0], LogRewound)
    assert seen == ["0", "1", "2"]


def test_a_replaced_log_of_a_shard_raises_log_rewound(bus, page):
    fill(page, 1)
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["0"]
    keys = bus.core.log.keys(0)
    state = send(bus, "HGET", keys.subscription("router"), "origins").decode()
    changed = ",".join("another" if origin else "" for origin in state.split(","))
    send(bus, "HSET", keys.subscription("router"), "origins", changed)
    with pytest.raises(LogRewound, match="not the log that was read before"), bus.subscribe("router") as deliveries:
        next(deliveries)


@pytest.mark.slow
def test_a_consumer_waits_for_a_read_only_engine(bus, page, process_clock, monkeypatch, capfd):
    fill(page, 3)
    run, failures = bus.converse, 6

    def sometimes(conversation):
        nonlocal failures
        if failures:
            failures -= 1
            conversation.close()
            raise EngineReadOnly("it is read-only; connect to its primary")
        return run(conversation)

    with bus.subscribe("router") as deliveries:
        first = next(deliveries)
        monkeypatch.setattr(bus, "converse", sometimes)
        process_clock.advance("10s")
        first.ack()
        assert failures < 6
        with consuming(deliveries) as (seen, ended):
            eventually(lambda: failures == 0 and status_of(bus).lag == 0)
        assert (seen, ended) == (["1", "2"], [])
    logged = capfd.readouterr().err
    assert [logged.count(text) for text in ("waiting for the engine", "going on")] == [1, 1]


# -- shutdown -------------------------------------------------------------------------------------------------------


def test_a_stop_ends_the_iteration_and_releases_the_lease(bus, page):
    stop = threading.Event()
    with bus.subscribe("router", stop=stop) as deliveries, consuming(deliveries) as (_, ended):
        eventually(lambda: deliveries.is_active)
        stop.set()
    assert (ended, status_of(bus).holder) == ([], None)


def test_a_consumer_closed_while_it_takes_the_lease_releases_it(bus, page, monkeypatch):
    deliveries = bus.subscribe("router")
    take = deliveries._consumer._try_lease

    def take_late():
        deliveries.close()
        return (yield from take())

    monkeypatch.setattr(deliveries._consumer, "_try_lease", take_late)
    assert list(deliveries) == []
    assert status_of(bus).holder is None


def test_a_handler_gets_every_event_until_the_stop(bus, page):
    fill(page, 3)
    stop, seen = threading.Event(), []

    def handle(event):
        seen.append(event.content)
        if len(seen) == 3:
            stop.set()

    with bus.subscribe("router") as deliveries:
        deliveries.run(handle, stop)
    assert seen == ["0", "1", "2"]
    assert status_of(bus).lag == 0


def test_a_subscription_can_be_closed_after_its_bus(connect):
    bus = connect()
    fill(bus.page(), 2)
    deliveries = bus.subscribe("router")
    assert contents(deliveries, 1) == ["0"]
    bus.close()
    deliveries.close()
    assert status_of(connect()).lag in (1, 2)  # the ack may not have been written


def public(cls):
    return {
        name: list(inspect.signature(value).parameters)
        for name, value in vars(cls).items()
        if name[0] != "_" and callable(value)
    }


@pytest.mark.parametrize(("ours", "theirs"), [(Subscription, AsyncSubscription), (Delivery, AsyncDelivery)])
def test_both_facades_have_the_same_methods(ours, theirs):
    assert public(ours) == public(theirs)


# -- asyncio --------------------------------------------------------------------------------------------------------


async def test_an_async_consumer_behaves_the_same(bus, page, engine):
    fill(page, 3)
    async with AsyncBus.connect(engine.url, bus=bus.core.log.bus, source="tester") as other:
        async with other.subscribe("declared", after=bus.position()):
            assert (status_of(bus, "declared").lag, status_of(bus, "declared").holder) == (0, None)
        bus.unsubscribe("declared")
        seen = []
        async with other.subscribe("router", retry_delay="10ms") as deliveries:
            async for delivery in deliveries:
                event: Any = delivery.event
                seen.append((event.content, delivery.attempt))
                if event.content == "2":
                    page.add("observation", "later")
                if event.content == "later":
                    await delivery.ack()
                    break
                async with delivery:
                    if seen == [("0", 1)]:
                        raise ValueError("not yet")
        assert seen == [("0", 1), ("0", 2), ("1", 1), ("2", 1), ("later", 1)]
        assert status_of(bus).lag == 0
        stop, handled = asyncio.Event(), []

        async def handle(event):
            handled.append(event.content)
            stop.set()

        page.add("observation", "last")
        async with other.subscribe("router", stop=stop) as deliveries:
            await deliveries.run(handle)
        assert handled == ["last"]
        assert await other.dead_letters() == []
        await other.unsubscribe("router")


def test_a_subscription_that_is_closed_while_it_opens_the_log_no_longer_follows_it(bus, page, monkeypatch):
    fill(page, 1)
    deliveries = bus.subscribe("router")

    def open_late(*arguments):
        opened = yield from open_cursors(*arguments)
        deliveries.close()
        return opened

    monkeypatch.setattr("scratchbus.subscriptions.consumer.open_cursors", open_late)
    assert next(deliveries, None) is None
    assert [bus.feeds.feed(shard).followers for shard in range(bus.core.log.shards)] == [0] * bus.core.log.shards


def test_the_oldest_delivery_is_the_one_that_is_out_the_longest(bus, page):
    fill(page, 2)
    with bus.subscribe("router") as deliveries:
        first, second = next(deliveries), next(deliveries)
        first.fail("no", delay="1h")
        assert deliveries._consumer.window.oldest() == second.when
    with bus.subscribe("router", reset=True) as deliveries:
        first, second = next(deliveries), next(deliveries)
        first.fail("no", delay=0)
        again = next(deliveries)
        assert again.event == first.event
        assert deliveries._consumer.window.oldest() == second.when
        second.ack()
        assert deliveries._consumer.window.oldest() == again.when
