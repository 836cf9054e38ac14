"""A feed hands the latest events to followers that have reached the end of the log."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from scratchbus.eventlog import tail_readers
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.entry_filter import EVERYTHING
from scratchbus.eventlog.tail import Feed, TailCursor, cursor_at_end
from tests.waiting import eventually


@pytest.fixture
def feed(bus, page):
    """A feed with the end of the log and two later events."""
    log = bus.core.log
    feed = Feed(log, log.shard("main"))
    page.add("observation", "0")
    bus.converse(feed.advance(1))
    page.add("observation", "1")
    page.add("observation", "2")
    while len(feed._items) < 2:
        bus.converse(feed.advance(10))
    return feed


def test_feed_returns_the_events_after_a_known_cursor(bus, feed):
    end = bus.converse(cursor_at_end(feed.log, feed.shard))
    assert feed.after(end) == []
    first, second = feed._items
    for item, later_events in ((first, [second]), (second, [])):
        assert feed.after(Cursor(item.position, item.id, end.origin)) == later_events


def test_feed_returns_none_for_an_unknown_cursor(bus, feed):
    end = bus.converse(cursor_at_end(feed.log, feed.shard))
    later = end.position._replace(seq=end.position.seq + 1)
    earlier = end.position._replace(seq=end.position.seq - 3)
    for cursor in (
        Cursor(later, "", end.origin),
        Cursor(earlier, "", end.origin),
        Cursor(end.position, "another event", end.origin),
        Cursor(end.position, end.event_id, "another log"),
    ):
        assert feed.after(cursor) is None


def test_the_end_of_a_cursor_is_not_read_while_it_moves(feed):
    first, second = feed._items
    tail = TailCursor(feed, Cursor(first.position, first.id), EVERYTHING, print)
    with ThreadPoolExecutor(1) as pool:
        with feed.lock:  # the reader of the tail is moving it
            tail.cursor.position = second.position
            end = pool.submit(tail.end)
            with pytest.raises(TimeoutError):
                end.result(0.2)
            tail.cursor.event_id = second.id
        assert end.result(60) == (second.position, second.id)


class Listener:
    """A follower that counts the events it is offered."""

    def __init__(self):
        self.sizes = []

    def offer(self, items):
        self.sizes.append(len(items))

    def resync(self):
        pass


def test_many_followers_get_many_events_per_call(bus, page):
    shard = bus.core.log.shard("main")
    crowd = [Listener() for _ in range(1_000)]
    for listener in crowd:
        bus.feeds.feed(shard).join(listener)
    bus.feeds.pump(shard)
    eventually(lambda: bus.feeds.feed(shard).has_begun)
    begun = time.monotonic()
    for number in range(20):
        page.add("observation", str(number))
    eventually(lambda: all(sum(listener.sizes) == 20 for listener in crowd))
    took, pause = time.monotonic() - begun, tail_readers.PAUSE * len(crowd)
    assert len(crowd[0].sizes) <= 2 + took / pause
