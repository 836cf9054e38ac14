"""Pulls from durable subscriptions: stateless clients, delivery in order and at least once, as with `subscribe`."""

import asyncio
import threading
from datetime import timedelta

import pytest

from scratchbus import AsyncBus, NewObservation, new_webhook_secret
from scratchbus.domain.position import Position
from scratchbus.errors import (
    InvalidField,
    InvalidTTL,
    LeaseLost,
    NotDelivered,
    NotFound,
    PositionLost,
    SubscriptionHeld,
)
from scratchbus.eventlog import below_floor
from scratchbus.subscriptions import dead_letters, pulled_batches, settlement
from scratchbus.subscriptions.pulled_batches import Attempt
from scratchbus.telemetry.counters import counts
from tests.engines import ALL
from tests.inspection import raw_append, send
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ALL, slow=("memory",))


@pytest.fixture
def declared(bus):
    """A bus with a declared subscription, `router`."""
    bus.declare_subscription("router", retry_delay=0)
    return bus


def fill(page, count, **more):
    return [page.add("observation", f"{n}", **more) for n in range(count)]


def contents(batch):
    return [each.event.content for each in batch.deliveries]


def positions(batch):
    return [each.position for each in batch.deliveries]


def ack(bus, batch, *which):
    some = [batch.deliveries[at] for at in which] if which else batch.deliveries
    bus.ack("router", batch.token, [each.position for each in some])


def stored(bus):
    row = send(bus, "HGETALL", bus.core.log.keys(0).subscription("router"))
    return dict(zip(map(bytes.decode, row[::2]), map(bytes.decode, row[1::2]), strict=True))


# -- order and redelivery ---------------------------------------------------------------------------------------------


def test_pulled_batches_are_in_order(declared, page):
    fill(page, 5)
    seen = []
    while (batch := declared.pull("router", max=2)).deliveries:
        seen.append(contents(batch))
        ack(declared, batch)
    assert seen == [["0", "1"], ["2", "3"], ["4"]]


def test_events_with_any_characters_in_their_ids_are_pulled_and_settled(declared, page, clock):
    printable = "".join(map(chr, range(33, 127)))
    for id in ("a|b", "a|1|w|2|0", "|", printable):
        page.add("observation", id, event_id=id)
    batch = declared.pull("router")
    assert [each.event.id for each in batch.deliveries] == ["a|b", "a|1|w|2|0", "|", printable]
    ack(declared, batch, 0)
    declared.nack("router", batch.token, batch.deliveries[1].position, "later")
    clock.advance(300)
    seen = []
    while (batch := declared.pull("router", lease="30s")).deliveries:
        seen += [(each.event.id, each.attempt) for each in batch.deliveries]
        ack(declared, batch)
    assert seen == [("a|1|w|2|0", 2), ("|", 1), (printable, 1)]


def test_a_pull_without_events_takes_no_lease(declared):
    batch = declared.pull("router")
    assert (batch.token, batch.until, batch.deliveries) == ("", None, [])
    assert "token" not in stored(declared)


def test_a_pull_returns_nothing_while_a_batch_is_leased(declared, connect, page):
    fill(page, 3)
    first = declared.pull("router", max=1)
    assert connect().pull("router").deliveries == []
    ack(declared, first)
    assert contents(connect().pull("router")) == ["1", "2"]


def test_another_process_can_ack_a_batch(declared, connect, page):
    fill(page, 2)
    batch = declared.pull("router", max=1)
    connect().ack("router", batch.token, str(batch.deliveries[0].position))
    assert contents(declared.pull("router")) == ["1"]


def test_events_are_redelivered_after_the_lease_ends(declared, page, clock):
    fill(page, 3)
    assert contents(declared.pull("router", lease="5s")) == ["0", "1", "2"]
    clock.advance(4)
    assert not declared.pull("router").deliveries
    clock.advance(2)
    again = declared.pull("router")
    assert [(each.event.content, each.attempt) for each in again.deliveries] == [("0", 2)]


def test_after_an_ended_lease_the_first_event_is_redelivered_alone(declared, page, clock):
    fill(page, 4)
    declared.pull("router", max=3, lease="5s")
    clock.advance(6)
    seen = []
    while (batch := declared.pull("router")).deliveries:
        seen.append([(each.event.content, each.attempt) for each in batch.deliveries])
        ack(declared, batch)
    assert seen == [[("0", 2)], [("1", 1), ("2", 1)], [("3", 1)]]


