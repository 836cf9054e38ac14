"""Writes whose reply is lost: retries, and the result or error that the caller gets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, Page
from scratchbus.domain.events import Linked
from scratchbus.engine.steps import Call, Interrupted, Step, ask, undo_if_cancelled
from scratchbus.errors import ArchiveUnavailable, BusClosed, EngineFull, EngineUnreachable, ScratchbusError
from tests.faults.checker import check
from tests.faults.interposing import Around, Send, interposed, losing_replies
from tests.faults.servers import Server, embedded_binary
from tests.inspection import log_length

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(embedded_binary())
    yield server.start()
    server.close()


@pytest.fixture
def other(server: Server, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(server.url, bus=bus_name, source="other", max_observations=10_000) as bus:
        yield bus


@pytest.fixture
def bus(server: Server, other: Bus) -> Iterator[Bus]:
    """A bus whose requests the tests intercept; at the end its log and state are checked."""
    with Bus.connect(server.url, bus=other.core.log.bus, source="subject", max_observations=10_000) as bus:
        bus.page().add("observation", "the first write asks more than the others")
        yield bus
    assert check(other) == []


def around_writes(before: Callable[[], object], after: Callable[[], object]) -> Around:
    """Call functions right before and after the first write reaches the engine."""
    done: list[bool] = []

    def around(call: Call, send: Send) -> list[Any]:
        if not call.is_write or done:
            return send()
        done.append(True)
        before()
        replies = send()
        after()
        return replies

    return around


@pytest.mark.slow
def test_a_lost_write_is_found_behind_thousands_of_others(bus: Bus, other: Bus) -> None:
    id = bus.page().add("observation", "linked once").id
    items = [NewObservation(type="observation", content="x")] * 1_000

    def crowd() -> None:
        for _ in range(2):
            other.page().add_many(items)

    for crowd_first in (True, False):
        lose, crowds = losing_replies(), [crowd] if crowd_first else []

        def around(call: Call, send: Send, lose: Around = lose, crowds: list[Callable[[], None]] = crowds) -> list[Any]:
            if call.is_write and crowds:  # only once, because commits by reads are writes too
                crowds.pop()()
            try:
                return lose(call, send)
            except Interrupted:
                crowd()
                raise

        with interposed(bus, around):
            bus.page().link(id, f"goal-{crowd_first}")
    assert [event.action for event in other.events() if isinstance(event, Linked)] == ["goal-True", "goal-False"]


def test_several_lost_replies_in_a_row_write_once(bus: Bus, other: Bus) -> None:
    with interposed(bus, losing_replies(4)):
        bus.page().add("observation", "once", dedupe_key="k", times=3)
    assert [seen.occurrences for seen in other.page().list(text="once")] == [3]


def test_after_the_deadline_the_error_says_how_to_retry(bus: Bus, other: Bus) -> None:
    bus.core.log.patience = 0.1
    with interposed(bus, losing_replies(1_000)), pytest.raises(EngineUnreachable, match="retry it with event_id="):
        bus.page().add("observation", "once", dedupe_key="k", event_id="e")
    assert bus.page().add("observation", "once", dedupe_key="k", event_id="e").occurrences == 1
    assert log_length(other) == 2


@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_an_error_says_whether_an_earlier_attempt_may_have_written(bus: Bus, is_in_doubt: bool) -> None:
    failures: list[Exception] = [EngineFull("the engine is full")]
    if is_in_doubt:
        failures.insert(0, Interrupted("the test lost the reply"))

    def around(call: Call, send: Send) -> list[Any]:
        if call.is_write:
            raise failures.pop(0)
        return send()

    with interposed(bus, around), pytest.raises(EngineFull) as caught:
        bus.page().add("observation", "never written")
    assert ("the outcome of the last write is unknown" in str(caught.value)) is is_in_doubt


@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_a_bus_closed_before_a_write_is_sent_again_says_how_to_retry(bus: Bus, other: Bus, is_in_doubt: bool) -> None:
    lose = losing_replies(int(is_in_doubt))
    writes = []

    def around(call: Call, send: Send) -> list[Any]:
        writes.extend([call] * call.is_write)
        if len(writes) > is_in_doubt:
            raise BusClosed
        return lose(call, send)

    with interposed(bus, around), pytest.raises(BusClosed) as caught:
        bus.page().add("observation", "once")
    assert ("the outcome of the last write is unknown" in str(caught.value)) is is_in_doubt
    assert (caught.value.event_id is None) is not is_in_doubt
    if is_in_doubt:
        bus.page().add("observation", "once", event_id=caught.value.event_id)
        assert len(other.page().list(text="once")) == 1


@pytest.mark.parametrize("error", [EngineUnreachable("gone"), ArchiveUnavailable("gone"), BusClosed()])
def test_a_retry_that_cannot_search_the_log_is_in_doubt(bus: Bus, error: ScratchbusError) -> None:
    bus.core.log.patience = 0.1
    with interposed(bus, losing_replies(1_000)), pytest.raises(EngineUnreachable) as lost:
        bus.page().add("observation", "once")

    def around(call: Call, send: Send) -> list[Any]:
        if any(command[0] == "XRANGE" for command in call.commands):
            raise error
        return send()

    with (
        interposed(bus, around),
        pytest.raises(type(error), match="the outcome of the last write is unknown") as caught,
    ):
        bus.page().add("observation", "once", event_id=lost.value.event_id)
    assert caught.value.event_id == lost.value.event_id


def test_a_change_cleared_before_its_read_is_still_returned(bus: Bus, other: Bus) -> None:
    page, id = other.page(), bus.page().add("observation", "closed and cleared").id
    with interposed(bus, around_writes(lambda: page.link(id, "goal"), lambda: page.clear_resolved([id]))):
        resolved = bus.page().resolve(id, reason="done")
    assert (resolved.id, resolved.status, resolved.reason, resolved.links) == (id, "resolved", "done", ["goal"])
    assert bus.page().get(id) is None


def test_a_repeat_cleared_before_its_read_is_still_returned(bus: Bus, other: Bus) -> None:
    page, id = other.page(), bus.page().add("observation", "seen again", dedupe_key="k").id

    def clear() -> None:
        page.resolve(id)
        page.clear_resolved([id])

    with interposed(bus, around_writes(lambda: None, clear)):
        again = bus.page().add("observation", "seen again", dedupe_key="k", times=4)
    assert (again.id, again.occurrences, again.status) == (id, 5, "active")


WRITES: dict[str, Callable[[Page, str], object]] = {
    "update": lambda page, id: page.update(id, content="else"),
    "review": lambda page, id: page.review(id),
    "link": lambda page, id: page.link(id, "goal"),
    "claim": lambda page, id: page.claim(id),
    "repeat": lambda page, id: page.add("observation", "again", dedupe_key="k"),
}


@pytest.mark.parametrize("name", WRITES)
def test_scripts_that_the_engine_lost_are_loaded_again(server: Server, bus: Bus, other: Bus, name: str) -> None:
    id = other.page().add("observation", "again", dedupe_key="k").id
    before = log_length(other)
    with server.client() as client:
        client.script_flush()
    WRITES[name](bus.page(), id)
    assert log_length(other) == before + 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of threads in the parent
def test_a_forked_child_uses_no_connection_of_its_parent(bus: Bus, other: Bus) -> None:
    page = bus.page()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            for _ in range(50):
                page.add("observation", "by the child")
            os._exit(0)
        os._exit(1)
    for _ in range(50):
        assert page.add("observation", "by the parent").content == "by the parent"
    assert os.waitpid(child, 0)[1] == 0
    assert log_length(other) == 101


async def test_a_cancelled_write_leaves_no_reply_for_the_next(server: Server, bus: Bus, other: Bus) -> None:
    async with AsyncBus.connect(server.url, bus=other.core.log.bus, source="subject") as cancelled:
        page = cancelled.page("another")
        await page.add("observation", "the first")
        for number in range(30):
            task = asyncio.ensure_future(page.add("observation", "may have happened", tags=[f"t{number}"]))
            for _ in range(number % 6):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            content = f"number {number}"
            assert (await page.add("observation", content)).content == content
            assert (await page.list(limit=1))[0].content == content


def test_the_undoing_of_a_cancelled_step_is_sent_once() -> None:
    """A driver sends a read again for seconds while the engine is away."""
    call = Call(0, (("GET", "lease"),))

    def take() -> Step[None]:
        yield call

    conversation = undo_if_cancelled(take(), lambda: ask(0, "DEL", "lease"))
    assert next(conversation) is call
    assert conversation.throw(KeyboardInterrupt()) == Call(0, (("DEL", "lease"),), is_write=True)
    with pytest.raises(KeyboardInterrupt):
        conversation.throw(Interrupted())
