"""Connections: their timeouts, and the replies of tasks that share one."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hiredis
import pytest
from redis import exceptions as redis_errors
from redis.asyncio.connection import UnixDomainSocketConnection

from scratchbus import AsyncBus
from scratchbus.engine.connections import Commands
from scratchbus.engine.links import Link
from scratchbus.engine.links_async import AsyncLink
from scratchbus.engine.scripts import Prefix, packed_arguments
from scratchbus.engine.steps import Joint
from scratchbus.errors import EngineAuth, EngineLoading
from tests.waiting import PATIENCE, eventually

Server = Callable[[list[bytes]], bytes | None]
"""Returns the reply to a command, or None for no reply."""


@asynccontextmanager
async def linked(folder: Path, reply: Server, seconds: float = 5.0) -> AsyncIterator[AsyncLink]:
    """Serve commands with `reply`, and yield a connection to the server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        while data := await reader.read(1 << 16):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                if command[0] in (b"CLIENT", b"HELLO", b"SELECT"):
                    writer.write(b"+OK\r\n")
                elif (answer := reply(command)) is not None:
                    writer.write(answer)
                elif command[0] == b"QUIT":
                    writer.transport.abort()
                    return
        writer.close()

    server = await asyncio.start_unix_server(serve, folder / "socket")
    link = AsyncLink(UnixDomainSocketConnection(path=str(folder / "socket"), protocol=2), seconds)
    await link.open()
    try:
        yield link
    finally:
        await link.aclose()
        link.close()
        server.close()
        await asyncio.sleep(0)


def echo(command: list[bytes]) -> bytes | None:
    if command[0] == b"ECHO":
        return b"$%d\r\n%b\r\n" % (len(command[1]), command[1])
    return b"-ERR unknown command\r\n" if command[0] == b"WRONG" else None


async def exchange(link: AsyncLink, commands: Commands, joint: Joint | None = None) -> list[Any]:
    return await link.exchange(commands, joint)


def echoed(number: int) -> Commands:
    return (("ECHO", f"a{number}"), ("ECHO", "x" * number))