def test_redelivered_batches_respect_max_and_omit_acked_events(declared, page, clock):
    fill(page, 6)
    batch = declared.pull("router", max=6, lease="5s")
    ack(declared, batch, 2)
    clock.advance(6)
    seen = []
    while (batch := declared.pull("router", max=2)).deliveries:
        seen.append(contents(batch))
        ack(declared, batch)
    assert seen == [["0"], ["1"], ["3", "4"], ["5"]]
    assert declared.subscriptions()[0].lag == 0


def test_a_requeued_batch_keeps_its_attempt(bus, page):
    bus.declare_subscription("router", max_attempts=1)
    fill(page, 3)
    for _ in range(3):
        batch = bus.pull("router", lease="10m")
        assert [(each.event.content, each.attempt) for each in batch.deliveries] == [("0", 1), ("1", 1), ("2", 1)]
        bus.requeue("router", batch.token, positions(batch))
        assert bus.subscriptions()[0].holder is None
    batch = bus.pull("router")
    ack(bus, batch, 0)
    with pytest.raises(NotDelivered):
        bus.requeue("router", batch.token, positions(batch))
    ack(bus, batch)
    assert (bus.dead_letters("router"), bus.subscriptions()[0].lag) == ([], 0)


def test_a_requeued_failed_event_keeps_its_attempts(declared, page):
    fill(page, 2)
    batch = declared.pull("router", max=1)
    declared.nack("router", batch.token, batch.deliveries[0].position, "no")
    for _ in range(2):
        batch = declared.pull("router")
        assert [(each.event.content, each.attempt) for each in batch.deliveries] == [("0", 2)]
        declared.requeue("router", batch.token, positions(batch))
    ack(declared, batch := declared.pull("router"))
    assert contents(declared.pull("router")) == ["1"]


def test_requeue_refuses_the_token_of_another_batch(declared, page, clock):
    fill(page, 1)
    late = declared.pull("router", lease="5s")
    clock.advance(6)
    current = declared.pull("router")
    with pytest.raises(LeaseLost):
        declared.requeue("router", late.token, positions(late))
    with pytest.raises(InvalidField):
        declared.requeue("router", current.token, [])
    ack(declared, current)


def test_a_late_ack_counts_until_the_next_pull(declared, page, clock):
    fill(page, 1)
    batch = declared.pull("router", lease="5s")
    clock.advance(60)
    ack(declared, batch)
    assert not declared.pull("router").deliveries


def test_an_ack_of_an_earlier_batch_is_refused(declared, page, clock):
    fill(page, 1)
    late = declared.pull("router", lease="5s")
    clock.advance(6)
    current = declared.pull("router")
    with pytest.raises(LeaseLost):
        ack(declared, late)
    ack(declared, current)


def test_an_ack_of_an_event_that_came_back_is_refused(declared, page):
    fill(page, 2)
    batch = declared.pull("router")
    ack(declared, batch, 0)
    declared.nack("router", batch.token, batch.deliveries[1].position, "failed", delay=0)
    with pytest.raises(NotDelivered):
        ack(declared, batch, 1)
    current = declared.pull("router")
    with pytest.raises(NotDelivered):
        ack(declared, batch, 1)
    ack(declared, batch, 0)
    assert contents(current) == ["1"]
    ack(declared, current)


def test_an_ack_of_a_dead_letter_that_came_back_is_refused(bus, page):
    bus.declare_subscription("router", max_attempts=1)
    fill(page, 1)
    batch = bus.pull("router")
    bus.nack("router", batch.token, batch.deliveries[0].position, "failed")
    bus.retry_dead_letters("router")
    again = bus.pull("router")
    with pytest.raises(NotDelivered):
        ack(bus, batch)
    ack(bus, again)


def test_an_ack_of_another_event_after_the_batch_is_refused(declared, page):
    fill(page, 1)
    batch = declared.pull("router")
    ack(declared, batch)
    (later,) = fill(page, 1)
    with pytest.raises(NotDelivered):
        declared.ack("router", batch.token, later.position)
    assert len(declared.pull("router").deliveries) == 1


def test_events_can_be_acked_in_any_order(declared, page, clock):
    fill(page, 3)
    batch = declared.pull("router", lease="5s")
    ack(declared, batch, 2)
    ack(declared, batch, 0)
    clock.advance(6)
    again = declared.pull("router")
    assert contents(again) == ["1"]
    ack(declared, again)
    assert not declared.pull("router").deliveries


