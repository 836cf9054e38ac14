"""Rebuilds: state is folded beside the live one and switched atomically; readers see no difference."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from scratchbus import NewObservation, because
from scratchbus.engine.steps import Interrupted, Pause
from scratchbus.errors import CodeTooOld, LogGap, PositionLost, RebuildHeld, StateTooOld
from scratchbus.eventlog.checkpoint import Checkpoint, read_checkpoint
from scratchbus.projections import scratch_page
from scratchbus.readmodel import rebuild
from scratchbus.readmodel import rebuild_lease as lease
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.readmodel.projector import run_projector
from scratchbus.readmodel.rebuild import Pace, Rebuilt
from scratchbus.readmodel.relations import open_relations
from scratchbus.scheduling.expiry import sweep
from scratchbus.views import page_loader
from tests.engines import ONE
from tests.faults.interposing import interposed
from tests.inspection import archive, await_tick, documents, keys_of, project, raw_append, send
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ONE)


def fill(page, count=30):
    """Add observations; resolve, clear, claim and link some, and add one that rests on another."""
    added = page.add_many(
        [
            NewObservation(type="observation", content=f"{n}", tags=[f"t{n % 3}"], owner=f"o{n % 2}")
            for n in range(count)
        ]
    )
    for one in added[::3]:
        page.resolve(one.id)
    page.clear_resolved([added[0].id])
    page.claim(added[1].id)
    with because(page.history(added[2].id)[0]):
        page.link(page.add("observation", "rests", evidence=[added[2].id], ttl="1h").id, "goal")
    return added


def builds(bus):
    """Return the numbers of all builds that have keys."""
    prefix = f"{{{bus.core.log.bus}:"
    names = [key.decode().partition("}:p")[2] for key in send(bus, "KEYS", f"{prefix}*")]
    return {int(name.partition(":")[0]) for name in names if name[:1].isdigit()}


def build_of(bus, page="main"):
    return bus.converse(read_checkpoint(keys_of(bus, page))).build


def test_a_rebuild_switches_to_a_build_with_equal_state(bus, page):
    fill(page)
    project(bus)
    before = documents(bus)
    done = bus.rebuild()
    assert done.events == sum(place.seq for place in bus.position().shards)
    assert documents(bus) == before
    assert (build_of(bus), builds(bus) - {1}) == (2, {2})
    assert page.list(tags=["t1"], owner="o0", limit=None)


def test_rebuilds_can_be_repeated_and_work_on_an_empty_log(bus, page):
    assert bus.rebuild().events == 0
    page.add("observation", "one")
    for build in range(2, 13):
        bus.rebuild()
        assert build_of(bus) == build
    assert [one.content for one in page.list()] == ["one"]


def test_reads_and_writes_during_a_rebuild_see_no_hole(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild.CHUNK", 7)
    fill(page)
    sizes = [len(page.list(limit=None))]

    def meanwhile(done, total):
        assert 0 <= done <= total
        if len(sizes) < 8:
            page.add("observation", "meanwhile", ttl="1ms")
        project(bus)
        sizes.append(len(page.list(limit=None)))
        assert len(page.list(type="observation", limit=None)) == sizes[-1]
        assert page.trace("goal").observations

    bus.rebuild(meanwhile)
    bus.converse(sweep(bus.core))
    assert sizes == sorted(sizes)
    assert page.list(status="archived")


def test_a_paginated_list_continues_in_the_new_build(bus, page):
    fill(page, 60)
    project(bus)
    first = page.list(limit=5)
    bus.rebuild()
    rest = page.list(limit=None, after=first[-1])
    assert [one.id for one in [*first, *rest]] == [one.id for one in page.list(limit=None)]


def test_relations_opened_before_a_rebuild_read_the_new_build(bus, page):
    old = page.add("observation", "old")
    new = page.add("observation", "new", evidence=[old.id])
    project(bus)
    relations = bus.converse(open_relations(bus.core.log))
    bus.rebuild()
    found = bus.converse(relations.leading_from("evidence", [old.id]))
    assert [end for _, end in found[old.id]] == [f"{new.id}@main"]


def test_an_event_iterator_of_a_page_continues_over_a_rebuild(bus, page):
    fill(page)
    project(bus)
    events = bus.events(pages=["main"])
    first = next(events)
    bus.rebuild()
    assert [first.seq, *(event.seq for event in events)] == [event.seq for event in bus.events(pages=["main"])]


def test_a_view_continues_over_a_rebuild(bus, page):
    fill(page)
    with bus.view() as view:
        bus.rebuild()
        late = page.add("observation", "late")
        view.wait_for(late.position)
        assert view.list(limit=None) == page.list(limit=None)


def test_a_view_that_opens_during_a_rebuild_misses_nothing(bus, page, monkeypatch):
    fill(page)
    read_documents, rebuilds = page_loader._read_documents, list[Rebuilt]()

    def read_after_a_rebuild(*arguments):
        if not rebuilds:
            rebuilds.extend(bus.rebuild())
        return (yield from read_documents(*arguments))

    monkeypatch.setattr(page_loader, "_read_documents", read_after_a_rebuild)
    with bus.view() as view:
        assert rebuilds
        assert view.list(limit=None) == page.list(limit=None)


def test_the_expirer_finds_due_observations_in_the_new_build(bus, page):
    page.add("observation", "short", ttl="1ms")
    bus.rebuild()
    eventually(lambda: bus.converse(sweep(bus.core)) == 1)


def test_a_full_page_expires_before_it_displaces_after_a_rebuild(connect):
    with connect(max_observations=1_001) as bus:
        page = bus.page()
        page.add("risk_alert", "short", ttl="1ms")
        page.add_many([NewObservation(type="reminder", content=f"{n}") for n in range(1_000)])
        bus.rebuild()
        eventually(lambda: page.list(type="risk_alert")[0].status == "archived")
        page.add("reminder", "one more")
        assert {one.reason_code for one in page.list(status="archived")} == {"expired"}


def test_the_next_rebuild_cleans_up_after_a_killed_one(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild.CHUNK", 7)
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 300)
    fill(page)
    project(bus)
    before = documents(bus)

    def die(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bus.rebuild(die)
    assert documents(bus) == before
    assert {1, 2} <= builds(bus)
    bus.rebuild()
    assert documents(bus) == before
    assert build_of(bus) == 3
    assert 2 not in builds(bus)


def test_leftovers_are_deleted_although_a_restart_of_the_engine_cut_the_scan_short(bus, page):
    page.add("observation", "one")
    keys = keys_of(bus)
    killed = bus.converse(lease.take(keys, "killed"))
    bus.converse(fold_once(bus.core.log, keys.shard, build=killed.build))
    bus.converse(killed.leave())
    mine = bus.converse(lease.take(keys, "me"))
    replies = {"INFO": b"run_id:before", "SCAN": [b"0", []]}  # each of the first such command

    def around(call, execute):
        first = replies.pop(call.commands[0][0], None)
        return execute() if first is None else [first]

    with interposed(bus, around):
        bus.converse(lease.clear(mine, kept=(mine.live,)))
    assert not replies
    assert killed.build not in builds(bus)
    bus.converse(mine.leave())


def test_a_second_rebuild_is_refused_while_the_first_is_alive(bus, page):
    page.add("observation", "one")
    keys = keys_of(bus)
    mine = bus.converse(lease.take(keys, "first"))
    theirs = lease.take(keys, "second")
    (reply,) = bus._engine.execute(next(theirs))
    assert isinstance(theirs.send([reply]), Pause)
    await_tick(bus)
    bus.converse(mine.keep())
    (reply,) = bus._engine.execute(theirs.send(None))
    with pytest.raises(RebuildHeld, match="first is rebuilding the state; wait"):
        theirs.send([reply])
    bus.converse(mine.leave())
    bus.rebuild()


def test_a_lease_ends_in_time_although_the_clock_was_set_back(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 300)
    page.add("observation", "one")
    keys = keys_of(bus)
    bus.converse(lease.take(keys, "killed"))
    hour_later = int(send(bus, "HGET", keys.rebuilding, "until")) + 3_600_000
    send(bus, "HSET", keys.rebuilding, "until", hour_later)
    theirs = lease.take(keys, "second")
    (reply,) = bus._engine.execute(next(theirs))
    assert isinstance(theirs.send([reply]), Pause)
    assert int(send(bus, "HGET", keys.rebuilding, "until")) < hour_later - 3_500_000
    bus.rebuild()


def test_a_rebuild_that_lost_its_lease_changes_nothing(bus, page, connect, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild.CHUNK", 7)
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 300)
    fill(page)
    project(bus)
    before, others = documents(bus), list[Rebuilt]()

    def stall(done, total):
        if done and not others:
            others.append(bus.rebuild())  # waits until the first lease ends

    with pytest.raises(RebuildHeld):
        bus.rebuild(stall)
    assert documents(bus) == before
    assert build_of(bus) == 3
    bus.rebuild()
    assert (documents(bus), build_of(bus), builds(bus) - {1}) == (before, 4, {4})


def test_a_rebuild_that_lost_its_lease_names_the_next_one(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 1)
    page.add("observation", "one")
    keys = keys_of(bus)
    mine = bus.converse(lease.take(keys, "first"))
    await_tick(bus)
    bus.converse(lease.take(keys, "second"))
    with pytest.raises(RebuildHeld, match="second is rebuilding the state; wait"):
        bus.converse(mine.keep())


def test_a_lost_reply_does_not_keep_a_rebuild_from_its_own_lease(bus, page):
    page.add("observation", "one")
    taking = lease.take(keys_of(bus), "me")
    request = next(taking)
    bus._engine.execute(request)  # its reply is lost, and it is sent again
    with pytest.raises(StopIteration) as taken:
        taking.send(bus._engine.execute(request))
    bus.converse(taken.value.value.keep())


def test_a_finished_rebuild_leaves_only_the_number_of_its_build(bus, page):
    page.add("observation", "one")
    bus.rebuild()
    keys = keys_of(bus)
    assert send(bus, "HGETALL", keys.rebuilding) == [b"build", b"2"]
    assert not send(bus, "EXISTS", keys.page("", 2).checkpoint)


def test_a_rebuild_after_its_lease_was_deleted_takes_a_new_number(bus, page):
    page.add("observation", "one")
    for _ in range(2):
        bus.rebuild()
    send(bus, "DEL", keys_of(bus).rebuilding)
    bus.rebuild()
    assert (build_of(bus), builds(bus) - {1}) == (4, {4})
    assert page.list(stale_ok=True)


def test_the_switch_waits_until_the_new_build_has_caught_up(bus, page):
    page.add("observation", "one")
    keys = keys_of(bus)
    mine = bus.converse(lease.take(keys, "me"))
    bus.converse(fold_once(bus.core.log, keys.shard, build=mine.build))
    page.add("observation", "two")
    project(bus)
    assert bus.converse(mine.switch()) is False
    bus.converse(fold_once(bus.core.log, keys.shard, build=mine.build))
    assert bus.converse(mine.switch()) is True
    assert len(page.list(stale_ok=True)) == 2
    bus.converse(lease.clear(mine, kept=()))
    assert builds(bus) == {mine.build}


def without_its_write(conversation):
    """Run a conversation whose first request is lost on the way to the engine."""
    next(conversation)
    request = conversation.throw(Interrupted())
    while True:
        reply = yield request
        try:
            request = conversation.send(reply)
        except StopIteration as ended:
            return ended.value


def test_a_switch_that_the_engine_did_not_get_is_reported_as_such(bus, page):
    page.add("observation", "one")
    project(bus)
    mine = bus.converse(lease.take(keys_of(bus), "me"))
    while mine.build < scratch_page.FORM:  # the checkpoint has this number too
        bus.converse(mine.leave())
        mine = bus.converse(lease.take(keys_of(bus), "me"))
    assert bus.converse(without_its_write(mine.switch())) is False
    bus.converse(fold_once(bus.core.log, keys_of(bus).shard, build=mine.build))
    assert bus.converse(mine.switch()) is True
    bus.converse(lease.clear(mine, kept=()))
    assert builds(bus) == {mine.build}


def make_newer(patch):
    """Patch the code to store state in newer forms."""
    for name in ("FORM", "PAGED", "IN_TABLES"):
        patch.setattr(scratch_page, name, getattr(scratch_page, name) + 3)
    Checkpoint.parse.cache_clear()  # as in a new process


def test_older_state_asks_for_a_rebuild_and_newer_state_for_an_upgrade(bus, page, monkeypatch):
    page.add("observation", "one")
    project(bus)
    with monkeypatch.context() as newer:
        make_newer(newer)
        with pytest.raises(StateTooOld, match="run `scratchbus rebuild`"):
            page.list()
        bus.rebuild()
        assert [one.content for one in page.list()] == ["one"]
    Checkpoint.parse.cache_clear()
    with pytest.raises(CodeTooOld, match="upgrade"):
        page.list()
    bus.rebuild()  # back to the older form
    assert [one.content for one in page.list()] == ["one"]


@pytest.fixture
def newer_code(bus, page, monkeypatch):
    """State in an older form than the code's."""
    page.add("observation", "one")
    project(bus)
    with monkeypatch.context() as newer:
        make_newer(newer)
        yield
    Checkpoint.parse.cache_clear()
    with suppress(PositionLost):
        bus.rebuild()  # back to the older form