async def test_each_task_gets_its_own_replies(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link:
        found = await asyncio.gather(*(exchange(link, echoed(number)) for number in range(200)))
    assert found == [[b"a%d" % number, b"x" * number] for number in range(200)]


async def test_an_error_reply_concerns_only_its_call(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link:
        commands: list[Commands] = [echoed(1), (("WRONG",), ("ECHO", "b")), echoed(2)]
        first, wrong, last = await asyncio.gather(*(exchange(link, each) for each in commands))
    assert (first, last) == ([b"a1", b"x"], [b"a2", b"xx"])
    assert isinstance(wrong[0], redis_errors.ResponseError)
    assert wrong[1] == b"b"


REFUSALS = {
    b"-LOADING Redis is loading the dataset in memory\r\n": (redis_errors.BusyLoadingError, EngineLoading),
    b"-NOAUTH Authentication required.\r\n": (redis_errors.AuthenticationError, EngineAuth),
}
"""Replies that redis-py raises as errors of the connection."""


@pytest.mark.parametrize("answer", REFUSALS, ids=lambda answer: answer.split()[0].decode())
async def test_a_refusal_is_a_reply_only_to_its_own_task(tmp_path: Path, answer: bytes) -> None:
    async with linked(tmp_path, lambda command: answer if command[0] == b"WRONG" else echo(command)) as link:
        commands: list[Commands] = [echoed(1), (("WRONG",),), echoed(2)]
        first, [refused], last = await asyncio.gather(*(exchange(link, each) for each in commands))
        assert link.is_open
    assert (first, last) == ([b"a1", b"x"], [b"a2", b"xx"])
    assert type(refused) is REFUSALS[answer][0]


@pytest.mark.parametrize("answer", REFUSALS, ids=lambda answer: answer.split()[0].decode())
async def test_a_refused_connection_raises_the_reason(tmp_path: Path, answer: bytes) -> None:
    async with linked(tmp_path, lambda command: answer):
        with pytest.raises(REFUSALS[answer][1]):
            await AsyncBus.connect(f"unix://{tmp_path / 'socket'}", source="tester")


async def test_a_cancelled_task_takes_no_reply_of_another(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link:
        tasks = [asyncio.create_task(exchange(link, echoed(number))) for number in range(60)]
        await asyncio.sleep(0)  # all is sent or queued
        for task in tasks[::3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    for number, each in enumerate(found):
        if number % 3:
            assert each == [b"a%d" % number, b"x" * number]
        else:
            assert isinstance(each, asyncio.CancelledError)


async def test_a_call_cancelled_before_sending_is_not_sent(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def note(command: list[bytes]) -> bytes | None:
        seen.append(command[1])
        return echo(command)

    async with linked(tmp_path, note) as link:
        tasks = [asyncio.create_task(exchange(link, (("ECHO", name),))) for name in "abc"]
        await asyncio.sleep(0)  # the first is sent, the others wait for the end of this turn
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == [b"a", b"c"]


async def test_a_hangup_ends_all_waiting_calls(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link:
        commands: list[Commands] = [(("ECHO", "a"),), (("QUIT",),), (("ECHO", "b"),), (("ECHO", "c"),)]
        first, *lost = await asyncio.gather(*(exchange(link, each) for each in commands), return_exceptions=True)
        assert link.is_closed
        with pytest.raises(redis_errors.ConnectionError):
            await link.exchange((("ECHO", "d"),))
    assert first == [b"a"]
    assert [type(each) for each in lost] == [redis_errors.ConnectionError] * 3
    assert len({id(each) for each in lost}) == 3  # each task raises its own exception


async def test_an_overdue_reply_ends_all_waiting_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer of an earlier request runs out while they wait."""
    loop, ahead = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead)

    async def run_timers() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async with linked(tmp_path, echo, seconds=60) as link:
        assert await link.exchange((("ECHO", "a"),)) == [b"a"]
        ahead = 40
        tasks = [asyncio.create_task(exchange(link, (("SILENCE",),))) for _ in range(2)]
        await run_timers()
        ahead = 80
        await run_timers()
        assert link.is_open
        assert not any(task.done() for task in tasks)
        ahead = 120
        late = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in late] == [redis_errors.TimeoutError] * 2
    assert link.is_closed


async def test_replies_may_take_longer_than_the_timeout_while_others_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, ahead = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead)
    received: list[bytes] = []

    def three_late(command: list[bytes]) -> bytes:
        received.append(command[1])
        return b"+%b\r\n" % received[-4] if len(received) > 3 else b""

    async with linked(tmp_path, three_late, seconds=60) as link:
        tasks = [asyncio.create_task(exchange(link, (("ECHO", each),))) for each in "abc"]
        for number, each in enumerate("defgh"):
            tasks.append(asyncio.create_task(exchange(link, (("ECHO", each),))))
            replies = await asyncio.wait_for(asyncio.shield(tasks[number]), PATIENCE)
            assert replies == [b"abcde"[number : number + 1]]
            ahead += 40
        assert link.is_open
        link.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_queued_calls_with_a_common_prefix_are_sent_as_one(tmp_path: Path) -> None:
    seen: list[list[bytes]] = []

    def split(reply: int, count: int) -> list[int]:
        return [reply + number for number in range(count)]

    def call(link: AsyncLink, prefix: Prefix, *own: str) -> Awaitable[list[Any]]:
        return exchange(link, (("ONE", *own),), Joint(Prefix(("ONE",)), packed_arguments(own), len(own), prefix, split))

    def add(command: list[bytes]) -> bytes | None:
        seen.append(command)
        return b"-READONLY no\r\n" if command[1] in (b"other", b"k") else b":%d\r\n" % (10 * len(command))

    async with linked(tmp_path, add) as link:
        prefix, other = Prefix(("SUM", "key")), Prefix(("SUM", "other"))
        calls = [call(link, prefix, name, name.upper()) for name in "abcd"]
        assert await asyncio.gather(*calls) == [[30], [80], [81], [82]]
        assert seen == [[b"ONE", b"a", b"A"], [b"SUM", b"key", b"b", b"B", b"c", b"C", b"d", b"D"]]
        assert await asyncio.gather(*[call(link, prefix, name) for name in "ef"]) == [[20], [20]]
        assert seen[2:] == [[b"ONE", b"e"], [b"ONE", b"f"]]
        calls = [call(link, other, name) for name in "key"]
        errors = [error for (error,) in await asyncio.gather(*calls)]
    assert [type(error) for error in errors] == [redis_errors.ReadOnlyError] * 3
    assert len({id(error) for error in errors}) == 3


async def test_closing_waits_for_replies_to_sent_calls(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link:
        waiting = [asyncio.ensure_future(link.exchange(echoed(number))) for number in range(3)]  # two are queued
        await link.aclose()
        assert link.is_closed
        assert await asyncio.gather(*waiting) == [[b"a%d" % number, b"x" * number] for number in range(3)]
        with pytest.raises(redis_errors.ConnectionError):
            await link.exchange(echoed(4))
        async with asyncio.timeout(PATIENCE):
            await link._lost


@pytest.mark.parametrize("count", [1, 3])
async def test_closing_does_not_wait_for_replies_to_cancelled_calls(tmp_path: Path, count: int) -> None:
    async with linked(tmp_path, echo) as link:
        waiting = [asyncio.ensure_future(link.exchange((("SILENCE",),))) for _ in range(count)]  # the first is sent
        for each in waiting:
            each.cancel()
        await link.aclose()
        assert link._lost.done()


async def test_a_cancelled_opening_of_a_bus_leaves_no_connection_open(tmp_path: Path) -> None:
    is_asked = asyncio.Event()

    def ask(command: list[bytes]) -> None:
        is_asked.set()

    async with linked(tmp_path, ask):
        bus = AsyncBus.connect(f"unix://{tmp_path / 'socket'}", source="tester")
        opening = asyncio.ensure_future(bus)
        async with asyncio.timeout(PATIENCE):
            await is_asked.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert [link._lost.done() for link in bus._engine._shared.values()] == [True]


async def test_an_unsendable_call_fails_alone(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link:
        wrong: list[Any] = ["\ud800", object()]
        calls = [exchange(link, (("ECHO", value),)) for value in ("a", *wrong, "b")]
        first, *errors, last = await asyncio.gather(*calls, return_exceptions=True)
        assert await link.exchange(echoed(1)) == [b"a1", b"x"]
    assert (first, last) == ([b"a"], [b"b"])
    assert all(isinstance(each, Exception) for each in errors)


async def test_a_reply_that_cannot_be_split_ends_all_waiting_calls(tmp_path: Path) -> None:
    def split(reply: Any, count: int) -> list[Any]:
        raise ValueError(reply)

    prefix = Prefix(("ECHO",))
    async with linked(tmp_path, lambda command: b"+OK\r\n") as link, asyncio.timeout(PATIENCE):
        calls = [
            exchange(link, (("ECHO", value),), Joint(prefix, packed_arguments((value,)), 1, prefix, split))
            for value in "abc"
        ]
        first, *own, bystander = await asyncio.gather(*calls, exchange(link, echoed(1)), return_exceptions=True)
        assert link.is_closed
    assert first == [b"OK"]
    assert [type(each) for each in own] == [ValueError] * 2
    assert type(bystander) is redis_errors.ConnectionError


async def test_an_invalid_reply_fails_its_call_and_closes_the_link(tmp_path: Path) -> None:
    def reply(command: list[bytes]) -> bytes | None:
        return b"!garbage\r\n" if command[0] == b"WRONG" else echo(command)

    async with linked(tmp_path, reply) as link:
        commands: list[Commands] = [echoed(1), (("WRONG",),), echoed(2)]
        first, own, bystander = await asyncio.gather(
            *(exchange(link, each) for each in commands), return_exceptions=True
        )
        assert link.is_closed
    assert first == [b"a1", b"x"]
    assert type(own) is redis_errors.InvalidResponse
    assert type(bystander) is redis_errors.ConnectionError


async def test_an_unexpected_reply_closes_the_connection(tmp_path: Path) -> None:
    async with linked(tmp_path, lambda command: b"+OK\r\n+OK\r\n") as link, asyncio.timeout(PATIENCE):
        assert await link.exchange((("ECHO", "a"),)) == [b"OK"]
        await link._lost
        assert link.is_closed


async def test_an_immediate_close_ends_all_waiting_calls(tmp_path: Path) -> None:
    async with linked(tmp_path, echo) as link, asyncio.timeout(PATIENCE):
        waiting = [asyncio.ensure_future(link.exchange((("SILENCE",),))) for _ in range(3)]  # two are queued
        link.close()
        lost = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in lost] == [redis_errors.ConnectionError] * 3


# -- blocking ---------------------------------------------------------------------------------------------------------


class _Silent:
    """A connection to a server that neither reads nor replies."""

    def __init__(self, timeout: float | None) -> None:
        self._sock, self._other = socket.socketpair()
        self._sock.settimeout(timeout)

    def connect(self) -> None:
        """Do nothing: it is open."""

    def disconnect(self) -> None:
        self._sock.close()
        self._other.close()


@pytest.fixture
def silent() -> Iterator[Link]:
    """Return a connection on which the server is silent, with a timeout of 0.3 s; much later it hangs up."""
    link = Link(_Silent(0.3))
    link.open()
    end = threading.Timer(PATIENCE, link.hang_up)
    end.start()
    yield link
    end.cancel()
    end.join()
    link.close()


@pytest.fixture
def signals() -> Iterator[list[float]]:
    """Send this process a signal every 50 ms; yield the times at which it was handled."""
    seen: list[float] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
    stop, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def send() -> None:
        while not stop.wait(0.05):
            signal.pthread_kill(main, signal.SIGUSR1)

    sending = threading.Thread(target=send)
    sending.start()
    yield seen
    stop.set()
    sending.join()
    signal.signal(signal.SIGUSR1, before)


def waits_in_vain(act: Callable[[], object], signals: list[float]) -> bool:
    """Call what waits until its timeout; return whether a signal came meanwhile, which a busy machine may delay."""
    begun, before = time.monotonic(), len(signals)
    with pytest.raises((TimeoutError, BlockingIOError)):
        act()
    assert time.monotonic() - begun > 0.29
    return len(signals) > before


def test_signals_do_not_prolong_the_wait_for_a_reply(silent: Link, signals: list[float]) -> None:
    eventually(lambda: waits_in_vain(silent.receive, signals), "a signal during a wait")


def test_signals_do_not_prolong_the_wait_for_room_to_send(silent: Link, signals: list[float]) -> None:
    eventually(lambda: waits_in_vain(lambda: silent.send(b"x" * 10_000_000), signals), "a signal during a wait")


def test_other_threads_have_the_same_timeout(silent: Link) -> None:
    found: list[Exception] = []

    def wait() -> None:
        for act in (silent.receive, lambda: silent.send(b"x" * 10_000_000)):
            try:
                act()
            except Exception as error:
                found.append(error)

    begun = time.monotonic()
    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join()
    assert [isinstance(each, TimeoutError | BlockingIOError) for each in found] == [True] * 2
    assert time.monotonic() - begun > 0.59


def test_a_link_without_a_timeout_waits_on() -> None:
    link = Link(_Silent(None))
    link.open()
    threading.Timer(0.3, link.hang_up).start()
    with pytest.raises(redis_errors.ConnectionError):
        link.receive()
    link.close()