def test_a_second_ack_changes_nothing(declared, page):
    fill(page, 2)
    batch = declared.pull("router")
    ack(declared, batch, 0)
    ack(declared, batch, 0)
    ack(declared, batch)
    ack(declared, batch)
    assert not declared.pull("router").deliveries


def test_a_requeued_event_cannot_be_acked_while_another_client_has_it(declared, page):
    fill(page, 1)
    first = declared.pull("router")
    declared.requeue("router", first.token, positions(first))
    second = declared.pull("router")
    with pytest.raises(NotDelivered):
        ack(declared, first)
    declared.requeue("router", first.token, positions(first))  # a repeated call
    ack(declared, second)


@pytest.mark.parametrize("take_back", ["requeue", "nack"])
def test_a_repeat_takes_an_event_back_once_while_others_are_out(declared, page, take_back):
    fill(page, 2)
    batch = declared.pull("router", max=2)
    first, second = positions(batch)
    for _ in range(2):  # the driver sends it again when the reply was lost
        if take_back == "nack":
            declared.nack("router", batch.token, first, "bad")
        else:
            declared.requeue("router", batch.token, [first])
    with pytest.raises(NotDelivered):
        declared.ack("router", batch.token, [first])
    declared.ack("router", batch.token, [second])
    again = declared.pull("router", max=2)
    assert [(each.position, each.attempt) for each in again.deliveries] == [(first, 1 + (take_back == "nack"))]


def test_an_ack_is_all_or_nothing(declared, page, clock):
    added = fill(page, 2)
    batch = declared.pull("router", max=1, lease="5s")
    with pytest.raises(NotDelivered):
        declared.ack("router", batch.token, [batch.deliveries[0].position, added[1].position])
    clock.advance(6)
    assert contents(declared.pull("router")) == ["0"]


@pytest.mark.parametrize("maximum", [1, 7])
def test_events_of_all_shards_are_delivered_and_acked(declared, maximum):
    for n in range(40):
        declared.page(f"p{n % 8}").add("observation", f"{n}")
    seen: list[str] = []
    while (batch := declared.pull("router", max=maximum)).deliveries:
        seen += contents(batch)
        ack(declared, batch)
    assert sorted(map(int, seen)) == [*range(40)]
    by_page = [[int(each) for each in seen if int(each) % 8 == n] for n in range(8)]
    assert by_page == [sorted(some) for some in by_page]
    assert declared.subscriptions()[0].lag == 0


def test_events_of_several_shards_are_pulled_in_order_of_time(declared, clock):
    shards = range(declared.core.log.shards)
    names = [next(name for name in map(str, range(99)) if declared.core.log.shard(name) == shard) for shard in shards]
    for n in range(3 * len(names)):
        declared.page(names[-1 - n % len(names)]).add("observation", str(n))
        clock.advance("1ms")
    assert contents(declared.pull("router", max=99)) == [str(n) for n in range(3 * len(names))]


def test_filtered_events_are_in_order_over_several_reads(connect):
    bus = connect(max_observations=3000)
    bus.declare_subscription("router", tags=["hot"])
    page = bus.page()
    for start in range(0, 600, 100):
        some = [(n, ["hot"] if n % 150 == 0 else []) for n in range(start, start + 100)]
        page.add_many([NewObservation(type="observation", content=f"{n}", tags=tags) for n, tags in some])
    seen = []
    while (batch := bus.pull("router", max=2)).deliveries:
        seen += contents(batch)
        ack(bus, batch)
    assert seen == ["0", "150", "300", "450"]


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_failed_event_is_redelivered_alone_before_later_events(declared, page):
    fill(page, 4)
    batch = declared.pull("router", max=3)
    declared.nack("router", batch.token, batch.deliveries[1].position, "not now")
    ack(declared, batch, 0, 2)
    again = declared.pull("router")
    assert [(each.event.content, each.attempt) for each in again.deliveries] == [("1", 2)]
    ack(declared, again)
    assert contents(declared.pull("router")) == ["3"]


def test_a_failed_event_is_redelivered_alone_after_one_that_was_given_back(declared, page):
    fill(page, 3)
    batch = declared.pull("router")
    declared.nack("router", batch.token, batch.deliveries[1].position, "not now")
    declared.requeue("router", batch.token, [batch.deliveries[0].position])
    ack(declared, batch, 2)
    first = declared.pull("router")
    assert [(each.event.content, each.attempt) for each in first.deliveries] == [("0", 1)]
    ack(declared, first)
    assert [(each.event.content, each.attempt) for each in declared.pull("router").deliveries] == [("1", 2)]


