"""Live views equal their page, follow its events, and recover from changes of the log and failures of the engine."""

import os
import random
import signal
import threading
from contextlib import ExitStack, contextmanager, suppress
from secrets import token_hex

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.domain.position import Position
from scratchbus.engine.embedded import server
from scratchbus.engine.steps import ask
from scratchbus.errors import (
    Behind,
    BusClosed,
    CodeTooOld,
    Conflict,
    EngineForbidden,
    InvalidPosition,
    LogError,
    NotFound,
    ViewClosed,
)
from scratchbus.eventlog import reader, tail_readers
from scratchbus.eventlog import tail as feed
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.stored_documents import encode_document
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.scheduling.expiry import sweep
from scratchbus.views import live_page, page_loader, reads
from tests.engines import ONE
from tests.faults.interposing import interposed
from tests.inspection import forget, keys_of, project, raw_append, send
from tests.live_and_past_pages import SeenLive, count_folds
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch):
    monkeypatch.setattr(tail_readers, "MAX_BLOCK_MS", 50)


@pytest.fixture
def view(bus, page):
    with bus.view() as view:
        yield view


def contents(observations):
    return [one.content for one in observations]


@contextmanager
def in_thread(work):
    """Run `work` repeatedly in a thread until the block ends; raise its error, if any."""
    stop, failure = threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                work()
        except Exception as error:  # raised again below
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    if failure:
        raise failure[0]


# -- contents --------------------------------------------------------------------------------------------------------

VERBS = ("review", "resolve", "archive", "reopen")


def act(page, chance, ids):
    """Run a random command on a page."""
    if not ids or chance.random() < 0.4:
        new = NewObservation(
            type=chance.choice(["risk_alert", "observation", "reminder"]), content=chance.choice("abc"),
            tags=chance.sample(["x", "y", "z"], chance.randrange(3)), owner=chance.choice([None, "agent"]),
            ttl=chance.choice(["20s", "5m", "never"]), dedupe_key=chance.choice([None, "k"]),
        )  # fmt: skip
        ids += [one.id for one in page.add_many([new] * chance.choice([1, 1, 3]))]
        return
    id, does = chance.choice(ids), chance.choice([*VERBS, "update", "claim", "release", "link", "clear"])
    match does:
        case "update":
            page.update(id, tags=chance.sample(["x", "y", "z"], chance.randrange(3)), owner=chance.choice([None, "me"]))
        case "claim":
            page.claim(id, by=chance.choice(["tester", "other"]), ttl=chance.choice(["10s", "1m"]))
        case "release":
            page.release(id)
        case "link":
            page.link(id, chance.choice(["goal-1", "goal-2"]))
        case "clear":
            page.clear_resolved([id])
        case _:
            getattr(page, does)(id)


@pytest.mark.slow
@pytest.mark.engines(*ONE)
@pytest.mark.parametrize("seed", range(3))
def test_a_view_equals_its_page_after_random_commands(connect, clock, seed):
    bus, chance = connect(max_observations=12), random.Random(seed)
    page, ids = bus.page(), list[str]()
    with ExitStack() as views:
        seen = SeenLive(page, views)
        for _ in range(80):
            with suppress(Conflict, NotFound):
                act(page, chance, ids)
            if chance.random() < 0.2:
                clock.advance(chance.choice(["1s", "10s", "1m"]))
            if chance.random() < 0.1:
                bus.converse(sweep(bus.core))
            assert seen.active() == page.active()
            assert seen.list() == page.list()
            wanted = chance.choice([{"tags": "x"}, {"owner": "agent", "status": "active"}, {"type": "reminder"}])
            assert seen.list(limit=3, **wanted) == page.list(limit=3, **wanted)
        for id in ids:
            assert seen.get(id) == page.get(id)


def test_a_view_opened_during_writes_misses_nothing(bus, connect):
    other, chance, ids = connect("other").page(), random.Random(1), list[str]()

    def write():
        with suppress(Conflict, NotFound):
            act(other, chance, ids)

    with in_thread(write):
        for _ in range(5):
            with bus.view() as view:
                view.wait_for(bus.position())
    with ExitStack() as views:
        assert SeenLive(bus.page(), views).list(limit=None) == bus.page().list(limit=None)


