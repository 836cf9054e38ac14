"""Requests sent ahead, before their replies are needed: faults meanwhile lose and duplicate nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, Observation
from scratchbus.commands import add as adding
from scratchbus.domain.position import START
from scratchbus.engine.scans import scan_hash
from scratchbus.engine.steps import Call, Collect, Interrupted, Send, Sent, Step
from scratchbus.errors import BusClosed, EngineUnreachable, LogRewound
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.raw_entries import entry_position
from scratchbus.eventlog.reader import CHUNK, read
from scratchbus.eventlog.writes import Write
from scratchbus.readmodel import additions, catch_up
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.timetravel.fold_page import Documents, fold_events
from tests.faults.servers import Server, embedded_binary
from tests.waiting import eventually

COUNT = 5 * CHUNK
LARGE = 4_000
"""Characters of each content, so that a chunk exceeds the socket buffer: the engine dies in the middle of a reply."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(embedded_binary(), appendonly="yes", appendfsync="always").start()
    yield server
    server.close()


@pytest.fixture
def bus(server: Server) -> Iterator[Bus]:
    with Bus.connect(server.url, source="t", max_observations=99_999) as bus:
        yield bus


def fill(bus: Bus, count: int, size: int = LARGE) -> None:
    for first in range(0, count, 100):
        bus.page().add_many(
            [
                NewObservation(type="observation", content=f"{at:06d}".ljust(size, "x"))
                for at in range(first, first + 100)
            ]
        )


def restart(server: Server) -> None:
    server.kill()
    server.start()


def test_events_resume_after_the_engine_restarts(server: Server, bus: Bus):
    fill(bus, COUNT)
    events = bus.events()
    seqs = [next(events).seq]
    assert len(bus._reader._sent) == 1
    restart(server)
    seqs += [event.seq for event in events]
    assert seqs == [*range(1, COUNT + 1)]
    assert not bus._reader._sent


