"""How the server reads its input and writes its output."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel

from scratchbus.mcp.pipes import _AHEAD, _CHUNK, InputPipe, OutputPipe
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


async def test_long_and_short_messages_come_whole_though_the_reader_is_slow():
    out, into = os.pipe()
    output, messages = OutputPipe(into), [bytes([number]) * size for number, size in enumerate((10**6, 5, 10**5, 7))]
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
