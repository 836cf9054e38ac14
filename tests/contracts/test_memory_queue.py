"""Concurrent edits of one memory: all are answered, none is lost, and the cost is linear."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from scratchbus import AsyncBus, Bus, ItemChange, because
from scratchbus.commands import items
from scratchbus.engine.queues import Queues
from scratchbus.engine.steps import Queued, Step
from scratchbus.errors import BusClosed, EngineUnreachable, EventIdReused, InvalidField, SessionOver
from scratchbus.eventlog.append import append
from tests.engines import ONE, Engine
from tests.waiting import PATIENCE, eventually

MANY = 500
BOUND = 2.0  # seconds
ATTEMPTS = 4  # one must stay within the bound; a busy machine can delay the others

WRITES: dict[str, Callable[[Any, int], Any]] = {
    "todo": lambda bus, n: bus.todo("s1").write([{"id": str(n % 200), "content": f"step {n}"}], merge=True),
    "notepad": lambda bus, n: bus.notepad("s1").append(f"line {n}\n"),
    "scratchpad": lambda bus, n: bus.scratchpad("tester").write(f"text {n}"),
    "notes": lambda bus, n: bus.notes("s1").add(f"note {n}"),
}
HISTORIES: dict[str, Callable[[Any], list[Any]]] = {
    "todo": lambda bus: bus.todo("s1").history(),
    "notepad": lambda bus: bus.notepad("s1").history(),
    "scratchpad": lambda bus: bus.scratchpad("tester").history(),
    "notes": lambda bus: bus.notes("s1").history(),
}


@pytest.fixture
def open_async(engine: Engine, bus: Bus) -> Callable[[], Any]:
    """Open the test's bus under asyncio; the fixture `bus` verifies it at the end."""

    @asynccontextmanager
    async def enter() -> AsyncIterator[AsyncBus]:
        name = bus.core.log.bus
        async with AsyncBus.connect(engine.url, source="tester", bus=name, shards=engine.shards) as opened:
            yield opened

    return enter


@pytest.mark.real
@pytest.mark.parametrize("memory", WRITES)
@pytest.mark.alone
async def test_500_tasks_are_answered_in_two_seconds(memory, embedded_url, real_bus):
    async with AsyncBus.connect(embedded_url, bus=real_bus.core.log.bus, source="tester") as bus:
        await WRITES[memory](bus, 0)
        for attempt in range(1, ATTEMPTS + 1):
            begun = time.perf_counter()
            numbers = range(attempt * MANY, (attempt + 1) * MANY)
            results = await asyncio.gather(*(WRITES[memory](bus, n) for n in numbers), return_exceptions=True)
            took = time.perf_counter() - begun
            assert [result for result in results if isinstance(result, Exception)] == []
            assert len(HISTORIES[memory](real_bus)) == 1 + attempt * MANY
            if took < BOUND:
                break
    assert took < BOUND


@pytest.mark.real
@pytest.mark.parametrize("memory", WRITES)
@pytest.mark.alone
def test_500_threads_are_answered_in_two_seconds(memory, real_bus):
    for attempt in range(1, ATTEMPTS + 1):
        results: list[object] = []

        def write(number: int, results: list[object]) -> None:
            try:
                results.append(WRITES[memory](real_bus, number))
            except Exception as error:
                results.append(error)

        numbers = range(attempt * MANY, (attempt + 1) * MANY)
        threads = [threading.Thread(target=write, args=(number, results)) for number in numbers]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        took = time.perf_counter() - begun
        assert len(results) == MANY
        assert [result for result in results if isinstance(result, Exception)] == []
        assert len(HISTORIES[memory](real_bus)) == attempt * MANY
        if took < BOUND:
            break
    assert took < BOUND


@pytest.mark.parametrize(
    "has_id", [lambda n: n % 2, lambda n: n == 7, lambda n: True], ids=["every second", "one", "all"]
)
@pytest.mark.engines(*ONE)
async def test_edits_with_and_without_event_ids_share_batches(open_async, bus, has_id):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        await notepad.append("known\n", event_id="e7")
        edits = [notepad.append(f"{n}\n", event_id=f"e{n}" if has_id(n) and n != 7 else None) for n in range(100)]
        await asyncio.gather(*edits, notepad.append("known\n", event_id="e7"))
    assert bus.notepad("s1").read() == "known\n" + "".join(f"{n}\n" for n in range(100))
    batches = [event.batch for event in bus.notepad("s1").history()]
    assert sum(batch.startswith("1/") for batch in batches) < 30


