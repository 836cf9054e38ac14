"""Following a page yields its events, and time to look around."""

import threading
from itertools import islice

import pytest

from scratchbus.cli.pacing import follow
from scratchbus.errors import EngineUnreachable
from tests.waiting import eventually


def test_what_comes_after_the_position_is_yielded_in_order(bus, page):
    page.add("observation", "before")
    after = bus.position()
    ids = [page.add("observation", f"number {number}").id for number in range(5)]
    bus.page("elsewhere").add("observation", "not here")
    events = follow(bus, threading.Event(), after=after, page="main", every=60)
    assert [event.subject for event in islice(events, 5)] == ids
    events.close()


def test_there_is_time_to_look_around_while_nothing_comes_and_while_much_does(bus, page):
    stop = threading.Event()
    events = follow(bus, stop, after=bus.position(), page="main", every=0.001)
    assert next(events) is None
    page.add("observation", "one")
    page.add("observation", "two")
    seen = [next(event for event in events if event is not None) for _ in range(2)]
    assert [event.kind for event in seen] == ["added", "added"]
    assert next(events) is None
    stop.set()
    assert list(events) == []


def test_it_ends_with_its_thread_when_it_is_stopped(bus):
    stop = threading.Event()
    events = follow(bus, stop, after=bus.position(), page="main", every=0.001)
    next(events)
    stop.set()
    assert list(events) == []
    eventually(
        lambda: not any(thread.name == "follow main" for thread in threading.enumerate()), "the thread has ended"
    )


def test_what_goes_wrong_with_reading_is_raised(bus, monkeypatch):
    def fail():
        raise EngineUnreachable("the engine is gone")

    after = bus.position()
    monkeypatch.setattr(bus, "events", lambda *_, **__: (fail() for _ in range(1)))
    with pytest.raises(EngineUnreachable, match="gone"):
        list(follow(bus, threading.Event(), after=after, page="main", every=60))