def test_the_retry_delay_doubles_with_each_attempt(bus, page, clock):
    bus.declare_subscription("router", retry_delay="2s")
    fill(page, 1)
    for seconds in (2, 4, 8):
        batch = bus.pull("router")
        bus.nack("router", batch.token, batch.deliveries[0].position, "no")
        clock.advance(seconds - 0.5)
        assert not bus.pull("router").deliveries
        clock.advance(1)
    batch = bus.pull("router")
    assert batch.deliveries[0].attempt == 4
    bus.nack("router", batch.token, batch.deliveries[0].position, "no", delay=0)
    assert bus.pull("router").deliveries[0].attempt == 5


@pytest.mark.parametrize(("url", "delays"), [("https://example.com/", (8, 12)), (None, (10, 10))])
def test_only_the_retry_delays_of_webhooks_are_random(bus, page, clock, monkeypatch, url, delays):
    drawn = []

    class Extremes:
        """Draws the limits of each range in turn."""

        @staticmethod
        def uniform(*limits):
            drawn.append(limits)
            return limits[(len(drawn) - 1) % 2]

    monkeypatch.setattr(settlement, "JITTER", Extremes)
    bus.declare_subscription("router", retry_delay="10s", url=url, secret=url and new_webhook_secret())
    fill(page, 2)
    for seconds in delays:
        batch = bus.pull("router", max=1)
        bus.nack("router", batch.token, batch.deliveries[0].position, "no")
        clock.advance(seconds - 0.5)
        assert not bus.pull("router").deliveries
        clock.advance(1)
        ack(bus, again := bus.pull("router", max=1))
        assert [each.attempt for each in again.deliveries] == [2]
    assert len(drawn) == (0 if url is None else 2)


def test_the_last_failed_attempt_makes_a_dead_letter(bus, page):
    bus.declare_subscription("router", max_attempts=2, retry_delay=0)
    added = fill(page, 2)
    for _ in range(2):
        batch = bus.pull("router", max=1)
        bus.nack("router", batch.token, batch.deliveries[0].position, "broken pipe")
    (letter,) = bus.dead_letters("router")
    assert (letter.subject, letter.reason, letter.attempts) == (added[0].id, "broken pipe", 2)
    assert contents(bus.pull("router")) == ["1"]


def test_a_repeated_or_refused_failure_reports_no_dead_letter(bus, page, capfd):
    bus.declare_subscription("router", max_attempts=2, retry_delay=0)
    fill(page, 2)
    batch, dead = bus.pull("router"), counts.subscriptions["router"].dead
    first, second = positions(batch)
    for _ in range(2):
        bus.nack("router", batch.token, first, "bad")
    bus.ack("router", batch.token, second)
    assert [each.attempt for each in bus.pull("router").deliveries] == [2]
    with pytest.raises(LeaseLost):
        bus.nack("router", "another", first, "bad")
    assert (bus.dead_letters("router"), counts.subscriptions["router"].dead) == ([], dead)
    assert "dead letter" not in capfd.readouterr().err


def test_two_bad_events_of_a_batch_become_dead_letters(bus, page):
    bus.declare_subscription("router", max_attempts=2, retry_delay=0)
    fill(page, 5)
    handled: list[str] = []
    while (batch := bus.pull("router")).deliveries:
        for each in batch.deliveries:
            if each.event.content in "13":
                bus.nack("router", batch.token, each.position, "bad")
            else:
                handled.append(each.event.content)
                bus.ack("router", batch.token, each.position)
    assert handled == ["0", "2", "4"]
    assert [letter.attempts for letter in bus.dead_letters("router")] == [2, 2]


def test_an_event_that_kills_its_clients_becomes_a_dead_letter(bus, page, clock):
    bus.declare_subscription("router", max_attempts=3)
    added = fill(page, 3)
    handled: list[str] = []
    for _ in range(12):
        batch = bus.pull("router", lease="1s")
        for each in batch.deliveries:
            if each.event.content == "1":
                break  # the client dies here
            handled.append(each.event.content)
            bus.ack("router", batch.token, each.position)
        clock.advance(2)
    (letter,) = bus.dead_letters("router")
    assert (letter.subject, letter.attempts) == (added[1].id, 3)
    assert handled == ["0", "2"]