def test_writes_during_the_load_of_a_page_are_applied_once(bus, page, monkeypatch):
    story, gone = page.add("observation", "x"), page.add("observation", "gone")
    read_documents = page_loader._read_documents

    def write_meanwhile(*args):
        page.link(story.id, "goal-1")
        page.resolve(gone.id)
        page.clear_resolved([gone.id])
        project(bus)
        documents = yield from read_documents(*args)
        page.link(story.id, "goal-2")
        page.add("observation", "late")
        return documents

    monkeypatch.setattr(page_loader, "_read_documents", write_meanwhile)
    read, cursor = bus.converse(page_loader.read_page(bus.core.log, "main", 0))
    assert list(read.walk([], None)) == page.list()
    assert read.get(story.id).version == 3
    assert cursor.position == page.list()[0].position


def test_a_document_that_a_scan_returns_twice_is_loaded_once(bus, page):
    before = page.add("observation", "x")
    after = page.update(before.id, content="y")
    rows = {one: encode_document(one) for one in (before, after)}
    reading = page_loader._read_documents(PageKeys(keys_of(bus), "main", 1), 0)
    next(reading)
    reading.send([1])
    reading.send([[b"7", [b"id", rows[before], b"id", rows[before]]]])
    reading.send(None)  # the next request was sent ahead
    with pytest.raises(StopIteration) as end:
        reading.send([[b"0", [b"id", rows[after]]]])
    assert [one.content for one in end.value.value] == ["y"]


def test_a_scan_that_a_restart_of_the_engine_cut_short_begins_again(bus, page):
    one, other = (page.add("observation", content) for content in ("one", "other"))
    rows = {each.content: [each.id.encode(), encode_document(each)] for each in (one, other)}
    reading = page_loader._read_documents(PageKeys(keys_of(bus), "main", 1), 0)
    next(reading)
    reading.send([2])
    reading.send([[b"7", rows["one"]]])
    reading.send(None)  # the next request was sent ahead
    reading.send([[b"0", []]])
    reading.send([2])
    with pytest.raises(StopIteration) as end:
        reading.send([[b"0", [*rows["one"], *rows["other"]]]])
    assert {each.content for each in end.value.value} == {"one", "other"}


def test_a_scan_during_which_fields_are_removed_is_done_once(bus, page):
    one = page.add("observation", "one")
    reading = page_loader._read_documents(PageKeys(keys_of(bus), "main", 1), 0)
    next(reading)
    reading.send([2])
    reading.send([[b"0", [one.id.encode(), encode_document(one)]]])
    with pytest.raises(StopIteration) as end:
        reading.send([1])
    assert [each.content for each in end.value.value] == ["one"]


def test_a_page_is_read_again_after_a_failover_meanwhile(bus, page):
    one = page.add("observation", "kept")
    project(bus)
    lost = encode_document(one.model_copy(update={"content": "lost"}))
    replies = {"INFO": b"run_id:before", "HSCAN": [b"0", [one.id.encode(), lost]]}  # each of the first such command

    def around(call, execute):
        first = replies.pop(call.commands[0][0], None)
        return execute() if first is None else [first]

    with interposed(bus, around):
        loaded, _ = bus.converse(page_loader.read_page(bus.core.log, "main", 0))
    assert [each.content for each in loaded.active(None)] == ["kept"]


def test_a_page_is_read_a_few_times_although_each_read_is_interrupted_by_a_failover(bus, page, monkeypatch):
    added = page.add("observation", "one")

    def new_process(shard):
        yield from ()
        return token_hex(8)

    monkeypatch.setattr(page_loader, "run_id", new_process)
    with bus.view() as view:
        assert view.list() == [added]


def test_a_view_reads_its_page_once(bus, page, monkeypatch):
    page.add("observation", "one")
    loads = []

    def counted(log, page, *rest):
        loads.append(page)
        return page_loader.read_page(log, page, *rest)

    monkeypatch.setattr(live_page, "read_page", counted)
    with bus.view():
        assert loads == ["main"]