def test_connecting_rebuilds_older_state(newer_code, connect, capfd):
    assert [one.content for one in connect().page("main").list()] == ["one"]
    assert "an older version stored the state; rebuilding it from the log" in capfd.readouterr().err


def test_connecting_waits_for_a_running_rebuild_of_older_state(newer_code, bus, connect):
    other = bus.converse(lease.take(keys_of(bus), "another"))
    with ThreadPoolExecutor(1) as connecting:
        coming = connecting.submit(connect)
        with suppress(TimeoutError):
            coming.result(0.5)
        assert not coming.done()
        bus.converse(other.leave())
        assert [one.content for one in coming.result().page("main").list()] == ["one"]


def test_waiting_for_a_running_rebuild_of_older_state_is_logged_once(newer_code, bus, monkeypatch, capfd):
    held, real_rebuild = 3, rebuild.rebuild

    def hold_at_first(*arguments):
        nonlocal held
        held -= 1
        if held >= 0:
            raise RebuildHeld(0, "another")
        return (yield from real_rebuild(*arguments))

    monkeypatch.setattr(rebuild, "rebuild", hold_at_first)
    monkeypatch.setattr(rebuild, "_WAIT", 0)
    bus.converse(rebuild.renew(bus.core))
    assert held == -1
    assert capfd.readouterr().err.count("rebuilding it from the log") == 1