@pytest.mark.engines(*ONE)
async def test_edit_in_a_shared_batch_can_be_retried_by_its_generated_id(open_async, bus):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        await asyncio.gather(*(notepad.append(f"{n}", event_id="own" if n == 5 else None) for n in range(20)))
        made = [event.id for event in bus.notepad("s1").history()]
        text = await notepad.read()
        for number, id in enumerate(made):
            await notepad.append(f"{number}", event_id=id)
            with pytest.raises(EventIdReused):
                await notepad.append("open_async", event_id=id)
        assert await notepad.read() == text


@pytest.mark.engines(*ONE)
async def test_concurrent_edits_keep_the_order_of_their_calls(open_async, bus):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        await asyncio.gather(*(notepad.append(f"{number}\n") for number in range(60)))
    assert bus.notepad("s1").read() == "".join(f"{number}\n" for number in range(60))


async def test_each_concurrent_edit_gets_its_own_result(open_async, bus):
    async with open_async() as theirs:
        todo, notepad = theirs.todo("s1"), theirs.notepad("s1")
        lists = await asyncio.gather(*(todo.write([{"id": str(n), "content": "x"}], merge=True) for n in range(30)))
        assert [len(each.todos) for each in lists] == list(range(1, 31))
        assert [each.revision for each in lists] == list(range(1, 31))
        edits = [notepad.append("a"), notepad.update("delete", "zebra"), notepad.append("b")]
        answers = await asyncio.gather(*edits, notepad.update("delete", "b"), return_exceptions=True)
    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [InvalidField]
    assert isinstance(answers[1], InvalidField)
    assert str(answers[1]).startswith("content: 'zebra' is not on the notepad")
    assert bus.notepad("s1").read() == "a"


async def test_concurrent_edits_keep_their_causes(open_async, bus):
    cause = bus.page().add("observation", "x").position

    async def append(number: int) -> None:
        with because(cause if number % 2 else None):
            await notepad.append(str(number))

    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        await asyncio.gather(*map(append, range(20)))
    causes = [event.cause for event in bus.notepad("s1").history()]
    assert causes == [str(cause) if number % 2 else None for number in range(20)]


@pytest.mark.engines(*ONE)
async def test_cancelled_edits_do_not_block_others(open_async, bus):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        for after in range(4):  # cancel at the first await, during the first edit, during the others
            tasks = [asyncio.create_task(notepad.append(f"{after}.{number}\n")) for number in range(60)]
            for _ in range(after * 3):
                await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            async with asyncio.timeout(30):
                await asyncio.gather(*tasks, return_exceptions=True)
            there = (await notepad.read()).splitlines()
            assert {f"{after}.{number}" for number in range(60) if number % 3} <= set(there)
        await notepad.append("last")
    lines = bus.notepad("s1").read().splitlines()
    assert len(lines) == len(set(lines))
    assert lines[-1] == "last"


def test_abandoned_event_loop_does_not_block_the_next(engine, bus):
    theirs = AsyncBus.connect(engine.url, source="tester", bus=bus.core.log.bus, shards=engine.shards)

    async def leave() -> None:
        for number in range(20):
            asyncio.create_task(theirs.notepad("s1").append(f"{number}\n"))  # noqa: RUF006  # ends with the loop
        await asyncio.sleep(0)

    async def append_again() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(theirs.notepad("s1").append("x") for _ in range(20)))
        await theirs.close()

    asyncio.run(leave())
    asyncio.run(append_again())
    assert bus.notepad("s1").read().count("x") == 20


@pytest.mark.engines(*ONE)
async def test_two_queues_of_one_subject_lose_nothing(open_async, bus):
    async with open_async() as one, open_async() as two:
        edits = [each.notepad("s1").append(f"{who}{n}\n") for n in range(80) for who, each in (("a", one), ("b", two))]
        await asyncio.gather(*edits)
    lines = bus.notepad("s1").read().splitlines()
    for who in "ab":
        assert [line for line in lines if line[0] == who] == [f"{who}{n}" for n in range(80)]