@pytest.mark.engines(*ONE)
def test_readers_see_whole_batches_only(bus, page, connect, monkeypatch):
    monkeypatch.setattr(reader, "CHUNK", 7)  # so that every read tears a batch
    writer = connect("writer", max_observations=10_000).page()

    def write():
        for one in writer.add_many([NewObservation(type="observation", content="x") for _ in range(10)]):
            assert one

    with bus.view() as view, in_thread(write):
        seen = 0
        while seen < 400:
            seen = len(view.list(limit=None))
            assert seen % 10 == 0


def test_views_end_claims_and_observations_without_an_event(bus, page, clock):
    claimed, expiring = page.add("observation", "claimed", ttl="1h"), page.add("observation", "expiring", ttl="1m")
    page.claim(claimed.id, by="someone", ttl="30s")
    with ExitStack() as views:
        seen = SeenLive(page, views)
        assert seen.get(claimed.id).claim.by == "someone"
        clock.advance("30s")
        assert seen.get(claimed.id).claim is None
        assert contents(seen.active()) == ["expiring", "claimed"]
        clock.advance("30s")
        assert contents(seen.active()) == ["claimed"]
        assert seen.get(expiring.id).reason_code == "expired"


def test_an_idle_view_expires_an_observation(page, view):
    story = page.add("observation", "x", ttl="100ms")
    view.wait_for(story)
    eventually(lambda: view.get(story.id).status == "archived")
    assert view.active() == []


def test_a_view_that_may_not_commit_folds_in_memory(bus, page, monkeypatch):
    def refuse(log, shard):
        yield from ask(shard, "PING")
        raise EngineForbidden("no")

    monkeypatch.setattr(page_loader, "catch_up", refuse)
    page.add("observation", "first")
    project(bus)
    resolved = page.resolve(page.add("observation", "second").id)
    with bus.view() as view:
        assert contents(view.active()) == ["first"]
        assert view.get(resolved.id) == resolved


# -- waiting ---------------------------------------------------------------------------------------------------------


def test_a_write_is_in_the_view_after_wait_for(bus, page, view):
    for n in range(5):
        added = page.add("observation", f"{n}")
        for place in (added.position, added, str(added.position), bus.position(), str(bus.position())):
            view.wait_for(place)
        assert view.get(added.id) == added
    assert view.position == added.position


def test_wait_for_raises_behind_after_its_timeout(page, view):
    added = page.add("observation", "x")
    later = Position(added.ms + 1, added.seq + 1, added.shard)
    view.wait_for(added)
    with pytest.raises(Behind, match=r"the view of page 'main' is at .*, not yet at .*, after 0.02 s"):
        view.wait_for(later, timeout="20ms")
    with pytest.raises(InvalidPosition, match="is not on shard"):
        view.wait_for(Position(1, 1, 9))
    with pytest.raises(InvalidPosition, match="shards, not"):
        view.wait_for("1-1,1-1,1-1")
    for nothing in (None, 5, added.id):
        with pytest.raises(InvalidPosition, match="is not a position"):
            view.wait_for(nothing)


# -- changes ---------------------------------------------------------------------------------------------------------


def test_a_change_has_the_observation_before_and_after_its_event(page, view):
    changes = view.changes()
    added = page.add("observation", "x")
    resolved = page.resolve(added.id)
    page.clear_resolved([added.id])
    first, second, third = (next(changes) for _ in range(3))
    assert (first.before, first.after, first.event.kind) == (None, added, "added")
    assert (second.before, second.after, second.event.kind) == (added, resolved, "status_changed")
    assert (third.before, third.after, third.event.kind) == (resolved, None, "cleared")
    assert not any(change.is_resync for change in (first, second, third))


def test_an_iterator_yields_changes_from_its_creation_on(bus, page, view):
    early = view.changes()
    page.add("observation", "0")
    bus.page("other").add("observation", "elsewhere")
    view.wait_for(bus.position())
    late = view.changes()
    page.add("observation", "1")
    assert [next(early).after.content for _ in range(2)] == ["0", "1"]
    assert next(late).after.content == "1"