def test_a_projector_rebuilds_older_state(newer_code, bus, page):
    stop = threading.Event()
    with ThreadPoolExecutor(1) as projecting:
        done = projecting.submit(run_projector, bus, stop)
        eventually(lambda: done.done() or not is_too_old(page))
        stop.set()
        done.result()
    assert [one.content for one in page.list()] == ["one"]


def is_too_old(page):
    try:
        page.list()
    except StateTooOld:
        return True
    return False


@pytest.mark.damages_the_log
def test_reads_say_so_when_older_state_cannot_be_rebuilt(newer_code, bus, page, connect):
    page.add("observation", "two")
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
    with pytest.raises(StateTooOld, match="run `scratchbus rebuild`"):
        connect().page("main").list()


def test_connecting_works_when_older_state_cannot_be_rebuilt_from_the_archive(connect, monkeypatch, tmp_path):
    bus = connect(archive_url=tmp_path / "archive", retain="1ms", retain_events=1)
    for content in "one", "two", "three":
        bus.page("main").add("observation", content)
    project(bus)
    archive(bus)
    for segment in (tmp_path / "archive").rglob("*.jsonl.zst"):
        segment.write_bytes(b"damaged")
    with monkeypatch.context() as newer:
        make_newer(newer)
        page = connect(archive_url=tmp_path / "archive").page("main")
        page.add("observation", "four")
        with pytest.raises(StateTooOld, match="run `scratchbus rebuild`"):
            page.list()
    Checkpoint.parse.cache_clear()


