"""Failed deliveries: events are retried, then become dead letters, and delivery continues."""

import time
from collections.abc import Sequence

import pytest

from scratchbus import AsyncBus
from scratchbus.domain.position import Position
from scratchbus.errors import (
    EngineReadOnly,
    InvalidPosition,
    InvalidTTL,
    LeaseLost,
    LogRewound,
    NotFound,
    PositionLost,
)
from scratchbus.eventlog import below_floor
from scratchbus.subscriptions import dead_letters
from tests.contracts.test_subscriptions import contents, fill, status_of, vanish
from tests.inspection import keys_of, round_trips, send


def refuse(deliveries, wanted="1"):
    """Fail one event until a later one arrives; return the contents and attempts of all deliveries."""
    seen = []
    for delivery in deliveries:
        seen.append((delivery.event.content, delivery.attempt))
        with delivery:
            if delivery.event.content == wanted:
                raise ValueError("it will\nnot do")
        if delivery.event.content > wanted:
            return seen
    raise AssertionError


def test_failed_event_is_retried_before_later_events(bus, page):
    fill(page, 3)
    with bus.subscribe("router", retry_delay="10ms") as deliveries:
        next(deliveries).fail("no")
        again = next(deliveries)
        assert (again.event.content, again.attempt) == ("0", 2)
        again.ack()
        assert contents(deliveries, 2) == ["1", "2"]


@pytest.mark.parametrize("at_once", [0, "0s"])
def test_zero_delay_retries_at_once(bus, page, at_once):
    fill(page, 1)
    with bus.subscribe("router", retry_delay="1h") as deliveries:
        next(deliveries).fail("no", delay=at_once)
        assert next(deliveries).attempt == 2
    with bus.subscribe("other", retry_delay=at_once) as deliveries:
        next(deliveries).fail("no")
        assert next(deliveries).attempt == 2


def test_delay_never_is_refused(bus, page):
    fill(page, 1)
    with bus.subscribe("router") as deliveries:
        delivery = next(deliveries)
        with pytest.raises(InvalidTTL, match="delay: 'never' is not a time to wait"):
            delivery.fail("no", delay="never")
        delivery.ack()


def test_retry_delay_grows(bus, page):
    fill(page, 1)
    with bus.subscribe("router", retry_delay="1h") as deliveries:
        first = next(deliveries)
        assert [deliveries._consumer.delay(attempt) for attempt in (1, 2)] == [60.0, 60.0]
        begun = time.monotonic()
        first.fail("no", delay="200ms")
        assert status_of(bus).trying == str(first.position)
        again = next(deliveries)
        assert (again.attempt, time.monotonic() - begun >= 0.19) == (2, True)
        again.ack()
    assert status_of(bus).trying is None
    with bus.subscribe("other", retry_delay="1s") as deliveries:
        assert [deliveries._consumer.delay(attempt) for attempt in (1, 2, 3)] == [1.0, 2.0, 4.0]


def test_event_that_keeps_failing_becomes_a_dead_letter(bus, page, capfd):
    added = fill(page, 3)
    with bus.subscribe("router", max_attempts=3, retry_delay="5ms") as deliveries:
        assert refuse(deliveries) == [("0", 1), ("1", 1), ("1", 2), ("1", 3), ("2", 1)]
    (letter,) = bus.dead_letters()
    assert letter.subscription == "router"
    assert (letter.position, letter.page, letter.subject) == (str(added[1].position), "main", added[1].id)
    assert (letter.kind, letter.reason, letter.attempts) == ("added", "ValueError: it will not do", 3)
    (logged,) = [line for line in capfd.readouterr().err.splitlines() if "set aside as a dead letter" in line]
    assert all(part in logged for part in ("subscription=router", f"position={letter.position}", "attempts=3"))
    assert (status_of(bus).dead_letters, status_of(bus).lag) == (1, 0)
    with bus.subscribe("router") as deliveries:
        page.add("observation", "3")
        assert contents(deliveries, 1) == ["3"]


def test_dead_letters_of_many_subscriptions_take_as_many_round_trips_as_of_one(bus, page):
    (added,) = fill(page, 1)
    expected = []
    for number in range(3):
        with bus.subscribe(f"router-{number}", max_attempts=1) as deliveries:
            next(deliveries).fail("no")
        expected.append((f"router-{number}", str(added.position)))
        assert [(letter.subscription, letter.position) for letter in bus.dead_letters()] == expected
        assert round_trips(bus, dead_letters.list_dead_letters(bus.core, None)) == 2


def test_failed_attempts_are_counted_across_consumers(bus, page):
    fill(page, 2)
    tried = []

    def fail():
        with bus.subscribe("router", max_attempts=3, retry_delay="5ms") as deliveries:
            for delivery in deliveries:
                tried.append((delivery.event.content, delivery.attempt))
                raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()
    assert tried == [("0", 1), ("0", 2), ("0", 3)]
    assert bus.dead_letters("router")[0].reason == "ZeroDivisionError"
    with bus.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["1"]