def test_an_event_that_is_erased_before_it_is_redelivered_holds_up_no_other(declared, page):
    erased, _ = fill(page, 2)
    batch = declared.pull("router", max=1)
    declared.nack("router", batch.token, batch.deliveries[0].position, "no")
    page.erase(erased.id, reason="asked for")
    assert [each.event.kind for each in declared.pull("router").deliveries] == ["added", "erased"]
    assert declared.dead_letters("router") == []


def test_a_pull_delivers_retried_dead_letters(bus, page):
    bus.declare_subscription("router", max_attempts=1)
    fill(page, 3)
    batch = bus.pull("router")
    for each in batch.deliveries[:2]:
        bus.nack("router", batch.token, each.position, "bad")
    assert bus.retry_dead_letters("router") == 2
    ack(bus, batch, 2)
    again = bus.pull("router")
    assert contents(again) == ["0", "1"]
    ack(bus, again)
    assert (bus.dead_letters("router"), bus.pull("router").deliveries) == ([], [])


def test_an_acked_dead_letter_ahead_of_a_reset_cursor_skips_no_events(bus, page):
    bus.declare_subscription("router", max_attempts=1)
    fill(page, 3)
    batch = bus.pull("router")
    bus.nack("router", batch.token, batch.deliveries[2].position, "bad")
    ack(bus, batch, 0, 1)
    bus.declare_subscription("router", reset=True)
    bus.retry_dead_letters("router")
    first = bus.pull("router", max=1)
    assert contents(first) == ["2"]
    ack(bus, first)
    assert contents(bus.pull("router")) == ["0", "1", "2"]


def test_a_repeated_or_refused_outcome_of_a_pulled_event_is_not_counted_again(bus, page):
    bus.declare_subscription("router")
    fill(page, 2)
    counted = counts.subscriptions["router"]
    acked, failed = counted.acked, counted.failed
    batch = bus.pull("router")
    first, second = [each.position for each in batch.deliveries]
    for _ in range(2):
        bus.ack("router", batch.token, first)
    bus.ack("router", batch.token, [first])
    for _ in range(2):
        bus.nack("router", batch.token, second, "no")
    with pytest.raises(LeaseLost):
        bus.nack("router", "another", second, "no")
    assert (counted.acked - acked, counted.failed - failed) == (1, 1)


def test_an_event_that_cannot_succeed_is_set_aside_before_the_last_attempt(bus, page):
    bus.declare_subscription("router", max_attempts=3)
    fill(page, 2)
    first, second = (batch := bus.pull("router")).deliveries
    bus.nack("router", batch.token, first.position, "no", max_attempts=2, delay=0)
    bus.nack("router", batch.token, second.position, "never", max_attempts=1)
    assert [letter.reason for letter in bus.dead_letters("router")] == ["never"]
    for attempt in (2, 3):
        (again,) = (batch := bus.pull("router")).deliveries
        assert (again.position, again.attempt) == (first.position, attempt)
        bus.nack("router", batch.token, first.position, "no", max_attempts=9, delay=0)
    assert [letter.attempts for letter in bus.dead_letters("router")] == [3, 1]
    with pytest.raises(InvalidField, match="max_attempts"):
        bus.nack("router", batch.token, first.position, "no", max_attempts=0)


def test_a_pull_reads_only_the_retried_dead_letters_that_it_hands_out(bus, page, monkeypatch):
    bus.declare_subscription("router", max_attempts=1)
    fill(page, 5)
    batch = bus.pull("router")
    for each in batch.deliveries:
        bus.nack("router", batch.token, each.position, "bad")
    bus.retry_dead_letters("router")
    real, found = below_floor.entries_at, []

    def entries_at(log, positions):
        found.extend(positions)
        return real(log, positions)

    monkeypatch.setattr(dead_letters, "entries_at", entries_at)
    monkeypatch.setattr(pulled_batches, "READ_AT_ONCE", 2)
    assert contents(bus.pull("router", max=3)) == ["0", "1", "2"]
    assert len(found) == 3


@pytest.mark.damages_the_log
def test_a_retried_dead_letter_whose_event_is_gone_holds_up_no_other(bus, page):
    bus.declare_subscription("router", max_attempts=1, pages="main")
    added = fill(page, 2)
    batch = bus.pull("router")
    for each in positions(batch):
        bus.nack("router", batch.token, each, "bad")
    bus.retry_dead_letters("router")
    send(bus, "XDEL", bus.core.log.keys(bus.core.log.shard("main")).log, added[0].position.stream_id)
    assert contents(bus.pull("router")) == ["1"]
    (letter,) = bus.dead_letters("router")
    assert (letter.position, letter.reason) == (str(added[0].position), "its event is no longer in the log")


