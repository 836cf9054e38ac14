"""What a feed of the log's end gives to those who follow it, and what it leaves to them to find out."""

import time

import pytest

from scratchbus.eventlog import tail_readers
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.tail import Feed, end_of
from tests.waiting import eventually


@pytest.fixture
def feed(bus, page):
    """A feed that has seen the log's end, and two events more."""
    log = bus.core.log
    feed = Feed(log, log.shard("main"))
    page.add("observation", "0")
    bus.converse(feed.advance(1))
    page.add("observation", "1")
    page.add("observation", "2")
    while len(feed._items) < 2:
        bus.converse(feed.advance(10))
    return feed


def test_it_gives_what_is_behind_an_event_that_it_has(bus, feed):
    end = bus.converse(end_of(feed.log, feed.shard))
    assert feed.after(end) == []
    first, second = feed._items
    for item, behind in ((first, [second]), (second, [])):
        assert feed.after(Cursor(item.position, item.id, end.origin)) == behind


def test_it_gives_nothing_to_one_that_stands_elsewhere(bus, feed):
    end = bus.converse(end_of(feed.log, feed.shard))
    later = end.position._replace(seq=end.position.seq + 1)
    earlier = end.position._replace(seq=end.position.seq - 3)
    for cursor in (
        Cursor(later, "", end.origin),
        Cursor(earlier, "", end.origin),
        Cursor(end.position, "another event", end.origin),
        Cursor(end.position, end.event_id, "another log"),
    ):
        assert feed.after(cursor) is None


class Listener:
    """A follower that counts what it is told."""

    def __init__(self):
        self.told = []

    def offer(self, items):
        self.told.append(len(items))

    def resync(self):
        pass


def test_a_crowd_is_told_of_many_events_at_once(bus, page):
    shard = bus.core.log.shard("main")
    crowd = [Listener() for _ in range(1_000)]
    for listener in crowd:
        bus.feeds.feed(shard).join(listener)
    bus.feeds.pump(shard)
    eventually(lambda: bus.feeds.feed(shard).has_begun)
    begun = time.monotonic()
    for number in range(20):
        page.add("observation", str(number))
    eventually(lambda: all(sum(listener.told) == 20 for listener in crowd))
    took, pause = time.monotonic() - begun, tail_readers.PAUSE * len(crowd)
    assert len(crowd[0].told) <= 2 + took / pause