async def test_concurrent_retries_are_applied_once(open_async, bus):
    async with open_async() as theirs:
        todo = theirs.todo("s1")
        first = await todo.write([{"id": "0", "content": "x"}], event_id="first")

        def write(number: int, event_id: str | None) -> Any:
            return todo.write([{"id": str(number), "content": "x"}], merge=bool(number), event_id=event_id)

        ids = ["first", None, "new", "new", "first", None, "other"]
        numbers = [0, 1, 2, 2, 9, 3, 4]
        answers = await asyncio.gather(*map(write, numbers, ids), return_exceptions=True)
    assert answers[0] == first
    assert answers[2] == answers[3]
    assert isinstance(answers[4], EventIdReused)
    assert [len(each.todos) for each in answers if not isinstance(each, Exception)] == [1, 2, 3, 3, 4, 5]
    assert [item.id for item in bus.todo("s1").read().todos] == ["0", "1", "2", "3", "4"]
    assert len(bus.todo("s1").history()) == 5


@pytest.mark.engines(*ONE)
async def test_edits_with_event_ids_can_each_be_retried(open_async, bus):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        await asyncio.gather(*(notepad.append(f"{n}\n", event_id=f"e{n}") for n in range(40)))
        before = await notepad.read()
        await asyncio.gather(*(notepad.append(f"{n}\n", event_id=f"e{n}") for n in range(40)))
        assert await notepad.read() == before
    assert [event.id for event in bus.notepad("s1").history()] == [f"e{n}" for n in range(40)]


async def test_edits_after_the_end_of_the_session_are_refused(open_async, bus):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        await notepad.append("x")
        tasks = [asyncio.create_task(notepad.append("y")) for _ in range(20)]
        await theirs.end_session("s1")
        answers = await asyncio.gather(*tasks, notepad.append("z"), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert {type(each) for each in refused} == {SessionOver}
    assert all(str(each).startswith("session 's1' has ended") for each in refused)
    assert len(bus.notepad("s1").history()) == 2 + 21 - len(refused)


async def test_closing_the_bus_answers_edits_in_flight(open_async):
    async with open_async() as theirs:
        notepad = theirs.notepad("s1")
        tasks = [asyncio.create_task(notepad.append("x")) for _ in range(20)]
        await asyncio.sleep(0)
        await theirs.close()
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(answer) for answer in answers if isinstance(answer, Exception)} <= {BusClosed}


@pytest.mark.engines(*ONE)
async def test_edits_too_large_for_one_batch_use_several(open_async, bus):
    text = "x" * 90_000
    async with open_async() as theirs:
        await asyncio.gather(*(theirs.notepad("s1").write(f"{n}{text}") for n in range(120)))
    assert bus.notepad("s1").read() == f"119{text}"
    assert len(bus.notepad("s1").history()) == 120


def _size(items: int) -> list[ItemChange]:
    return [ItemChange(("a",), f"{items}-{number}", {"n": number}) for number in range(items)]


@pytest.mark.engines(*ONE)
@pytest.mark.parametrize(
    ("jobs", "batches"),
    [
        ([600, 600], [{0: 600}, {1: 600}]),
        ([1, 998, 1, 1], [{0: 1, 1: 998, 2: 1}, {3: 1}]),
        ([10, 2_500, 3], [{0: 10}, {1: 1_000}, {1: 1_000}, {1: 500, 2: 3}]),
    ],
)
async def test_concurrent_writes_share_few_batches(open_async, monkeypatch, jobs, batches):
    seen: list[dict[int, int]] = []
    ids: list[str] = []

    batches_of = items._batches

    def recording(*given: Any) -> Any:
        for batch in batches_of(*given):
            seen.append(batch.counts)
            ids.extend(write.event_or_draft.id for write in batch.writes)
            yield batch

    monkeypatch.setattr(items, "_batches", recording)
    async with open_async() as bus:
        store = bus.items("q")
        await store.put(("a",), "first", {"n": 0})
        seen.clear()
        gate = asyncio.ensure_future(store.put(("a",), "gate", {"n": 0}))  # the others wait for it
        done = await asyncio.gather(*(store.write(_size(size)) for size in jobs))
        await gate
        assert done == jobs
        assert seen == [{0: 1}, *batches]
        assert len(set(ids)) == len(ids)
        (found,) = [await store.read()]
        assert len(found.search((), limit=10_000)) == 2 + len({(size, n) for size in jobs for n in range(size)})


