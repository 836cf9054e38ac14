"""A read sees every write acknowledged before it began, with or without a projector."""

import threading

import pytest

from scratchbus import NewObservation
from scratchbus.errors import Behind, EngineForbidden, EngineReadOnly, PositionLost
from scratchbus.eventlog.checkpoint import Outcome
from scratchbus.eventlog.codec import decode_items
from scratchbus.readmodel import page_query
from scratchbus.readmodel.projector import run_projector
from tests.engines import ONE
from tests.faults.interposing import interposed
from tests.inspection import keys_of, project, send
from tests.waiting import eventually


def contents(observations):
    return [one.content for one in observations]


def checkpoint(bus):
    return send(bus, "GET", keys_of(bus).live)


@pytest.mark.engines(*ONE)
def test_other_clients_see_a_write_at_once(connect):
    writer, reader = connect("writer").page(), connect("reader").page()
    for n in range(20):
        added = writer.add("observation", f"{n}")
        assert reader.get(added.id) == added
        assert reader.active(limit=1) == reader.list(limit=1) == [added]
        changed = writer.update(added.id, tags=["t"])
        assert reader.list(tags="t", limit=1) == [changed]
        closed = writer.resolve(added.id)
        assert reader.list(status="resolved", limit=1) == [closed]
        assert reader.active() == []


def test_a_few_events_are_folded_in_memory_only(bus, page):
    page.add("observation", "x")
    assert contents(page.list()) == ["x"]
    assert checkpoint(bus) is None


@pytest.mark.engines(*ONE)
def test_thousands_of_events_without_a_projector_are_seen(connect):
    bus = connect(max_observations=2000)
    page = bus.page()
    added = []
    for _ in range(2):
        added += page.add_many([NewObservation(type="observation", content="x") for _ in range(1000)])
    assert len(page.list(limit=None)) == 2000
    assert checkpoint(bus) is not None
    assert page.get(added[0].id) == added[0]
    assert len(page.active()) == 2000


def test_events_of_other_pages_are_not_shown(bus, page):
    for n in range(5):
        bus.page("other").add("observation", f"{n}")
    page.add("observation", "mine")
    assert contents(page.list()) == contents(page.active()) == ["mine"]


def test_unfolded_events_apply_to_folded_documents(bus, page, clock):
    kept, closed, cleared, tagged = (page.add("observation", name) for name in ("kept", "closed", "cleared", "tagged"))
    page.resolve(cleared.id)
    project(bus)
    page.resolve(closed.id)
    page.clear_resolved([cleared.id])
    page.update(tagged.id, tags=["t"])
    page.add("observation", "added")
    assert contents(page.list()) == ["added", "tagged", "closed", "kept"]
    assert contents(page.active()) == ["added", "tagged", "kept"]
    assert contents(page.list(status="resolved")) == ["closed"]
    assert contents(page.list(tags="t")) == ["tagged"]
    assert page.get(cleared.id) is None
    assert contents(page.list(limit=1, after=tagged.id)) == ["closed"]
    assert page.get(kept.id) == kept


def test_stale_reads_show_only_folded_events(bus, page):
    first = page.add("observation", "first")
    project(bus)
    page.update(first.id, content="changed")
    page.add("observation", "second")
    assert contents(page.list(stale_ok=True)) == ["first"]
    assert contents(page.active(stale_ok=True)) == ["first"]
    assert page.get(first.id, stale_ok=True) == first
    project(bus)
    assert contents(page.list(stale_ok=True)) == ["second", "changed"]


def page_far_behind(connect, **settings):
    """Add more events than a reader folds in memory; return the page on another connection."""
    page = connect(max_observations=1000).page()
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(page_query.IN_MEMORY + 1)])
    return connect("reader", **settings).page()


def test_read_that_cannot_catch_up_raises_behind(connect, monkeypatch):
    page = page_far_behind(connect, fresh_timeout="50ms")
    monkeypatch.setattr("scratchbus.readmodel.commits.commit", _lose)
    with pytest.raises(Behind, match=r"still behind after 0\.05 s; start a projector"):
        page.list()
    with pytest.raises(Behind, match="over fresh_timeout"):
        page.list(stale_ok=True)  # the unfolded events are older than fresh_timeout by now
    monkeypatch.undo()
    assert len(connect("patient").page().list(limit=None)) == page_query.IN_MEMORY + 1