@pytest.mark.parametrize("event_id", ["e1", "mine|1|a"])
def test_state_without_a_form_number_asks_for_a_rebuild(bus, page, event_id):
    page.add("observation", "one", event_id=event_id)
    project(bus)
    checkpoint = keys_of(bus).live
    position, rest = send(bus, "GET", checkpoint).decode().split("|", 1)
    *_, origin, token = rest.split("|")
    send(bus, "SET", checkpoint, f"{position}|{event_id}|1|{origin}|{token}")
    for ask in (page.list, bus.status, lambda: project(bus), bus.view().__enter__):
        with pytest.raises(StateTooOld, match="run `scratchbus rebuild`"):
            ask()
    bus.rebuild()
    assert [one.content for one in page.list()] == ["one"]


@pytest.mark.damages_the_log
def test_a_rebuild_counts_rejected_events_once(bus, page, monkeypatch):
    page.add("observation", "one")
    raw_append(bus, kind="linked", event="garbage")
    project(bus)
    shard = bus.core.log.shard("main")
    bus.rebuild()
    assert bus.status().shards[shard].rejected == 1


@pytest.mark.damages_the_log
def test_newer_events_stop_a_rebuild_and_leave_the_live_state(bus, page):
    page.add("observation", "one")
    project(bus)
    raw_append(bus, kind="added", event='{"v":3,"by":"x"}')
    with pytest.raises(CodeTooOld):
        bus.rebuild()
    assert build_of(bus) == 1
    with pytest.raises(CodeTooOld):  # and not RebuildHeld
        bus.rebuild()