@pytest.mark.damages_the_log
def test_a_pull_skips_and_logs_invalid_entries(declared, page, capfd):
    fill(page, 1)
    invalid = raw_append(declared, kind="added", subject="x", event=b"{}")
    fill(page, 1)
    batch = declared.pull("router")
    assert contents(batch) == ["0", "0"]
    (logged,) = [line for line in capfd.readouterr().err.splitlines() if "not an event" in line]
    assert invalid in logged
    ack(declared, batch)
    assert not declared.pull("router").deliveries


@pytest.mark.damages_the_log
def test_a_retried_dead_letter_that_is_no_event_holds_up_no_other(bus, page):
    bus.declare_subscription("router", max_attempts=1)
    invalid = Position.parse(raw_append(bus, kind="added", subject="x", event=b"{}"))
    fill(page, 1)
    batch = bus.pull("router")
    bus.nack("router", batch.token, batch.deliveries[0].position, "bad")
    bus.retry_dead_letters("router")
    again = bus.core.log.keys(0).again("router")
    letter = send(bus, "HGET", again, str(batch.deliveries[0].position))
    send(bus, "HSET", again, str(invalid._replace(shard=bus.core.log.shard("main"))), letter)
    assert contents(bus.pull("router", max=1)) == []
    assert contents(bus.pull("router", max=1)) == ["0"]


# -- beside consumers of the Python API -------------------------------------------------------------------------------


def test_a_consumer_and_a_pull_exclude_each_other(declared, connect, page):
    fill(page, 3)
    with declared.subscribe("router") as deliveries:
        next(deliveries).ack()
        assert not connect().pull("router").deliveries
    batch = declared.pull("router", max=1, by="go-daemon")
    assert contents(batch) == ["1"]
    assert declared.subscriptions()[0].holder == "go-daemon"
    with pytest.raises(SubscriptionHeld):
        declared.unsubscribe("router")
    ack(declared, batch)
    with declared.subscribe("router") as deliveries:
        assert next(deliveries).event.content == "2"


def test_consumers_and_pulls_share_attempt_counts(bus, page):
    bus.declare_subscription("router", retry_delay=0)
    fill(page, 2)
    batch = bus.pull("router")
    bus.nack("router", batch.token, batch.deliveries[0].position, "no")
    ack(bus, batch, 1)
    with bus.subscribe("router") as deliveries:
        delivery = next(deliveries)
        assert (delivery.event.content, delivery.attempt) == ("0", 2)
        delivery.fail("no", delay=0)
    batch = bus.pull("router")
    assert [(each.event.content, each.attempt) for each in batch.deliveries] == [("0", 3)]


def test_a_pull_waits_for_the_delay_after_a_failure_of_a_consumer(declared, page, clock):
    fill(page, 1)
    with declared.subscribe("router") as deliveries:
        next(deliveries).fail("busy", delay="1h")
    assert not declared.pull("router").deliveries
    clock.advance("1h")
    assert [each.attempt for each in declared.pull("router").deliveries] == [2]


def test_a_consumers_subscription_can_be_pulled(bus, page):
    with bus.subscribe("router", types=["risk_alert"]):
        pass
    fill(page, 1)
    page.add("risk_alert", "look")
    assert contents(bus.pull("router")) == ["look"]


def test_events_of_a_consumers_subscription_are_pulled_by_the_usual_rules(bus, page, clock):
    with bus.subscribe("router"):
        pass
    fill(page, 1)
    delays = []
    while (batch := bus.pull("router")).deliveries:
        bus.nack("router", batch.token, batch.deliveries[0].position, "bad")
        delays.append(int(stored(bus).get("due", 0)) - clock.ms)
        clock.advance("1h")
    assert delays[:-1] == [1_000, 2_000, 4_000, 8_000]
    assert [letter.attempts for letter in bus.dead_letters("router")] == [5]


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_a_pull_waits_for_a_matching_event(bus, connect, page):
    bus.declare_subscription("router", types=["risk_alert"])
    found = []
    other = connect()
    thread = threading.Thread(target=lambda: found.append(other.pull("router", wait="30s")))
    thread.start()
    eventually(lambda: stored(bus).get("settled"))
    page.add("observation", "not this")
    page.add("risk_alert", "this")
    thread.join(20)
    assert [contents(batch) for batch in found] == [["this"]]