def _lose(prepared, sent):
    yield from ()
    return Outcome.LOST, prepared.was


@pytest.mark.parametrize("error", [EngineReadOnly, EngineForbidden])
def test_reader_without_write_permission_folds_in_memory(connect, monkeypatch, error):
    page = page_far_behind(connect)

    def refused(*args):
        yield from ()
        raise error("no writing here")

    monkeypatch.setattr("scratchbus.readmodel.commits.commit", refused)
    assert len(page.list(limit=None)) == len(page.active()) == page_query.IN_MEMORY + 1
    assert checkpoint(connect()) is None


def test_projector_keeps_up_until_stopped(connect):
    bus, stop = connect(), threading.Event()
    thread = threading.Thread(target=run_projector, args=(connect("projector"), stop))
    thread.start()
    try:
        for n in range(3):
            bus.page().add("observation", f"{n}")
        eventually(lambda: all(shard.lag == 0 for shard in bus.status().shards))
        assert len(bus.page().list(stale_ok=True)) == 3
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_concurrent_projectors_fold_each_event_once(connect):
    bus, stop = connect(max_observations=1000), threading.Event()
    threads = [threading.Thread(target=run_projector, args=(connect(f"p{n}"), stop)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(0, 300, 30):
            bus.page().add_many([NewObservation(type="observation", content=f"{n}") for _ in range(30)])
            assert len(bus.page().list(limit=None)) == n + 30
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    project(bus)
    assert len(bus.page().list(limit=None, stale_ok=True)) == 300


@pytest.mark.damages_the_log
def test_read_over_a_trimmed_log_raises_position_lost(bus, page):
    page.add("observation", "folded")
    project(bus)
    for n in range(3):
        page.add("observation", f"{n}")
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
    with pytest.raises(PositionLost, match="the log was trimmed"):
        page.list()
    assert contents(page.list(stale_ok=True)) == ["folded"]


def test_status_reports_the_lag(bus, page):
    page.add("observation", "x")
    shard = bus.status().shards[bus.core.log.shard("main")]
    assert (shard.events, shard.lag, shard.rejected) == (1, 1, 0)
    project(bus)
    shard = bus.status().shards[bus.core.log.shard("main")]
    assert (shard.lag, shard.lag_seconds, shard.end) == (0, 0.0, shard.checkpoint)
    (only,) = bus.status().pages
    assert (only.page, only.open) == ("main", 1)


@pytest.fixture
def folded(monkeypatch):
    """The number of events that each read folded."""
    sizes = []

    def recording(entries, shard):
        sizes.append(len(entries))
        return decode_items(entries, shard)

    monkeypatch.setattr(page_query, "decode_items", recording)
    return sizes


def test_reader_folds_each_event_once(connect, folded):
    page, reader = connect().page(), connect("reader").page()
    added = page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(3)])
    for _ in range(4):
        assert contents(reader.active()) == ["2", "1", "0"]
    assert folded == [3, 3, 0, 0]  # the first read does not cache, since many processes read only once
    page.update(added[0].id, content="changed")
    page.resolve(added[1].id)
    new = page.add("observation", "new")
    folded.clear()
    assert contents(reader.active()) == ["new", "2", "changed"]
    assert reader.get(added[1].id).status == "resolved"
    assert reader.get(new.id) == new
    assert folded == [3, 0, 0]


def test_large_pages_are_not_cached(connect, folded):
    page, reader = connect().page(), connect("reader").page()
    for n in range(6):
        page.add("observation", f"{n}" * 60_000)
    folded.clear()
    for _ in range(5):
        assert [one.content[0] for one in reader.active()] == list("543210")
    assert folded == [6] * 5


def test_changing_a_returned_observation_does_not_affect_reads(connect):
    page, reader = connect().page(), connect("reader").page()
    id = page.add("observation", "x", tags=["t"], context={"a": [1]}).id
    page.update(id, confidence=0.5)
    for _ in range(4):
        for read in (reader.get(id), *reader.active()):
            assert (read.tags, read.context, read.links) == (["t"], {"a": [1]}, [])
            read.tags.append("mine")
            read.context["a"].append(2)
            read.links.append("mine")


