"""The pipes through which the server reads and writes."""

from __future__ import annotations

import fcntl
import os
import random
import select
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from scratchbus.mcp.json_rpc import Message
from scratchbus.mcp.pipes import _CHUNK, _MAX_READ_AHEAD, InputPipe, OutputPipe, _has_room, _unread
from scratchbus.mcp.protocol import PARSE_ERROR
from scratchbus.mcp.stdio import _receive
from tests.waiting import PATIENCE


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


async def read_all(descriptor: int) -> bytes:
    chunks, found = InputPipe(descriptor), b""
    with anyio.fail_after(PATIENCE):
        while chunk := await chunks.next():
            found += chunk
    return found


async def test_a_file_is_read_like_a_pipe(tmp_path: Path):
    text = os.urandom(3 * _CHUNK + 5)
    (tmp_path / "lines").write_bytes(text)
    descriptor = os.open(tmp_path / "lines", os.O_RDONLY)
    try:
        assert await read_all(descriptor) == text
    finally:
        os.close(descriptor)


async def test_the_number_of_chunks_read_ahead_is_limited():
    out, into = os.pipe()
    os.set_blocking(into, False)
    chunks, sent = InputPipe(out), 0
    with anyio.fail_after(PATIENCE):
        for _ in range(20 * _MAX_READ_AHEAD):
            await anyio.lowlevel.checkpoint()
            try:
                sent += os.write(into, b"x" * _CHUNK)
            except BlockingIOError:
                if chunks._is_paused:
                    break
    assert chunks._is_paused
    assert chunks._chunks.qsize() == _MAX_READ_AHEAD
    os.close(into)
    found = 0
    with anyio.fail_after(PATIENCE):
        while chunk := await chunks.next():
            found += len(chunk)
    assert found == sent
    os.close(out)


async def test_an_awaited_chunk_is_taken_directly():
    out, into = os.pipe()
    chunks, taken = InputPipe(out), list[bytes]()

    def take(chunk: bytes) -> bool:
        if chunk.isdigit():
            taken.append(chunk)
        return chunk.isdigit()

    async def write(*sent: bytes) -> None:
        for each in sent:
            os.write(into, each)
            while _unread(into):
                await anyio.lowlevel.checkpoint()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, b"1", b"2", b"three")
            assert await chunks.next(take) == b"three"
        assert taken == [b"1", b"2"]
        await write(b"4")
        assert await chunks.next(take) == b"4"  # which arrived while none was awaited
        os.close(into)
        assert await chunks.next(take) == b""
    assert taken == [b"1", b"2"]
    os.close(out)


async def test_chunks_keep_their_order():
    out, into = os.pipe()
    chunks, received = InputPipe(out), list[bytes]()

    async def read() -> None:
        received.append(await chunks.next(bytes.isdigit))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            while chunks._take_directly is None:
                await anyio.lowlevel.checkpoint()
            for each in (b"three", b"4"):  # both in one turn of the loop
                os.write(into, each)
                chunks._read()
        assert received == [b"three"]
        assert await chunks.next(bytes.isdigit) == b"4"
    os.close(into)
    os.close(out)