def test_a_rebuild_rests_less_when_others_publish_faster_than_it_folds():
    pace = Pace(remaining=1_000, since=0)
    assert pace.seconds(1, 0.01, 990, published=0) == 0
    assert pace.seconds(2, 0.01, 990, published=10) == pytest.approx(0.09)
    assert pace.seconds(3, 10, 990, published=10) == 1
    rests = [pace.seconds(now, 0.01, 990, published=400) for now in range(11, 90, 11)]
    assert rests == sorted(rests, reverse=True)
    assert rests[-1] < 0.001
    assert [pace.seconds(100 + 11 * n, 0.01, 9000 // 2**n, 10) for n in range(12)][-1] == pytest.approx(0.09)


def test_a_rebuild_rests_only_while_others_publish(bus, page, monkeypatch):
    rests = []

    def rest(seconds):
        rests.append(seconds)
        return Pause(0)

    monkeypatch.setattr("scratchbus.readmodel.rebuild.CHUNK", 7)
    monkeypatch.setattr("scratchbus.readmodel.rebuild.Pause", rest)
    fill(page)
    bus.rebuild()
    assert rests
    assert not any(rests)
    rests.clear()
    bus.rebuild(lambda done, end: page.add("observation", "meanwhile") if done < end and len(rests) < 8 else None)
    assert all(rests[1:5])


@pytest.mark.damages_the_log
def test_a_rebuild_of_a_log_without_its_end_raises_log_gap(bus, page, monkeypatch):
    """`XADD` with `MAXLEN` can remove the end, and every client that appends may send it."""
    monkeypatch.setattr("scratchbus.readmodel.rebuild._TERM", 0.2)
    page.add("observation", "one")
    project(bus)
    send(bus, "XADD", keys_of(bus).log, "MAXLEN", "1", "9999999999999-0", "colour", "red")
    with pytest.raises(LogGap, match="restore the engine"):
        bus.rebuild()
    assert build_of(bus) == 1


@pytest.mark.damages_the_log
def test_a_rebuild_keeps_state_of_lost_events_unless_over_gaps(bus, page):
    stories = [page.add("observation", f"{n}") for n in range(5)]
    page.resolve(stories[3].id)
    project(bus)
    before = documents(bus)
    send(bus, "XDEL", keys_of(bus).log, stories[1].position.stream_id, stories[2].position.stream_id)
    with pytest.raises(LogGap, match=rf"lost 2 of the events before {stories[3].position}.*backup, or .* --over-gaps"):
        bus.rebuild()
    assert (build_of(bus), documents(bus)) == (1, before)
    bus.rebuild(over_gaps=True)
    assert [one.content for one in page.list()] == ["4", "3", "0"]
    bus.rebuild()  # nothing else is missing
    send(bus, "XDEL", keys_of(bus).log, stories[3].position.stream_id)
    with pytest.raises(LogGap, match="lost 1 of the events"):
        bus.rebuild()


@pytest.mark.damages_the_log
def test_a_gap_across_the_checkpoint_stops_a_rebuild(bus, page):
    stories = [page.add("observation", f"{n}") for n in range(3)]
    project(bus)
    stories += [page.add("observation", f"{n}") for n in (3, 4)]
    before = documents(bus)
    send(bus, "XDEL", keys_of(bus).log, *(each.position.stream_id for each in stories[1:4]))
    with pytest.raises(LogGap, match=rf"lost 2 of the events before {stories[4].position}"):
        bus.rebuild()
    assert (build_of(bus), documents(bus)) == (1, before)
    bus.rebuild(over_gaps=True)
    assert [one.content for one in page.list()] == ["4", "0"]


@pytest.mark.damages_the_log
def test_events_lost_before_they_were_folded_do_not_stop_a_rebuild(bus, page):
    stories = [page.add("observation", f"{n}") for n in range(3)]
    send(bus, "XDEL", keys_of(bus).log, stories[1].position.stream_id)
    bus.rebuild()
    assert [one.content for one in page.list()] == ["2", "0"]
    assert sum(shard.missing for shard in bus.status().shards) == 1


@pytest.mark.damages_the_log
def test_a_rebuild_passes_a_known_gap_next_to_erased_events(bus, page):
    stories = [page.add("observation", f"{n}") for n in range(5)]
    send(bus, "XDEL", keys_of(bus).log, stories[1].position.stream_id)
    project(bus)
    for story in stories[2:4]:
        page.erase(story.id, reason="asked for")
    bus.rebuild()
    assert [one.content for one in page.list()] == ["4", "0"]
    send(bus, "XDEL", keys_of(bus).log, stories[4].position.stream_id)
    with pytest.raises(LogGap, match="lost 1 of the events"):
        bus.rebuild()