def test_cache_is_dropped_when_others_fold(connect):
    bus, reader = connect(), connect("reader").page()
    page = bus.page()
    first, second = (page.add("observation", name).id for name in ("first", "second"))
    project(bus)
    for round in range(3):
        for _ in range(3):
            changed = page.update(first, content=f"{round}")
            assert reader.active()[1] == changed == reader.get(first)
        also = page.update(second, content=f"{round}")
        project(bus)
        changed = page.update(first, confidence=0.5)
        assert reader.active() == [also, changed]


def test_limit_counts_cached_and_new_observations(connect):
    bus, reader = connect(), connect("reader").page()
    page = bus.page()
    ids = [page.add("observation", f"{n}").id for n in range(6)]
    project(bus)
    for n in (1, 3, 5):
        page.update(ids[n], content=f"new {n}")
    for limit in (*range(1, 8), *range(1, 8)):
        assert contents(reader.active(limit=limit)) == ["new 5", "4", "new 3", "2", "new 1", "0"][:limit]
    page.review(ids[5])
    page.resolve(ids[4])
    page.clear_resolved([ids[4]])
    page.add("risk_alert", "above all")
    for limit in range(1, 8):
        assert contents(reader.active(limit=limit)) == ["above all", "new 3", "2", "new 1", "0"][:limit]
    assert reader.get(ids[4]) is None


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
def test_cache_is_dropped_when_the_log_was_rewound(connect):
    bus, reader = connect(), connect("reader").page()
    page, keys = bus.page(), keys_of(bus)
    id = page.add("observation", "first").id
    project(bus)
    kept = send(bus, "XRANGE", keys.log, "-", "+")
    saved = send(bus, "GET", keys.tail), send(bus, "HGET", keys.heads("main"), id)
    page.update(id, content="lost")
    for _ in range(3):
        assert contents(reader.active()) == ["lost"]
    send(bus, "DEL", keys.log)  # as on a replica that never got the update
    for at, fields in kept:
        send(bus, "XADD", keys.log, at, *fields)
    send(bus, "SET", keys.tail, saved[0])
    send(bus, "HSET", keys.heads("main"), id, saved[1])
    assert contents(reader.active()) == ["first"]
    other = connect("other").page()
    other.update(id, confidence=0.5)
    assert contents(reader.active()) == ["first"]
    assert reader.get(id).confidence == 0.5


@pytest.mark.engines(*ONE)
def test_what_was_cached_while_the_tail_was_missing_is_not_used_later(connect):
    bus, reader = connect(), connect("reader").page()
    page, keys = bus.page(), keys_of(bus)
    page.add("observation", "first")
    project(bus)
    tail = send(bus, "GET", keys.tail)
    send(bus, "DEL", keys.tail)
    reader.active()
    send(bus, "SET", keys.tail, tail)
    page.add("observation", "second")
    for _ in range(2):
        assert contents(reader.active()) == ["second", "first"]


@pytest.fixture
def transferred(connect):
    """A reader's bus, and the total length of the documents in each of its replies."""
    bus, lengths = connect("reader"), list[int]()

    def measuring(_, send):
        replies = send()
        for reply in replies:
            if isinstance(reply, list):
                lengths.append(sum(map(len, filter(None, reply[7] if reply[7] is not None else reply[9]))))
        return replies

    with interposed(bus, measuring):
        yield bus, lengths


def test_unchanged_page_is_not_transferred_again(connect, transferred):
    writing, (reading, lengths) = connect(), transferred
    page, reader = writing.page(), reading.page()
    for n in range(4):
        page.add("observation", f"{n}" * 100)
    project(writing)
    first = reader.active()
    lengths.clear()
    assert [reader.active() for _ in range(3)] == [first] * 3
    assert reader.active(limit=2) == first[:2]
    assert lengths == [0, 0, 0, 0]


def test_cached_read_serves_reads_with_the_same_limit(connect, transferred):
    writing, (reading, lengths) = connect(), transferred
    page, reader = writing.page(), reading.page()
    for n in range(4):
        page.add("observation", f"{n}")
    project(writing)
    first = page.active()
    limits = 2, 2, 3, 3, None, None
    assert [reader.active(limit=limit) for limit in limits] == [first[:limit] for limit in limits]
    assert [length > 0 for length in lengths] == [True, False] * 3


