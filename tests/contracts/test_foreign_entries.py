"""An entry added to the log by hand, after its tail: readers stop before it, and writers raise LogBlocked.

Anyone who may append events may also `XADD` with any stream id, and Redis accepts no smaller id afterwards.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from datetime import UTC, datetime

import pytest

from scratchbus import AsyncBus, NewObservation
from scratchbus.archive.export import line_of
from scratchbus.engine.steps import ask
from scratchbus.errors import LogBlocked, LogError
from scratchbus.eventlog.keys import PageKeys
from tests.contracts.test_huge_numbers import read_everything
from tests.engines import ALL, ONE
from tests.inspection import all_events, archive, assert_sound, keys_of, log_length, now_ms, project, send, settle
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.engines(*ONE)

GENERATED = "*"
"""Let Redis generate the id, which later events can still exceed."""

HOUR_MS = 3_600_000

IDS = {
    "made by Redis": lambda bus: GENERATED,
    "the next number": lambda bus: _after_tail(bus, 1),
    "another number of this millisecond": lambda bus: _after_tail(bus, 100),
    "in an hour": lambda bus: f"{now_ms(bus) + HOUR_MS}-0",
    "in an hour, with a number": lambda bus: f"{now_ms(bus) + HOUR_MS}-7",
    "beyond the calendar": lambda bus: "9999999999999-0",
    "beyond exact floats": lambda bus: f"{2**53}-0",
    "beyond valid positions": lambda bus: "18446744073709551614-5",
    "the largest id": lambda bus: f"{2**64 - 1}-{2**64 - 1}",
}

FIELDS = {
    "unknown fields": ("colour", "red"),
    "a complete event": (
        "id", "by-hand", "subject", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "page", "main", "kind", "added",
        "type", "observation", "batch", "1/1", "prev", "", "event",
        '{"v":2,"by":"x","content":"forged","status":"active","status_class":"open","priority":5}',
    ),
    "the first of a batch": ("id", "x", "page", "main", "kind", "linked", "batch", "1/1000", "event", "{}"),
    "a newer schema": ("id", "x", "page", "main", "kind", "linked", "batch", "1/1", "event", '{"v":999}'),
}  # fmt: skip


def _after_tail(bus, ahead):
    ms, seq = send(bus, "GET", keys_of(bus).tail).partition(b"|")[0].split(b"-")
    return f"{int(ms)}-{int(seq) + ahead}"


def add_by_hand(bus, id=GENERATED, fields=FIELDS["unknown fields"]):
    """Add an entry after the tail with `XADD`; return its stream id."""
    return send(bus, "XADD", keys_of(bus).log, id, *fields).decode()


@pytest.fixture
def observation(page):
    return page.add("observation", "story", tags=["t"])


@pytest.mark.damages_the_log
@pytest.mark.parametrize(
    ("id", "fields"),
    [
        *(pytest.param(id, FIELDS["a complete event"], id=name) for name, id in IDS.items()),
        *(pytest.param(IDS["made by Redis"], fields, id=name) for name, fields in FIELDS.items()),
    ],
)
def test_readers_stop_before_a_foreign_entry(bus, page, observation, id, fields):
    other = page.add("observation", "other")
    before, end = list(bus.events()), bus.position()
    settle(bus)
    foreign = add_by_hand(bus, id(bus), fields)
    for _ in range(2):
        assert [each.id for each in read_everything(bus, page)] == [other.id, observation.id]
        assert list(bus.events()) == list(bus.events(pages="main")) == before
        assert list(bus.events(after=end)) == list(bus.events(after=other.position)) == []
        assert [event.subject for event in bus.events(after=observation.position)] == [other.id]
        assert bus.position() == end
        assert len(page.list(stale_ok=True)) in (0, 2)
        assert len(page.as_of(datetime.fromtimestamp(now_ms(bus) / 1000, UTC)).list()) == 2
        (shard,) = [each for each in bus.status().shards if each.shard == keys_of(bus).shard]
        assert (shard.foreign, shard.events, shard.missing, shard.rejected) == (1, 2, 0, 0)
        found = bus.verify().findings
        assert [(each.kind, each.where) for each in found] == [("foreign", f"{keys_of(bus).log} {foreign}")]
        project(bus)
        assert bus.status().shards[keys_of(bus).shard].lag == 0
    bus.rebuild()
    assert [each.id for each in read_everything(bus, page)] == [other.id, observation.id]


WRITES = {
    "an addition": lambda bus, page, observation: page.add("observation", "x"),
    "an addition with a key": lambda bus, page, observation: page.add(
        "observation", "x", dedupe_key="k", event_id="mine"
    ),
    "a batch": lambda bus, page, observation: page.add_many([NewObservation(type="observation", content="x")] * 3),
    "a change": lambda bus, page, observation: page.update(observation.id, content="x"),
    "a transition": lambda bus, page, observation: page.resolve(observation.id),
    "a claim": lambda bus, page, observation: page.claim(observation.id),
    "an erasure": lambda bus, page, observation: page.erase(observation.id, reason="x"),
    "a refutation": lambda bus, page, observation: page.refute(observation.id, reason="x"),
    "an archiving": lambda bus, page, observation: page.archive(observation.id),
}


@pytest.mark.engines(*ALL)
@pytest.mark.parametrize("was_deleted", [False, True], ids=["present", "deleted"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_blocked_write_names_the_entry_and_the_repair_command(bus, page, observation, write, was_deleted):
    project(bus)
    before, tail = all_events(bus), send(bus, "GET", keys_of(bus).tail)
    foreign = add_by_hand(bus, "18446744073709551614-5")
    if was_deleted:
        send(bus, "XDEL", keys_of(bus).log, foreign)
    for _ in range(2):
        with pytest.raises(LogBlocked, match="`scratchbus repair`") as raised:
            write(bus, page, observation)
        assert (raised.value.shard, raised.value.stream_id) == (keys_of(bus).shard, foreign)
        assert foreign in str(raised.value)
        assert raised.value.event_id
    assert isinstance(raised.value, LogError)
    assert send(bus, "GET", keys_of(bus).tail) == tail
    assert page.list() == [observation]
    bus.repair()
    assert all_events(bus) == before
    write(bus, page, observation)
    assert_sound(bus)


@pytest.mark.engines(*ALL)
@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_repair_removes_and_returns_the_entry(bus, page, observation, id):
    settle(bus)
    foreign = add_by_hand(bus, id(bus))
    with pytest.raises(LogBlocked):
        page.add("observation", "x")
    (removed,) = bus.repair()
    assert (removed.shard, removed.stream_id, removed.fields) == (keys_of(bus).shard, foreign, {"colour": "red"})
    assert bus.repair() == []
    later = page.add("observation", "later")
    assert [each.id for each in page.list()] == [later.id, observation.id]
    assert bus.verify().is_sound
    assert [each.foreign for each in bus.status().shards] == [0] * bus.core.log.shards


@pytest.mark.engines(*ALL)
def test_log_without_events_can_be_repaired(bus, page):
    foreign = add_by_hand(bus, "9999999999999-0")
    assert page.list() == list(bus.events()) == []
    with pytest.raises(LogBlocked):
        page.add("observation", "x")
    assert [each.stream_id for each in bus.repair()] == [foreign]
    added = page.add("observation", "x")
    assert page.list() == [added]


def test_repair_of_a_long_log_removes_many_entries(connect):
    bus = connect(max_observations=5_000)
    page = bus.page("main")
    for _ in range(3):
        page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(700)])
    before = all_events(bus)
    for n in range(2_500):
        add_by_hand(bus, f"9999999999999-{n}")
    assert list(bus.events()) == before
    assert len(bus.repair()) == 2_500
    assert all_events(bus) == before
    page.add("observation", "later")


def test_repair_without_a_tail_is_refused(bus, page, observation):
    keys = keys_of(bus)
    tail, count = send(bus, "GET", keys.tail), log_length(bus)
    send(bus, "DEL", keys.tail)
    with pytest.raises(LogError, match="restore"):
        bus.repair()
    assert log_length(bus) == count
    send(bus, "SET", keys.tail, tail)


@pytest.mark.engines("embedded-4-shards")
def test_repair_continues_past_a_shard_that_fails(bus):
    pages = {bus.core.log.shard(name): name for name in map(str, range(50))}
    for shard, name in pages.items():
        bus.page(name).add("observation", f"{shard}")
    keys = [keys_of(bus, pages[shard]) for shard in range(4)]
    for shard in (0, 3):
        bus.converse(ask(shard, "XADD", keys[shard].log, "9999999999999-7", "by", "hand"))
    tail = bus.converse(ask(2, "GETDEL", keys[2].tail))
    with pytest.raises(LogError, match=r"^shard 2: .* from the others: 9999999999999-7, 9999999999999-7$"):
        bus.repair()
    bus.converse(ask(2, "SET", keys[2].tail, tail))
    assert [status.foreign for status in bus.status().shards] == [0, 0, 0, 0]
    for shard in range(4):
        bus.page(pages[shard]).add("observation", "later")


def test_interrupted_repair_is_completed(bus, page, observation):
    other = page.add("observation", "other")
    add_by_hand(bus, "9999999999999-0")
    keys = keys_of(bus)
    send(bus, "XADD", keys.repaired, observation.position.stream_id, *send(bus, "XRANGE", keys.log, "-", "+")[0][1])
    assert [each.kind for each in bus.verify().findings] == ["foreign", "foreign"]
    assert len(bus.repair()) == 1
    assert [each.id for each in page.list()] == [other.id, observation.id]
    assert bus.verify().is_sound


def test_repair_replaces_a_copy_of_another_log(bus, page, observation):
    page.add("observation", "other")
    add_by_hand(bus, "9999999999999-0")
    send(bus, "XADD", keys_of(bus).repaired, f"{observation.ms - 1}-1", "id", "of another log")
    bus.repair()
    assert bus.verify().is_sound
    page.add("observation", "later")


def test_concurrent_repairs_and_writes_lose_nothing(connect, bus, page):
    written, stop, problems = [], threading.Event(), []

    def write():
        try:
            with connect() as mine:
                while not stop.is_set():
                    try:
                        id = mine.page("main").add("observation", "x", ttl="1h", event_id=None).id
                        written.append(id)
                        mine.page("main").archive(id)
                    except LogBlocked:
                        time.sleep(0.001)
        except Exception as problem:
            problems.append(problem)

    def repair_again():
        try:
            with connect() as mine:
                while not stop.is_set():
                    mine.repair()
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=each) for each in (write, write, repair_again, repair_again)]
    for thread in threads:
        thread.start()
    for number in range(20):
        count = len(written)
        add_by_hand(bus, f"{now_ms(bus) + HOUR_MS}-{number}" if number % 2 else GENERATED)
        eventually(lambda: len(written) > count + 5 or problems)  # noqa: B023
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    bus.repair()
    added = [event.subject for event in bus.events(kinds="added")]
    assert set(written) <= set(added)
    assert len(added) == len(set(added))


@pytest.mark.engines(*ALL)
def test_retry_of_a_logged_write_is_answered_while_blocked(bus, page):
    observation = page.add("observation", "x", event_id="mine")
    add_by_hand(bus, "9999999999999-0")
    assert page.add("observation", "x", event_id="mine").id == observation.id
    bus.repair()


def test_retry_ignores_a_forged_entry_after_the_tail(bus, page, observation):
    """A forged entry with the id of a write whose reply was lost is not that write."""
    add_by_hand(bus, "9999999999999-0")
    with pytest.raises(LogBlocked) as raised:
        page.add("observation", "x")
    send(bus, "XADD", keys_of(bus).log, "9999999999999-1", "id", raised.value.event_id, "page", "main")
    with pytest.raises(LogBlocked):
        page.add("observation", "x", event_id=raised.value.event_id)
    bus.repair()
    assert page.add("observation", "x", event_id=raised.value.event_id).content == "x"


def commands(bus, name="xread"):
    """Return how often a real engine was sent a command."""
    found = re.search(rf"^cmdstat_{name}:calls=(\d+)", send(bus, "INFO", "commandstats").decode(), re.MULTILINE)
    return int(found[1]) if found else 0


def reads(bus):
    """Return how often a real engine was asked for entries."""
    return commands(bus) + commands(bus, "xrange")


def _follow_all(bus, seen, stop):
    for event in bus.events(follow=True, stop=stop):
        seen.append(event.subject)


def _follow_page(bus, seen, stop):
    for event in bus.events(follow=True, stop=stop, pages="main"):
        seen.append(event.subject)


def _follow_subscription(bus, seen, stop):
    with bus.subscribe("router", stop=stop) as deliveries:
        for delivery in deliveries:
            seen.append(delivery.event.subject)
            delivery.ack()


def _follow_view(bus, seen, stop):
    with bus.view("main") as view:
        seen += [each.id for each in view.list()]
        while not stop.is_set():
            seen += [each.id for each in reversed(view.list()) if each.id not in seen]
            stop.wait(0.02)


def _follow_waits(bus, seen, stop):
    behind = {keys_of(bus).shard: next(iter(bus.events())).position}
    seen.append(next(iter(bus.events())).subject)
    while not stop.is_set():
        bus.wait_for_events(behind, 1)
        for event in bus.events(after=behind[keys_of(bus).shard]):
            seen.append(event.subject)
            behind = {keys_of(bus).shard: event.position}


@pytest.mark.slow
@pytest.mark.parametrize("id", ["18446744073709551614-5", GENERATED])
@pytest.mark.parametrize("follow", [_follow_all, _follow_page, _follow_subscription, _follow_view, _follow_waits])
@pytest.mark.alone
def test_followers_wait_and_continue_after_the_repair(connect, bus, page, observation, follow, id):
    seen: list[str] = []
    stop, mine = threading.Event(), connect()
    thread = threading.Thread(target=follow, args=(mine, seen, stop))
    thread.start()
    try:
        eventually(lambda: seen == [observation.id])
        settle(bus)
        before = reads(bus)
        add_by_hand(bus, id)
        eventually(lambda: reads(bus) > before, "the entry ends the wait for events")
        before = reads(bus)
        time.sleep(0.5)  # a measurement: a busy loop reads hundreds of times
        assert reads(bus) - before < 100
        bus.repair()
        later = [page.add("observation", f"{number}").id for number in range(3)]
        eventually(lambda: seen == [observation.id, *later])
    finally:
        stop.set()
        thread.join()


@pytest.mark.damages_the_log
@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_archiver_stops_before_a_foreign_entry(connect, tmp_path, id):
    bus = connect(archive_url=tmp_path / "archive", retain="1ms", retain_events=5, archive_segment=4)
    page = bus.page("main")
    for number in range(30):
        page.add("observation", f"{number}")
    settle(bus)
    add_by_hand(bus, id(bus))
    before = list(bus.events())
    archive(bus)
    assert any(shard.floor for shard in bus.status().shards)
    assert [event.subject for event in bus.events()] == [event.subject for event in before]
    assert len(read_everything(bus, page)) == 30
    bus.repair()
    page.add("observation", "later")
    assert bus.verify().is_sound


@pytest.mark.damages_the_log
@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_export_stops_before_a_foreign_entry_and_can_be_imported(connect, bus, page, observation, id, bus_name):
    settle(bus)
    add_by_hand(bus, id(bus))
    lines = [line_of(event) for event in bus.events()]
    other = connect(bus=f"{bus_name}-copy")
    assert other.import_events(lines) == 1
    assert other.page("main").list() == [observation]


def test_as_of_history_and_trace_ignore_foreign_entries(bus, page, observation):
    end = bus.position()
    page.link(observation.id, "goal")
    later = page.add("observation", "later")
    page.resolve(later.id)
    add_by_hand(bus, f"{now_ms(bus) + HOUR_MS}-0")
    assert [each.content for each in page.as_of(end).list()] == ["story"]
    assert len(page.as_of(bus.position(), without_sources=["nobody"]).list()) == 2
    assert [event.kind for event in page.history(later.id)] == ["added", "status_changed"]
    assert page.trace("goal")
    bus.repair()


def test_entry_older_than_the_clock_still_blocks(bus, page, observation):
    """Otherwise it would lie between events, and two entries would have the same sequence number."""
    settle(bus)
    foreign = add_by_hand(bus, GENERATED)
    eventually(lambda: now_ms(bus) > int(foreign.partition("-")[0]) + 2)
    with pytest.raises(LogBlocked):
        page.add("observation", "x")
    bus.repair()


def test_pages_on_other_shards_stay_writable(bus, page, observation):
    add_by_hand(bus, "9999999999999-0")
    other = next(f"p{n}" for n in range(100) if bus.core.log.shard(f"p{n}") != keys_of(bus).shard)
    bus.page(other).add("observation", "x")
    assert len(list(bus.events())) == 2
    bus.repair()


def test_foreign_entry_is_not_among_the_rejected_events(bus, page, observation):
    add_by_hand(bus, "9999999999999-0", FIELDS["the first of a batch"])
    project(bus)
    assert send(bus, "XLEN", PageKeys(keys_of(bus), "").rejected) == 0
    bus.repair()


@pytest.mark.anyio
@pytest.mark.engines(*ALL)
async def test_async_bus_handles_foreign_entries(engine, bus, page, observation):
    add_by_hand(bus, "18446744073709551614-5")
    async with AsyncBus.connect(engine.url, bus=bus.core.log.bus, shards=engine.shards, source="tester") as mine:
        theirs, seen, has_first, has_both = mine.page("main"), list[str](), asyncio.Event(), asyncio.Event()
        with pytest.raises(LogBlocked):
            await theirs.add("observation", "x")
        assert await theirs.list() == [observation]
        assert [event.subject async for event in mine.events()] == [observation.id]

        async def follow() -> None:
            async for event in mine.events(follow=True):
                seen.append(event.subject)
                has_first.set()
                if len(seen) == 2:
                    has_both.set()

        async with mine.view("main") as view, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            async with asyncio.timeout(PATIENCE):
                await has_first.wait()
            if engine.is_real:
                before = commands(bus)
                await asyncio.sleep(0.5)  # a measurement: a busy loop reads hundreds of times
                assert commands(bus) - before < 50
            assert view.list() == [observation]
            assert [each.stream_id for each in await mine.repair()] == ["18446744073709551614-5"]
            later = await theirs.add("observation", "later")
            async with asyncio.timeout(PATIENCE):
                await view.wait_for(later.position)
                await has_both.wait()
            following.cancel()
        assert seen == [observation.id, later.id]