async def test_an_async_pull_waits_and_acks(connect, engine, bus_name):
    connect().page()
    async with AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="tester") as bus:
        assert await bus.declare_subscription("router") is True
        assert await bus.declare_subscription("router") is False
        waiting = asyncio.create_task(bus.pull("router", wait="30s"))
        await bus.page().add("observation", "x")
        batch = await waiting
        await bus.nack("router", batch.token, batch.deliveries[0].position, "no", delay=0)
        batch = await bus.pull("router", wait="5s")
        await bus.ack("router", batch.token, positions(batch))
        assert [each.attempt for each in batch.deliveries] == [2]
        assert (await bus.subscriptions())[0].lag == 0


async def test_a_cancelled_pull_releases_its_batch(connect, engine, bus_name, monkeypatch):
    """The pull is cancelled after the engine leases the events and before the answer arrives."""
    connect().page()
    async with AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="tester") as bus:
        await bus.declare_subscription("router")
        await bus.page().add("observation", "x")
        converse, handed_out, is_cancelled = bus.converse, asyncio.Event(), asyncio.Event()

        async def slow(conversation):
            found = await converse(conversation)
            if isinstance(found, Attempt):
                handed_out.set()
                await is_cancelled.wait()
            return found

        monkeypatch.setattr(bus, "converse", slow)
        pulling = asyncio.create_task(bus.pull("router", lease="10m"))
        await handed_out.wait()
        assert (await bus.subscriptions())[0].holder is not None
        pulling.cancel()
        is_cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        assert (await bus.subscriptions())[0].holder is None
        batch = await bus.pull("router")
        assert (contents(batch), batch.deliveries[0].attempt) == (["x"], 1)


def test_a_pull_returns_an_empty_batch_after_its_wait(declared):
    assert declared.pull("router", wait="100ms").deliveries == []


# -- definitions ------------------------------------------------------------------------------------------------------


def test_a_declared_subscription_starts_after_the_given_position(bus, page):
    added = fill(page, 2)
    assert bus.declare_subscription("router", after=added[0].position) is True
    assert contents(bus.pull("router")) == ["1"]


def test_redeclaring_keeps_the_cursor_and_changes_the_filters(bus, page):
    bus.declare_subscription("router")
    fill(page, 1)
    ack(bus, bus.pull("router"))
    assert bus.declare_subscription("router", types=["risk_alert"], max_attempts=2, retry_delay="3s") is False
    fill(page, 1)
    page.add("risk_alert", "look")
    assert contents(bus.pull("router")) == ["look"]
    (status,) = bus.subscriptions()
    assert (status.filters, status.max_attempts, status.retry_delay) == ('{"types":["risk_alert"]}', 2, 3.0)


def test_filters_cannot_change_while_a_batch_is_leased(declared, page):
    fill(page, 1)
    batch = declared.pull("router")
    with pytest.raises(SubscriptionHeld):
        declared.declare_subscription("router", types=["risk_alert"])
    declared.declare_subscription("router", max_attempts=3)
    ack(declared, batch)
    declared.declare_subscription("router", types=["risk_alert"])


def test_a_webhook_secret_is_stored_but_not_shown(bus):
    secret = new_webhook_secret()
    bus.declare_subscription("router", url="https://example.com/in", secret=secret)
    bus.declare_subscription("router", url="https://example.com/other")
    webhook = bus.webhook("router")
    assert (webhook.url, webhook.secret, len(webhook.key)) == ("https://example.com/other", secret, 32)
    assert secret not in repr(webhook)
    (status,) = bus.subscriptions()
    assert status.url == "https://example.com/other"
    assert secret not in status.model_dump_json()
    bus.declare_subscription("router")
    with pytest.raises(NotFound):
        bus.webhook("router")
    assert "secret" not in stored(bus)


def test_a_default_secret_is_stored_only_if_there_is_none(bus):
    first, second, own = new_webhook_secret(), new_webhook_secret(), new_webhook_secret()
    for given, stored_secret in [
        ({"default_secret": first}, first),
        ({"default_secret": second}, first),
        ({"secret": own, "default_secret": second}, own),
        ({"default_secret": second}, own),
    ]:
        bus.declare_subscription("router", url="https://example.com/in", **given)
        assert bus.webhook("router").secret == stored_secret
    with pytest.raises(InvalidField, match="default_secret: signs"):
        bus.declare_subscription("router", default_secret=second)
    with pytest.raises(InvalidField, match="default_secret: is not a secret"):
        bus.declare_subscription("router", url="https://example.com/in", default_secret="guess")