def test_change_below_the_limit_does_not_jump_ahead_after_expiry(connect, clock):
    bus, reader, newcomer = connect(), connect("reader").page(), connect("newcomer").page()
    page = bus.page()
    last = page.add("observation", "last")
    page.add("observation", "second")
    page.add("observation", "first")
    page.add_many([NewObservation(type="observation", content="brief", ttl="10s")] * 2)
    project(bus)
    page.update(last.id, tags=["t"])
    assert contents(reader.active(limit=2)) == ["brief", "brief"]
    project(bus)
    clock.advance("11s")
    assert contents(reader.active(limit=2)) == contents(newcomer.active(limit=2)) == ["first", "second"]


def test_only_changed_observations_are_transferred_again(connect, transferred):
    writing, (reading, lengths) = connect(), transferred
    page, reader = writing.page(), reading.page()
    ids = [page.add("observation", f"{n}" * 500).id for n in range(10)]
    project(writing)
    reader.active()
    for is_folded in (True, False, True, False, False):
        lengths.clear()
        page.update(ids[3], confidence=0.5)
        page.resolve(ids.pop())
        ids.append(page.add("risk_alert", "x" * 500).id)
        if is_folded:
            project(writing)
        assert [reader.active(), reader.active()] == [connect("newcomer").page().active()] * 2
        assert sum(lengths) < 3 * 600  # of ten


@pytest.mark.parametrize("others", [10, 50])
def test_change_among_many_of_other_pages_is_seen(connect, others):
    bus, reader = connect(), connect("reader").page()
    page = bus.page()
    ids = [page.add("observation", f"{n}").id for n in range(3)]
    project(bus)
    assert contents(reader.active()) == ["2", "1", "0"]
    page.update(ids[1], content="changed")
    bus.page("other").add_many([NewObservation(type="observation", content="elsewhere")] * others)
    project(bus)
    assert contents(reader.active()) == ["2", "changed", "0"]


def test_large_page_is_transferred_again(connect, transferred):
    writing, (reading, lengths) = connect(), transferred
    page = writing.page()
    for n in range(6):
        page.add("observation", f"{n}" * 60_000)
    project(writing)
    for _ in range(3):
        assert len(reading.page().active()) == 6
    assert min(lengths) > 6 * 60_000


def test_every_kind_of_change_is_seen_by_the_next_read(connect):
    bus, reader = connect(), connect("reader").page()
    page = bus.page()
    one, two, three, four = (page.add("observation", name) for name in ("one", "two", "three", "four"))
    changes = [
        lambda: project(bus),
        lambda: page.update(one.id, content="changed"),
        lambda: project(bus),
        lambda: page.link(two.id, "goal"),
        lambda: page.claim(two.id, by="worker"),
        lambda: page.resolve(three.id),
        lambda: page.reopen(three.id),
        lambda: page.clear_resolved([page.resolve(three.id).id]),
        lambda: bus.page("other").add("observation", "elsewhere"),
        lambda: bus.rebuild(),
        lambda: page.archive(four.id),
        lambda: project(bus),
        lambda: page.erase(one.id, reason="asked for"),
        lambda: page.add("observation", "last"),
    ]
    for change in changes:
        before = reader.active()
        assert reader.active() == before
        change()
        assert reader.active() == connect("newcomer").page().active()
    assert contents(reader.active()) == ["last", "two"]


@pytest.mark.engines("embedded-4-shards", "system")
@pytest.mark.damages_the_log
def test_cache_is_dropped_when_a_failover_lost_events(connect):
    """The engine gets an older copy of all its keys, as on a replica that had not received the last event."""
    bus, reader = connect(), connect("reader").page()
    page = bus.page()
    one = page.add("observation", "one")
    project(bus)
    copies = {key: send(bus, "DUMP", key) for key in send(bus, "KEYS", f"{keys_of(bus).tag}*")}
    page.resolve(one.id)
    assert [reader.active(), reader.active()] == [[], []]
    send(bus, "DEL", *send(bus, "KEYS", f"{keys_of(bus).tag}*"))
    for key, copy in copies.items():
        send(bus, "RESTORE", key, 0, copy)
    assert reader.active() == [one]