def test_a_slow_iterator_of_changes_yields_a_resync(bus, page, view, monkeypatch):
    monkeypatch.setattr(reads, "MAX_BEHIND", 5)
    slow, quick = view.changes(), view.changes()
    for n in range(7):
        page.add("observation", f"{n}")
        assert next(quick).after.content == f"{n}"
    view.wait_for(bus.position())
    missing = next(slow)
    assert missing.is_resync
    assert "changes were not read in time" in missing.reason
    assert next(slow).after.content == "6"


def test_changes_end_when_the_view_closes_or_at_a_stop(bus):
    stop = threading.Event()
    with bus.view() as view, bus.view():
        ended = []
        closing, stopping = view.changes(), view.changes(stop)
        threads = [threading.Thread(target=lambda some=some: ended.append(list(some))) for some in (closing, stopping)]
        for thread in threads:
            thread.start()
        stop.set()
        eventually(lambda: len(ended) == 1)
    for thread in threads:
        thread.join(30)
    assert ended == [[], []]


def test_changes_of_a_closed_view_end_although_another_follows_the_page(bus):
    ended = []
    with bus.view():
        with bus.view() as view:
            changes = view.changes()
        ending = threading.Thread(target=lambda: ended.append(list(changes)))
        ending.start()
        ending.join(30)
        assert ended == [[]]
    ending.join(30)


def test_counting_makes_no_models(bus, page, monkeypatch):
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(20)])
    project(bus)
    with bus.view() as view:
        monkeypatch.setattr(PageInMemory, "as_observation", None)
        assert view.count() == 20
        assert view.count(type="observation", limit=5) == 5
        assert view.count(type="risk_alert") == 0


# -- sharing and closing ---------------------------------------------------------------------------------------------


def test_many_views_of_a_page_fold_an_event_once(bus, page, monkeypatch):
    folded = count_folds(monkeypatch)
    with ExitStack() as stack:
        views = [stack.enter_context(bus.view()) for _ in range(200)]
        added = page.add("observation", "x")
        for view in views:
            view.wait_for(added)
            assert view.active() == [added]
    assert len(folded) == 1


def test_closing_a_view_leaves_other_views_open(bus, page):
    with bus.view() as goes_on:
        with bus.view() as closed:
            pass
        added = page.add("observation", "x")
        goes_on.wait_for(added)
        for read in (closed.active, closed.list, lambda: closed.get(added.id), lambda: closed.wait_for(added)):
            with pytest.raises(ViewClosed, match="this view of page 'main' is not open"):
                read()
        assert not closed.is_live
        feed_of_page = bus.feeds.feed(bus.core.log.shard("main"))
        assert feed_of_page.followers == 1
    assert feed_of_page.followers == 0


def test_a_view_of_a_closed_bus_is_closed(connect):
    bus = connect()
    keeps = connect()
    keeps.page().add("observation", "x")
    with bus.view() as view:
        changes = view.changes()
        bus.close()
        with pytest.raises(BusClosed):
            view.active()
        assert list(changes) == []
        with pytest.raises(BusClosed), bus.view():
            pass


def test_wait_for_with_timeout_never_has_no_limit(connect):
    bus = connect(fresh_timeout="50ms")
    page = bus.page()
    with bus.view() as view:
        now = page.add("observation", "a").position
        later = threading.Timer(0.3, page.add, ("observation", "b"))
        later.start()
        view.wait_for(now._replace(seq=now.seq + 1), timeout="never")
        later.join()
        assert len(view.active()) == 2


def test_a_view_that_starts_while_its_bus_closes_raises_bus_closed(connect, monkeypatch):
    bus = connect()
    start = live_page.LivePage.start

    def closes_the_bus(live):
        yield from start(live)
        bus.close()

    monkeypatch.setattr(live_page.LivePage, "start", closes_the_bus)
    with pytest.raises(BusClosed):
        bus.view().__enter__()