@pytest.mark.engines(*ONE)
async def test_concurrent_writes_succeed_or_fail_separately(open_async, monkeypatch):
    async with open_async() as bus:
        store = bus.items("q")
        await store.put(("a",), "first", {"n": 0})
        appended = append
        calls = 0

        def failing(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise EngineUnreachable("it is gone", "nothing was written")
            return (yield from appended(*given, **named))

        monkeypatch.setattr(items, "append", failing)
        gate = asyncio.ensure_future(store.put(("a",), "gate", {"n": 0}))
        results = await asyncio.gather(*(store.write(_size(size)) for size in (700, 701)), return_exceptions=True)
        await gate
        assert results[0] == 700
        assert isinstance(results[1], EngineUnreachable)
        assert len((await store.read()).search((), limit=10_000)) == 702


def drive_alone(conversation: Step[Any]) -> Any:
    """Run a conversation that sends nothing."""
    with pytest.raises(StopIteration) as stopped:
        next(conversation)
    return stopped.value.value


class _LateLook:
    """The user of unused queues, as a thread sees it that is interrupted after it has looked."""

    def __init__(self) -> None:
        self.looked, self.go_on = threading.Event(), threading.Event()

    def __ne__(self, other: object) -> bool:
        if threading.current_thread().name == "late":
            self.looked.set()
            self.go_on.wait(30)
        return True


def test_a_thread_that_is_late_to_begin_loses_no_job_of_others():
    queues, entered, finish = Queues(), threading.Event(), threading.Event()
    queues._user = stale = _LateLook()
    results = []

    def work(jobs: Sequence[str]) -> Step[Sequence[str]]:
        yield from ()
        if "first" in jobs:
            entered.set()
            finish.wait(30)
        return jobs

    def run(job: str) -> None:
        results.append(queues.run(Queued(queues, "key", job, work), drive_alone))

    threads = [threading.Thread(target=run, args=(name,), name=name, daemon=True) for name in ("late", "first", "next")]
    late, first, following = threads
    late.start()
    assert stale.looked.wait(30)
    first.start()
    assert entered.wait(30)
    following.start()
    eventually(lambda: queues._waiting["key"])
    stale.go_on.set()
    eventually(lambda: results or len(queues._waiting["key"]) == 2)
    finish.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(results) == ["first", "late", "next"]


class _Interrupting:
    """A lock at which Ctrl-C interrupts its user once: before it is taken for this time, or after it was released."""

    def __init__(self, time: int, *, is_before: bool) -> None:
        self._lock, self._times_left, self._is_before = threading.Lock(), time, is_before

    def __enter__(self) -> None:
        self._times_left -= 1
        if self._times_left == 0 and self._is_before:
            raise KeyboardInterrupt
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        if self._times_left == 0 and not self._is_before:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("time", "is_before"), [(1, False), (2, True)], ids=["joining", "leaving"])
def test_an_interrupted_thread_can_use_the_queue_again(time, is_before):
    queues, results = Queues(), []

    def work(jobs: Sequence[str]) -> Step[Sequence[str]]:
        yield from ()
        return jobs

    def run(job: str) -> None:
        results.append(queues.run(Queued(queues, "key", job, work), drive_alone))

    run("first")
    queues._lock = cast(Any, _Interrupting(time, is_before=is_before))
    with pytest.raises(KeyboardInterrupt):
        run("interrupted")
    other = threading.Thread(target=run, args=("other",), daemon=True)
    other.start()
    eventually(lambda: queues._waiting.get("key"))
    run("next")
    other.join(PATIENCE)
    assert sorted(results) == ["first", "next", "other"]