@pytest.mark.parametrize("seed", range(10))
async def test_messages_in_pieces_of_any_size_keep_their_order(seed: int):
    dice = random.Random(seed)
    lines = [b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number for number in range(200)]
    for number in range(0, 200, 20):
        lines[number] = b"hello? " + lines[number]
    taken: list[int] = []
    out, into = os.pipe()

    class Session:
        def take(self, message: Message) -> None:
            taken.append(message["id"])

    async def send(message: Message) -> None:
        for _ in range(dice.randrange(20)):
            await anyio.lowlevel.checkpoint()
        taken.append(message["error"]["code"])

    async def write() -> None:
        left = b"".join(lines)
        while left:
            start, end = (left.find(mark, 1) + 1 for mark in (b"{", b"\n"))
            size = dice.choice([max(start - 1, 1), end, end, dice.randrange(1, 200)])
            os.write(into, left[:size])
            left = left[size:]
            while _unread(into):
                await anyio.lowlevel.checkpoint()
            for _ in range(dice.randrange(5)):
                await anyio.lowlevel.checkpoint()
        os.close(into)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await _receive(Session(), send, InputPipe(out))  # type: ignore[arg-type]
    os.close(out)
    assert taken == [number if number % 20 else PARSE_ERROR for number in range(200)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the capacity of a pipe")
@pytest.mark.parametrize("size", [1, select.PIPE_BUF, select.PIPE_BUF + 1, "all"])
async def test_a_message_that_fits_a_pipe_is_written_without_a_thread(size: int | str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a thread was used to write")

    monkeypatch.setattr("scratchbus.mcp.pipes.anyio.to_thread.run_sync", refuse)
    out, into = os.pipe()
    message = os.urandom(fcntl.fcntl(into, fcntl.F_GETPIPE_SZ) if isinstance(size, str) else size)
    output, found = OutputPipe(into), b""
    for _ in range(2):
        with anyio.fail_after(PATIENCE):
            await output.write(message)
        while len(found) < len(message):
            found += os.read(out, _CHUNK)
        assert found == message
        found = b""
    os.close(out)
    os.close(into)


async def test_a_message_that_does_not_fit_does_not_block_the_loop():
    out, into = os.pipe()
    output, message = OutputPipe(into), b"x" * 60_000
    with anyio.fail_after(PATIENCE):
        await output.write(b"y")
        assert not _has_room(into, len(message))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(output.write, message)
            await anyio.lowlevel.checkpoint()
            found = b""
            while len(found) < 1 + len(message):
                found += await anyio.to_thread.run_sync(os.read, out, 4_000)
    assert found == b"y" + message
    os.close(out)
    os.close(into)


async def test_a_message_whose_task_is_cancelled_is_written_whole():
    """Its thread waits for the reader; the next message follows its last byte."""
    out, into = os.pipe()
    output, first, second = OutputPipe(into), b"1" * 300_000, b"2" * 300_000
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as cancelled:
                cancelled.start_soon(output.write, first)
                while not _unread(into):
                    await anyio.lowlevel.checkpoint()
                cancelled.cancel_scope.cancel()
            tasks.start_soon(output.write, second)
            await anyio.sleep(0.1)
            found = b""
            while len(found) < len(first) + len(second):
                found += await anyio.to_thread.run_sync(os.read, out, 4_000)
    assert found == first + second
    os.close(out)
    os.close(into)


async def test_a_long_message_is_written_to_a_socket():
    ours, theirs = socket.socketpair()
    with ours, theirs, anyio.fail_after(PATIENCE):
        output, message, found = OutputPipe(ours.fileno()), b"x" * 10**6, b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(output.write, message)
            while len(found) < len(message):
                found += await anyio.to_thread.run_sync(theirs.recv, _CHUNK)
    assert found == message


@pytest.mark.parametrize("size", [5, 4_000, 60_000, 10**6])
async def test_messages_are_written_whole_to_a_pipe_that_does_not_block(size: int):
    out, into = os.pipe()
    os.set_blocking(into, False)
    output, message, found = OutputPipe(into), b"x" * size, b""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(output.write, message)
            await anyio.sleep(0.05)
            while len(found) < 20 * size:
                found += await anyio.to_thread.run_sync(os.read, out, _CHUNK)
    assert found == 20 * message
    os.close(out)
    await output.write(message)  # nobody reads this
    os.close(into)


async def test_one_socket_is_used_for_input_and_output():
    ours, theirs = socket.socketpair()
    with ours, theirs, anyio.fail_after(PATIENCE):
        chunks, output = InputPipe(ours.fileno()), OutputPipe(ours.fileno())
        message, found = b"x" * 10**6, b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(output.write, message)
            while len(found) < len(message):
                found += await anyio.to_thread.run_sync(theirs.recv, _CHUNK)
        assert found == message
        theirs.sendall(b"question")
        assert await chunks.next() == b"question"
        theirs.shutdown(socket.SHUT_WR)
        assert await chunks.next() == b""


async def test_messages_arrive_whole_at_a_slow_reader():
    out, into = os.pipe()
    output, messages = (
        OutputPipe(into),
        [bytes([number]) * size for number, size in enumerate((10**6, 5, 10**5, 7))],
    )
    found = b""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for message in messages:
                tasks.start_soon(output.write, message)
            await anyio.lowlevel.checkpoint()
            while len(found) < sum(map(len, messages)):
                found += await anyio.to_thread.run_sync(os.read, out, 4_000)
    assert found == b"".join(messages)
    os.close(out)
    await output.write(b"nobody reads this")
    os.close(into)