def test_interrupts_do_not_count_as_attempts(bus, page):
    fill(page, 1)
    for problem in (KeyboardInterrupt, SystemExit):
        with pytest.raises(problem), bus.subscribe("router") as deliveries, next(deliveries):
            raise problem
    with bus.subscribe("router") as deliveries:
        assert next(deliveries).attempt == 1


CONSUMER_ERRORS = [EngineReadOnly("connect to its primary"), LogRewound("restore it"), LeaseLost("router")]


@pytest.mark.parametrize("problem", CONSUMER_ERRORS, ids=lambda problem: type(problem).__name__)
async def test_errors_of_the_consumer_do_not_count_as_attempts(bus, page, engine, problem):
    fill(page, 1)

    def fail():
        with bus.subscribe("router") as deliveries:
            next(deliveries)
            raise problem

    async def fail_in_asyncio():
        async with (
            AsyncBus.connect(engine.url, bus=bus.core.log.bus, source="tester") as other,
            other.subscribe("router") as deliveries,
        ):
            await anext(deliveries)
            raise problem

    with pytest.raises(type(problem)):
        fail()
    with pytest.raises(type(problem)):
        await fail_in_asyncio()
    with bus.subscribe("router") as deliveries:
        assert next(deliveries).attempt == 1


def test_event_that_kills_consumers_becomes_a_dead_letter(connect, clock):
    first = connect()
    fill(first.page(), 3)
    with first.subscribe("router") as deliveries:
        assert contents(deliveries, 1) == ["0"]
    dying = []
    for attempt in (1, 1, 2, 3):  # the first attempt was not recorded
        bus = connect()
        dying.append(bus.subscribe("router", max_attempts=3))
        delivery = next(dying[-1])
        assert (delivery.event.content, delivery.attempt) == ("1", attempt)
        vanish(bus)
        clock.advance("4s")
    with connect().subscribe("router", max_attempts=3) as deliveries:
        assert contents(deliveries, 1) == ["2"]
    (letter,) = first.dead_letters("router")
    assert (letter.attempts, letter.reason) == (3, "its consumers went away while they had it")


def test_idle_consumers_that_vanish_leave_no_dead_letters(connect, clock, process_clock):
    first = connect()
    for n in range(4):
        bus = connect()
        deliveries = bus.subscribe("router", max_attempts=2)
        first.page().add("observation", f"{n}")
        delivery = next(deliveries)
        assert (delivery.event.content, delivery.attempt) == (f"{n}", 1)
        delivery.ack()
        process_clock.advance("10s")
        assert deliveries._consumer.ready() is None
        bus.converse(deliveries._consumer.write(deliveries._consumer.window))
        vanish(bus)
        clock.advance("4s")
    assert first.dead_letters() == []


def test_the_reason_of_a_failure_may_be_an_exception(bus, page):
    fill(page, 1)
    with bus.subscribe("router", max_attempts=2, retry_delay=0) as deliveries:
        for _ in range(2):
            next(deliveries).fail(ValueError("no such user"))
    assert [letter.reason for letter in bus.dead_letters("router")] == ["no such user"]


def test_retried_dead_letters_are_delivered_before_new_events(bus, page):
    added = fill(page, 3)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        for delivery in (next(deliveries), next(deliveries)):
            delivery.fail("no")
    assert bus.retry_dead_letters("router", added[1].position) == 1
    assert bus.retry_dead_letters("router") == 1
    assert bus.dead_letters("router") == []
    with bus.subscribe("router", max_attempts=1) as deliveries:
        assert contents(deliveries, 1) == ["0"]
        next(deliveries).fail("still not")
        assert contents(deliveries, 1) == ["2"]
    (letter,) = bus.dead_letters("router")
    assert (letter.position, letter.reason) == (str(added[1].position), "still not")
    with bus.subscribe("router") as deliveries:
        page.add("observation", "3")
        assert contents(deliveries, 1) == ["3"]


def test_active_consumer_gets_retried_dead_letters(bus, page):
    fill(page, 1)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        next(deliveries).fail("no")
        bus.retry_dead_letters("router")
        assert contents(deliveries, 1) == ["0"]


def test_a_retried_dead_letter_that_is_out_is_not_delivered_again(bus, page):
    fill(page, 2)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        next(deliveries).fail("no")
    bus.retry_dead_letters("router")
    with bus.subscribe("router", max_attempts=1) as deliveries:
        out = next(deliveries)
        assert out.event.content == "0"
        next(deliveries).fail("no")  # with the write, the consumer looks for dead letters to deliver again
        page.add("observation", "2")
        assert contents(deliveries, 1) == ["2"]
        out.ack()


@pytest.fixture
def reads(monkeypatch):
    """The positions of the events of dead letters as they are read, two at a time."""
    real, reads = below_floor.entries_at, list[Sequence[Position]]()

    def entries_at(log, positions):
        reads.append(positions)
        return real(log, positions)

    monkeypatch.setattr(dead_letters, "READ_AT_ONCE", 2)
    monkeypatch.setattr(dead_letters, "entries_at", entries_at)
    return reads