# -- changes of the log ----------------------------------------------------------------------------------------------


def next_resync(changes):
    """Return the reason of the next resync."""
    return next(change.reason for change in changes if change.is_resync)


def test_a_view_rereads_a_flushed_and_rewritten_log(bus, page, view):
    view.wait_for([page.add("observation", f"{n}") for n in range(3)][-1])
    changes = view.changes()
    forget(bus)
    page.add("risk_alert", "new")
    assert "from the start" in next_resync(changes)
    eventually(lambda: contents(view.active()) == ["new"])  # it may have restarted before the addition
    later = page.add("observation", "later")
    view.wait_for(later)
    assert contents(view.active()) == ["new", "later"]
    eventually(lambda: view.is_live)


def test_a_view_of_a_flushed_log_is_empty(bus, page, view):
    view.wait_for(page.add("observation", "x"))
    forget(bus)
    eventually(lambda: view.active() == [])
    view.wait_for(page.add("observation", "y"))
    assert contents(view.active()) == ["y"]


def test_a_view_rereads_a_log_replaced_during_its_start(bus, page, monkeypatch):
    page.add("observation", "old")

    def read_and_replace(*given):
        monkeypatch.setattr(live_page, "read_page", page_loader.read_page)
        read = yield from page_loader.read_page(*given)
        forget(bus)
        page.add("observation", "new")
        return read

    monkeypatch.setattr(live_page, "read_page", read_and_replace)
    with bus.view() as view:
        assert contents(view.active()) == ["new"]


@pytest.mark.damages_the_log
def test_a_view_reloads_its_page_after_a_trim_ahead_of_it(bus, page, view):
    view.wait_for(page.add("observation", "first"))
    changes = view.changes()
    with bus.feeds.feed(bus.core.log.shard("main")).lock:  # the reader of the log gets no further than one chunk
        for _ in range(2):  # the first trim may remove only that chunk
            for n in range(20):
                page.add("observation", f"{n}")
            project(bus)
            send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
    assert "the log was trimmed" in next_resync(changes)
    view.wait_for(page.add("observation", "last"))
    assert view.list(limit=None) == page.list(limit=None)


@pytest.mark.damages_the_log
def test_a_trim_behind_a_view_changes_nothing(bus, page, view):
    for n in range(3):
        view.wait_for(page.add("observation", f"{n}"))
    changes = view.changes()
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
    view.wait_for(page.add("observation", "next"))
    assert next(changes).after.content == "next"
    assert contents(view.active()) == ["next", "2", "1", "0"]


@pytest.mark.damages_the_log
def test_a_gap_in_the_log_causes_a_resync(bus, page, view):
    story = page.add("observation", "x")
    view.wait_for(story)
    changes, keys = view.changes(), keys_of(bus)
    id = f"{story.ms}-{story.seq + 2}"
    entry = {
        "id": "behind", "subject": story.id, "page": "main", "kind": "linked", "type": "observation", "batch": "1/1",
        "prev": story.position.stream_id, "event": '{"v":1,"by":"x","action":"goal-1"}',
    }  # fmt: skip
    send(bus, "XADD", keys.log, id, *(part for field in entry.items() for part in field))
    send(bus, "SET", keys.tail, f"{id}|behind")
    assert f"the log has lost event {story.seq + 1}, before" in next_resync(changes)
    assert view.get(story.id) == page.get(story.id)
    assert view.get(story.id).links == ["goal-1"]


@pytest.mark.damages_the_log
def test_an_invalid_event_marks_its_observation_damaged(bus, page, view):
    story = page.add("observation", "x")
    changes = view.changes()
    view.wait_for(story)
    for kind, event in (("updated", "{{{"), ("linked", '{"v":1,"by":"x"}'), ("teleported", '{"v":1,"by":"x"}')):
        raw_append(bus, subject=story.id, kind=kind, event=event)
        view.wait_for(bus.position())
        assert view.get(story.id) == page.get(story.id)
        assert view.get(story.id).damaged
    change = next(change for change in changes if change.after.damaged)
    assert change.before.id == story.id
    assert change.event is None
    assert "not JSON" in change.reason
    assert not change.is_resync


