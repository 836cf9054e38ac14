"""How the server reads its input and writes its output."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from scratchbus.mcp.pipes import _AHEAD, _CHUNK, InputPipe, OutputPipe, _has_room
from tests.waiting import PATIENCE


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


async def test_only_some_chunks_are_read_ahead():
    out, into = os.pipe()
    os.set_blocking(into, False)
    chunks, sent = InputPipe(out), 0
    with anyio.fail_after(PATIENCE):
        for _ in range(20 * _AHEAD):
            await anyio.lowlevel.checkpoint()
            try:
                sent += os.write(into, b"x" * _CHUNK)
            except BlockingIOError:
                if chunks._is_paused:
                    break
    assert chunks._is_paused
    assert chunks._chunks.qsize() == _AHEAD
    os.close(into)
    found = 0
    with anyio.fail_after(PATIENCE):
        while chunk := await chunks.next():
            found += len(chunk)
    assert found == sent
    os.close(out)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a pipe takes")
@pytest.mark.parametrize("size", [1, select.PIPE_BUF, select.PIPE_BUF + 1, "all"])
async def test_what_an_empty_pipe_takes_is_written_without_a_thread(size: int | str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a thread was asked to write")

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


async def test_a_long_message_that_does_not_fit_beside_another_keeps_nobody_waiting():
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


async def test_a_socket_takes_a_long_message_too():
    ours, theirs = socket.socketpair()
    with ours, theirs, anyio.fail_after(PATIENCE):
        output, message, found = OutputPipe(ours.fileno()), b"x" * 10**6, b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(output.write, message)
            while len(found) < len(message):
                found += await anyio.to_thread.run_sync(theirs.recv, _CHUNK)
    assert found == message


async def test_long_and_short_messages_come_whole_though_the_reader_is_slow():
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