def test_a_replay_resumes_after_the_engine_restarts(server: Server, bus: Bus):
    fill(bus, COUNT)
    (cursor,) = bus.converse(cursors(bus.core.log, None))
    told: list[int] = []

    def tell(done: int, _: int) -> None:
        told.append(done)
        if len(told) == 2:
            restart(server)

    documents: Documents = {}
    count = bus.converse(fold_events(bus.core.log, "main", cursor, bus.position().shards[0], documents, tell))
    assert (count, len(documents), len(told)) == (COUNT, COUNT, COUNT // CHUNK)


def test_a_subscription_resumes_after_the_engine_restarts(server: Server, bus: Bus):
    fill(bus, COUNT)
    seqs: list[int] = []
    with bus.subscribe("s") as deliveries:
        for delivery in deliveries:
            seqs.append(delivery.position.seq)
            if len(seqs) == 1:
                restart(server)
            delivery.ack()
            if len(seqs) == COUNT:
                break
    assert seqs == [*range(1, COUNT + 1)]


def test_asyncio_readers_resume_after_the_engine_restarts(server: Server, bus: Bus):
    fill(bus, COUNT)

    async def read() -> tuple[list[int], list[int]]:
        events: list[int] = []
        delivered: list[int] = []
        async with AsyncBus.connect(server.url, source="t") as bus:
            async for event in bus.events():
                events.append(event.seq)
                if len(events) == 1:
                    restart(server)
            async with bus.subscribe("s") as deliveries:
                async for delivery in deliveries:
                    delivered.append(delivery.position.seq)
                    if len(delivered) == 1:
                        restart(server)
                    await delivery.ack()
                    if len(delivered) == COUNT:
                        break
        return events, delivered

    assert asyncio.run(read()) == ([*range(1, COUNT + 1)],) * 2


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_projector_resumes_after_the_engine_restarts(
    server: Server, bus: Bus, monkeypatch: pytest.MonkeyPatch, at: int
):
    fill(bus, 500)
    take, taken = additions.split_additions, []

    def taking(*given):
        taken.append(given)
        if len(taken) == at:  # the read of the next chunk and the commit of the previous one are in flight
            restart(server)
        return take(*given)

    monkeypatch.setattr(catch_up, "split_additions", taking)
    seqs, folded = [0], 0
    while seqs[-1] < 500:
        done, known = bus.converse(fold_once(bus.core.log, 0, chunk=100, max_chunks=16))
        folded += done.events
        seqs.append(known.position.seq)
    assert seqs == sorted(seqs)
    assert folded == 500 or at > 1  # a commit with a lost reply is recognized by its token and not counted
    assert len(bus.page().list(limit=None)) == 500
    assert bus.verify().is_sound


def test_folding_several_chunks_ahead_gives_the_same_state(bus: Bus):
    fill(bus, 300, 10)
    ids = [each.id for each in bus.page().list(limit=None)]
    for id in ids[::3]:
        bus.page().update(id, confidence=0.5)
    done, known = bus.converse(fold_once(bus.core.log, 0, chunk=100, max_chunks=16))
    assert (done.is_all, known.position.seq) == (True, 400)
    assert bus.verify().is_sound


def test_another_projectors_commit_ends_the_chunks_after_it(bus: Bus, monkeypatch: pytest.MonkeyPatch):
    fill(bus, 500, 10)
    take, taken = additions.split_additions, []

    def taking(*given):
        taken.append(given)
        if len(taken) == 2:
            bus.converse(fold_once(bus.core.log, 0, chunk=50))
        return take(*given)

    monkeypatch.setattr(catch_up, "split_additions", taking)
    done, known = bus.converse(fold_once(bus.core.log, 0, chunk=100, max_chunks=16))
    assert known.position.seq == done.events
    monkeypatch.undo()
    bus.converse(catch_up.catch_up(bus.core.log, 0))
    assert len(bus.page().list(limit=None)) == 500
    assert bus.verify().is_sound


def test_an_event_added_after_reading_ahead_is_seen(bus: Bus):
    fill(bus, 2 * CHUNK, 10)
    events = bus.events()
    for _ in range(CHUNK + 1):  # the second chunk and the empty end after it were read ahead
        next(events)
    bus.page().add("observation", "late")
    assert [event.seq for event in events] == [*range(CHUNK + 2, 2 * CHUNK + 2)]


def test_a_moved_cursor_discards_its_pending_read(bus: Bus):
    fill(bus, 5 * CHUNK, 10)
    (cursor,) = bus.converse(cursors(bus.core.log, None))
    bus.converse(read(bus.core.log, [cursor]))
    assert cursor.next_read is not None
    cursor.move_to(START, "")
    ((_, entries),) = bus.converse(read(bus.core.log, [cursor]))
    assert entry_position(entries[0], 0).seq == 1


def test_a_flush_after_reading_ahead_is_noticed(server: Server, bus: Bus):
    fill(bus, 5 * CHUNK, 10)
    events = bus.events()
    next(events)
    with server.client() as client:
        client.flushall()
    with pytest.raises(LogRewound):
        list(events)


def test_uncollected_replies_reach_no_other_request(bus: Bus):
    fill(bus, 5 * CHUNK)
    for _ in range(3):
        events = bus.events()
        next(events)
        assert len(bus._reader._sent) == 1
        del events
        gc.collect()
        assert not bus._reader._sent
    assert sum(1 for _ in bus.events()) == 5 * CHUNK


def test_closing_a_bus_closes_connections_with_pending_replies(server: Server):
    with Bus.connect(server.url, source="t", max_observations=99_999) as bus:
        fill(bus, 5 * CHUNK)
        events = bus.events()
        next(events)
        (link,) = bus._reader._sent
    assert not link.is_open


def sent(call: Call) -> Step[Sent]:
    found: Sent = yield Send(call)
    return found


def collected(sent: Sent) -> Step[list[object]]:
    found: list[object] = yield Collect(sent)
    return found


def test_a_write_is_not_resent_after_its_connection_broke(server: Server, bus: Bus):
    assert bus.converse(collected(bus.converse(sent(Call(0, (("PING",),)))))) == [b"PONG"]
    server.pause()
    write = bus.converse(sent(Call(0, (("INCR", "n"),), is_write=True)))
    restart(server)
    with pytest.raises(Interrupted):
        bus.converse(collected(write))
    with server.client() as client:
        assert client.get("n") is None


@pytest.fixture
def items() -> list[NewObservation]:
    return [NewObservation(type="observation", content=f"{at}", metadata={"n": at}) for at in range(50)]


def while_added(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> list[int]:
    """Do something after a batch is sent and before its reply is collected; return the sizes of such batches."""
    begin, sizes = adding._prepare, list[int]()

    def doing(page: str, writes: list[Write], begun: dict[str, Observation]) -> None:
        begin(page, writes, begun)
        sizes.append(len(begun))
        do()

    monkeypatch.setattr(adding, "_prepare", doing)
    return sizes


def test_add_many_prepares_its_result_while_the_engine_adds(
    server: Server, bus: Bus, items: list[NewObservation], monkeypatch: pytest.MonkeyPatch
):
    fill(bus, 200, 10)  # the second hundred loads the script
    with server.client() as client:

        def see() -> None:
            assert len(bus._engine._sent) == 1
            eventually(lambda: client.xlen(bus.core.log.keys(0).log) == 250)

        sizes = while_added(monkeypatch, see)
        added = bus.page().add_many(items)
    assert sizes == [50]
    assert [each.metadata["n"] for each in added] == [*range(50)]
    assert added == [bus.page().get(each.id) for each in added]
    assert not bus._engine._sent


def test_a_batch_is_added_once_when_the_engine_restarts(
    server: Server, bus: Bus, items: list[NewObservation], monkeypatch: pytest.MonkeyPatch
):
    fill(bus, 200, 10)  # the second hundred loads the script
    sizes = while_added(monkeypatch, lambda: restart(server))
    added = bus.page().add_many(items)
    assert sizes == [50]
    assert added == [bus.page().get(each.id) for each in added]
    assert [event.seq for event in bus.events()] == [*range(1, 251)]
    assert bus.verify().is_sound


def test_a_bus_closed_during_add_many_says_how_to_retry(
    server: Server, bus: Bus, items: list[NewObservation], monkeypatch: pytest.MonkeyPatch
):
    fill(bus, 200, 10)  # the second hundred loads the script
    other = Bus.connect(server.url, source="t", max_observations=99_999)
    other.page().add("observation", "x")  # the batch needs no further request
    sizes = while_added(monkeypatch, other.close)
    with pytest.raises(BusClosed, match="outcome of the last write is unknown: retry it with event_id=") as closed:
        other.page().add_many(items)
    assert sizes == [50]
    monkeypatch.undo()
    added = bus.page().add_many(items, event_id=closed.value.event_id)
    assert len({each.id for each in added}) == 50
    assert sum(1 for _ in bus.events()) == 251


def test_an_asyncio_batch_is_added_once_when_the_engine_restarts(
    server: Server, bus: Bus, items: list[NewObservation], monkeypatch: pytest.MonkeyPatch
):
    async def add() -> None:
        async with AsyncBus.connect(server.url, source="t", max_observations=99_999) as other:
            await other.page().add_many(items)
            await other.page().add_many(items)
            sizes = while_added(monkeypatch, lambda: restart(server))
            added = await other.page().add_many(items)
            assert sizes == [50]
            assert added == [await other.page().get(each.id) for each in added]

    asyncio.run(add())
    assert [event.seq for event in bus.events()] == [*range(1, 151)]
    assert bus.verify().is_sound


def test_an_interrupt_during_add_many_leaves_no_pending_reply(
    bus: Bus, items: list[NewObservation], monkeypatch: pytest.MonkeyPatch
):
    def interrupt() -> None:
        raise KeyboardInterrupt

    fill(bus, 200, 10)  # the second hundred loads the script
    with monkeypatch.context() as patched:
        while_added(patched, interrupt)
        with pytest.raises(KeyboardInterrupt):
            bus.page().add_many(items)
    gc.collect()
    assert not bus._engine._sent
    added = bus.page().add_many(items)
    assert added == [bus.page().get(each.id) for each in added]
    assert len(list(bus.events())) in (250, 300)  # the whole batch may have reached the engine
    assert bus.verify().is_sound


def test_a_reply_shows_the_state_at_sending(bus: Bus):
    read = bus.converse(sent(Call(0, (("GET", "n"),))))
    bus.converse(collected(bus.converse(sent(Call(0, (("INCR", "n"),), is_write=True)))))
    assert bus.converse(collected(read)) == [None]


@pytest.mark.parametrize("problem", [EngineUnreachable("no space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_cursor_stays_in_place_when_sending_ahead_fails(bus: Bus, problem: BaseException):
    fill(bus, 2 * CHUNK, size=10)
    (cursor,) = bus.converse(cursors(bus.core.log, None))
    conversation = read(bus.core.log, [cursor])
    request = next(conversation)
    while not isinstance(request, Send):
        assert isinstance(request, Call)
        request = conversation.send(bus._engine.execute(request))
    with pytest.raises(type(problem)):
        conversation.throw(problem)
    assert cursor.position.seq == 0
    ((_, entries),) = bus.converse(read(bus.core.log, [cursor]))
    assert entry_position(entries[0], 0).seq == 1


def test_a_request_that_cannot_be_sent_ahead_is_sent_on_collect(bus: Bus, monkeypatch: pytest.MonkeyPatch):
    def fail(link: object) -> None:
        raise EngineUnreachable("the embedded engine cannot be started")

    def ask() -> Step[Any]:
        bus._engine._idle.clear()
        with monkeypatch.context() as patched:
            patched.setattr(bus._engine, "_connect", fail)
            sent = yield Send(Call(0, (("ECHO", "one"),)))
        return (yield Collect(sent))

    assert bus.converse(ask()) == [b"one"]


def test_a_reply_can_be_collected_more_than_once(bus: Bus):
    def ask() -> Step[list[Any]]:
        one = yield Send(Call(0, (("ECHO", "one"),)))
        first = yield Collect(one)
        two = yield Send(Call(0, (("ECHO", "two"),)))
        again = yield Collect(one)
        return [first, again, (yield Collect(two))]

    assert bus.converse(ask()) == [[b"one"], [b"one"], [b"two"]]


def test_a_scan_requests_the_next_fields_before_it_passes_on_the_last_ones():
    passed: list[list[object]] = []
    scanning = scan_hash(0, passed.append, "h", 1)
    next(scanning)
    scanning.send([2])
    request = scanning.send([[b"7", [b"a", b"1"]]])
    assert isinstance(request, Send)
    assert (request.call.commands, passed) == ((("HSCAN", "h", b"7", "COUNT", 1),), [])
    assert isinstance(scanning.send(Sent(request.call)), Collect)
    assert passed == [[b"a", b"1"]]
    with pytest.raises(StopIteration):
        scanning.send([[b"0", [b"b", b"2"]]])
    assert passed == [[b"a", b"1"], [b"b", b"2"]]


def test_a_copied_cursor_has_no_pending_read(bus: Bus):
    fill(bus, 2 * CHUNK, size=10)
    (cursor,) = bus.converse(cursors(bus.core.log, None))
    bus.converse(read(bus.core.log, [cursor]))
    assert cursor.next_read is not None
    assert replace(cursor).next_read is None