@pytest.mark.slow
def test_retried_dead_letters_are_read_some_at_a_time_and_once(bus, page, reads):
    added = fill(page, 5)
    positions = [each.position for each in added]
    with bus.subscribe("router", max_attempts=1) as deliveries:
        for _ in range(5):
            next(deliveries).fail("no")
        assert bus.retry_dead_letters("router") == 5
        assert reads == [positions[:2], positions[2:4], positions[4:]]
        reads.clear()
        first = next(deliveries)
        assert reads == [positions[:2]]
        page.add("observation", "5")
        bus.converse(deliveries._consumer.write(deliveries._consumer.window))
        first.ack()
        assert contents(deliveries, 5) == ["1", "2", "3", "4", "5"]
    assert reads == [positions[:2], positions[2:4], positions[4:]]
    assert bus.dead_letters("router") == []


@pytest.mark.damages_the_log
def test_retried_dead_letters_whose_events_are_gone_do_not_delay_the_others(bus, page, reads):
    added = fill(page, 5)
    with bus.subscribe("router", max_attempts=1, pages="main") as deliveries:
        for _ in range(5):
            next(deliveries).fail("no")
    bus.retry_dead_letters("router")
    send(bus, "XDEL", keys_of(bus).log, *[each.position.stream_id for each in added[:3]])
    page.add("observation", "5")
    with bus.subscribe("router", pages="main") as deliveries:
        assert contents(deliveries, 3) == ["3", "4", "5"]
    assert [each.position for each in bus.dead_letters("router")] == [str(each.position) for each in added[:3]]


def test_a_retried_dead_letter_leaves_the_attempts_of_an_event_that_kills_consumers(connect, clock):
    bus = connect("first")
    fill(bus.page(), 2)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        next(deliveries).fail("no")

    def die_with_the_next(source, settle=None):
        """Take over, settle the dead letter if asked to, and vanish with the next event; return its attempt."""
        bus = connect(source)
        deliveries = bus.subscribe("router", max_attempts=9)
        if settle is not None:
            bus.retry_dead_letters("router")
            settle(next(deliveries))
        attempt = next(deliveries).attempt
        vanish(bus)
        clock.advance("4s")
        return attempt

    assert [die_with_the_next(source) for source in ("one", "two", "three")] == [1, 1, 2]
    assert die_with_the_next("four", lambda delivery: delivery.ack()) == 3
    assert die_with_the_next("five") == 3
    assert die_with_the_next("six") == 4


def test_dead_letters_can_be_dropped(bus, page):
    added = fill(page, 3)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        for _ in range(3):
            next(deliveries).fail("no")
    assert bus.drop_dead_letters("router", [str(added[0].position), added[2].position]) == 2
    assert [letter.position for letter in bus.dead_letters("router")] == [str(added[1].position)]
    assert bus.drop_dead_letters("router") == 1
    assert bus.drop_dead_letters("router") == bus.retry_dead_letters("router") == 0


def test_unknown_dead_letter_is_not_found(bus, page):
    fill(page, 1)
    with pytest.raises(NotFound, match="there is no subscription 'router'"):
        bus.dead_letters("router")
    with bus.subscribe("router") as deliveries:
        next(deliveries).ack()
    for act in (bus.retry_dead_letters, bus.drop_dead_letters):
        with pytest.raises(NotFound, match="has no dead letter at 1-1"):
            act("router", Position(1, 1))
        with pytest.raises(InvalidPosition):
            act("router", "nonsense")
        with pytest.raises(NotFound):
            act("nobody")


@pytest.mark.damages_the_log
def test_dead_letter_of_a_trimmed_event_cannot_be_retried(bus, page):
    added = fill(page, 2)
    with bus.subscribe("router", max_attempts=1, pages="main") as deliveries:
        next(deliveries).fail("no")
        next(deliveries).ack()
    bus.retry_dead_letters("router")
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
    with bus.subscribe("router", pages="main") as deliveries:
        page.add("observation", "2")
        assert contents(deliveries, 1) == ["2"]
    (letter,) = bus.dead_letters("router")
    assert (letter.position, letter.reason) == (str(added[0].position), "its event is no longer in the log")
    with pytest.raises(PositionLost, match="drop its dead letter"):
        bus.retry_dead_letters("router")
    assert bus.drop_dead_letters("router") == 1


def open_badly_named_file():
    raise OSError("cannot open b\udcff.txt")  # a name that is not UTF-8


def test_a_failure_whose_reason_is_not_valid_unicode_makes_a_dead_letter(bus, page):
    fill(page, 2)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        with next(deliveries):
            open_badly_named_file()
        next(deliveries).fail("not \udcff either")
    reasons = [letter.reason for letter in bus.dead_letters("router")]
    assert reasons == ["OSError: cannot open b?.txt", "not ? either"]