def test_a_webhook_needs_a_secret(bus):
    with pytest.raises(InvalidField):
        bus.declare_subscription("router", url="https://example.com/in")
    assert bus.subscriptions() == []


@pytest.mark.engines("memory")
@pytest.mark.parametrize(
    "url",
    [
        "example.com",
        "https://example.com:0/in",
        "ftp://example.com",
        "http://",
        "http://u:p@example.com",
        "http://a b/",
        "http://[::1",
        "http://a#b",
        7,
    ],
)
def test_an_invalid_url_is_refused(bus, url):
    with pytest.raises(InvalidField):
        bus.declare_subscription("router", url=url, secret=new_webhook_secret())


@pytest.mark.engines("memory")
@pytest.mark.parametrize("secret", ["secret", "whsec_", "whsec_c2hvcnQ=", "whsec_" + "=" * 40, 7])
def test_an_invalid_secret_is_refused(bus, secret):
    with pytest.raises(InvalidField):
        bus.declare_subscription("router", url="https://example.com", secret=secret)


@pytest.mark.engines("memory")
@pytest.mark.parametrize("lease", [timedelta(seconds=1), timedelta(hours=12)])
def test_a_lease_lasts_from_one_second_to_twelve_hours(declared, page, clock, lease):
    fill(page, 1)
    batch = declared.pull("router", lease=lease)
    assert (contents(batch), batch.until) == (["0"], clock.now + lease)
    clock.advance(lease - timedelta(milliseconds=1))
    assert contents(declared.pull("router")) == []
    clock.advance("1ms")
    assert contents(declared.pull("router")) == ["0"]


@pytest.mark.engines("memory")
def test_bad_arguments_are_refused(declared, page):
    fill(page, 1)
    for maximum in (0, 1001):
        with pytest.raises(InvalidField):
            declared.pull("router", max=maximum)
    for lease in ("999ms", "13h", 43_200_001 / 1000, "never"):
        with pytest.raises(InvalidTTL):
            declared.pull("router", lease=lease)
    with pytest.raises(InvalidTTL):
        declared.pull("router", wait=-1)
    for by in ("\ud800", ["me"]):
        with pytest.raises(InvalidField, match="by"):
            declared.pull("router", by=by)
    batch = declared.pull("router")
    with pytest.raises(InvalidField):
        declared.ack("router", batch.token, [])
    for token in ("", 7):
        with pytest.raises(InvalidField, match="token"):
            declared.ack("router", token, positions(batch))
    with pytest.raises(InvalidField, match="token"):
        declared.nack("router", "\ud800", positions(batch)[0], "no")
    with pytest.raises(LeaseLost):
        declared.ack("router", "0" * 32, positions(batch))
    with pytest.raises(NotDelivered):
        declared.nack("router", batch.token, Position(1, 99), "no")
    with pytest.raises(NotFound):
        declared.pull("unknown")
    with pytest.raises(NotFound):
        declared.nack("unknown", batch.token, Position(1, 99), "no")


def test_a_dropped_subscription_raises_position_lost_until_reset(declared, page):
    send(declared, "HSET", declared.core.log.keys(0).subscription("router"), "dropped", "1")
    with pytest.raises(PositionLost):
        declared.pull("router")
    with pytest.raises(PositionLost):
        declared.declare_subscription("router")
    declared.declare_subscription("router", reset=True)
    fill(page, 1)
    assert contents(declared.pull("router")) == ["0"]


def test_a_reset_clears_leased_batches_and_attempts(declared, page, clock):
    fill(page, 2)
    batch = declared.pull("router", lease="5s")
    with pytest.raises(SubscriptionHeld):
        declared.declare_subscription("router", reset=True)
    ack(declared, batch, 0)
    clock.advance(6)
    declared.declare_subscription("router", reset=True)
    assert [(each.event.content, each.attempt) for each in declared.pull("router").deliveries] == [("0", 1), ("1", 1)]


def test_names_and_tokens_that_are_not_valid_unicode_are_refused(bus, page):
    page.add("observation", "a")
    bus.declare_subscription("s1")
    for refused in (
        lambda: bus.pull("s1", by="a\udcff"),
        lambda: bus.ack("s1", "a\udcff", "1-1"),
        lambda: bus.nack("s1", "a\udcff", "1-1", "no"),
        lambda: bus.requeue("s1", "a\udcff", "1-1"),
    ):
        with pytest.raises(InvalidField, match=r"by: is not valid|token: .* is not the token"):
            refused()