@pytest.mark.damages_the_log
def test_an_event_of_newer_code_stops_the_view(bus, page, view):
    story = page.add("observation", "x")
    view.wait_for(story)
    changes = view.changes()
    raw_append(bus, subject=story.id, kind="updated", event='{"v":999}')
    eventually(lambda: isinstance(view.trouble, CodeTooOld))
    for read in (
        view.active,
        view.list,
        lambda: view.get(story.id),
        lambda: view.wait_for(story),
        lambda: next(changes),
    ):
        with pytest.raises(CodeTooOld, match="upgrade scratchbus"):
            read()
    with pytest.raises(CodeTooOld), bus.view("other" if bus.core.log.shards == 1 else "main") as another:
        another.active()


def test_every_read_of_a_failed_view_raises_its_error(bus, page, view, monkeypatch, capfd):
    story = page.add("observation", "story")
    view.wait_for(story)
    changes = view.changes()

    def broken(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr(live_page, "fold_item", broken)
    page.add("observation", "later")
    eventually(lambda: view.trouble)
    reads = view.active, view.list, lambda: view.get(story.id), lambda: view.wait_for(story), lambda: next(changes)
    for read in reads:
        with pytest.raises(LogError, match=r"page 'main' stopped at .*: RuntimeError: out of order; close all views"):
            read()
    assert capfd.readouterr().err.count("a view stopped") == 1
    monkeypatch.undo()
    view.close()
    with bus.view() as another:
        assert contents(another.active()) == ["later", "story"]


def test_reads_raise_the_error_of_a_failed_restart(bus, page, view, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of order")

    view.wait_for(page.add("observation", "old"))
    eventually(lambda: view.is_live)
    monkeypatch.setattr(live_page, "replay", broken)
    forget(bus)
    page.add("observation", "new")
    eventually(lambda: view.trouble)
    with pytest.raises(LogError, match="RuntimeError: out of order"):
        view.active()


def test_a_view_recovers_with_its_reader_of_the_log(page, view, monkeypatch):
    view.wait_for(page.add("observation", "before"))

    def broken(*_):
        raise RuntimeError("out of order")

    with monkeypatch.context() as while_broken:
        while_broken.setattr(feed, "read", broken)
        eventually(lambda: "RuntimeError: out of order" in str(view.trouble))
    view.wait_for(page.add("observation", "after"))
    assert contents(view.active()) == ["after", "before"]
    eventually(lambda: view.trouble is None)


# -- failures of the engine ------------------------------------------------------------------------------------------


@pytest.fixture
def own_engine(short_directory):
    directory = short_directory / f"view-{token_hex(3)}"
    yield directory
    server.stop(directory)


@pytest.mark.real
def test_a_view_survives_a_killed_engine(own_engine):
    with Bus.connect(f"embedded:{own_engine}", source="tester", appendfsync="always") as bus, bus.view() as view:
        first = bus.page().add("observation", "first")
        view.wait_for(first)
        os.kill(server.find_running(own_engine).pid, signal.SIGKILL)
        assert contents(view.active()) == ["first"]
        second = bus.page().add("observation", "second")
        view.wait_for(second)
        assert contents(view.active()) == ["second", "first"]
        eventually(lambda: view.is_live)


@pytest.mark.real
def test_a_view_of_a_stopped_engine_answers_from_memory(own_engine):
    with Bus.connect(f"embedded:{own_engine}", source="tester") as bus, bus.view() as view:
        view.wait_for(bus.page().add("observation", "first"))
        server.stop(own_engine)
        eventually(lambda: view.trouble)
        assert not view.is_live
        assert contents(view.active()) == ["first"]
        with pytest.raises(Behind, match="was stopped; start it"):
            view.wait_for(Position(view.position.ms, view.position.seq + 1), timeout="20ms")
        server.ensure_running(own_engine)
        view.wait_for(bus.page().add("observation", "second"))
        assert contents(view.active()) == ["second", "first"]
