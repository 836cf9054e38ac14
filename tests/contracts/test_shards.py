"""Events of several shards: a reader that resumes after an event misses none."""

import random

import pytest

from scratchbus import NewObservation
from scratchbus.domain.position import in_time
from tests.engines import ONE


@pytest.mark.engines(*ONE)
def test_events_are_in_time_order_and_resumable_after_any_event(connect):
    bus = connect()
    choice = random.Random(7)
    pages = [bus.page(f"page-{n}") for n in range(12)]
    for _ in range(40):
        size = choice.choice([1, 2, 90])  # some shards have more events than one read returns
        choice.choice(pages).add_many([NewObservation(type="observation", content="x")] * size)
    events = list(bus.events())
    assert [event.ms for event in events] == sorted(event.ms for event in events)
    for index in choice.sample(range(len(events)), 8):
        resumed = {event.id for event in bus.events(after=str(events[index].position))}
        assert {event.id for event in events[index + 1 :]} <= resumed


@pytest.mark.engines(*ONE)
def test_events_of_one_millisecond_are_in_order_of_their_shards(bus, clock):
    for number in range(20):
        bus.page(f"page-{number}").add_many([NewObservation(type="observation", content="x")] * (4 * number + 1))
    events = list(bus.events())
    assert len({event.ms for event in events}) == 1
    assert events == sorted(events, key=in_time)
