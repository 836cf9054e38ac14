"""Serve one client over standard input and output.

We use a transport of our own because the SDK's has three defects. It reads lines in a thread that cannot be abandoned,
so a signal would not end the process. It ignores a message that is not JSON, such as one with half a surrogate pair,
and the sender would wait forever; here it gets an error. And it drops pending answers when the input ends; here they
are sent first.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

GRACE: Final = 0.8
"""Seconds after a signal until the process exits, even if the client reads nothing."""

PATIENCE: Final = 0.5
"""Seconds to wait for pending answers after the end of the input."""

_CHUNK: Final = 65536
_AHEAD: Final = 16  # chunks read ahead of processing


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the input ends, or until SIGTERM or SIGINT.

    File descriptor 1 is redirected to standard error meanwhile, so that only the protocol reaches the client.
    """
    wire_in, wire_out = _taken(0, os.open(os.devnull, os.O_RDONLY)), _taken(1, os.dup(2))
    incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    line = _Line(incoming[0], outgoing[0].clone())
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, tasks.cancel_scope)
            tasks.start_soon(line.receive, wire_in)
            tasks.start_soon(line.send, outgoing[1], wire_out)
            await server.run(incoming[1], outgoing[0], server.create_initialization_options())
            tasks.cancel_scope.cancel()
    finally:
        for stream in (*incoming, *outgoing):
            stream.close()


def _taken(descriptor: int, instead: int) -> int:
    """Return a duplicate of a descriptor, and replace the original by another file."""
    mine = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return mine


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            end = threading.Timer(GRACE, os._exit, (0,))  # acknowledged writes are in the log, so nothing is lost
            end.daemon = True
            end.start()
            scope.cancel()


class _Line:
    """The messages of one client, in both directions."""

    def __init__(
        self,
        received: MemoryObjectSendStream[SessionMessage | Exception],
        answers: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        self._received = received
        self._answers = answers
        self._unanswered: set[RequestId] = set()
        self._changed = anyio.Event()

    async def receive(self, descriptor: int) -> None:
        """Forward the client's messages until the input ends."""
        chunks: asyncio.Queue[bytes] = asyncio.Queue()
        room = threading.Semaphore(_AHEAD)
        reader = (descriptor, asyncio.get_running_loop(), chunks, room)
        threading.Thread(target=_read, args=reader, name="stdin", daemon=True).start()
        rest: list[bytes] = []  # of an incomplete line; joining it with every chunk would take quadratic time
        with self._received, self._answers:
            while chunk := await chunks.get():
                room.release()
                first, *others = chunk.split(b"\n")
                rest.append(first)
                for each in others:
                    await self._take(b"".join(rest))
                    rest = [each]
            await self._take(b"".join(rest))
            with anyio.move_on_after(PATIENCE):
                while self._unanswered:
                    await self._changed.wait()

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as problem:
            await self._answers.send(SessionMessage(_no_message(line, problem)))
            return
        if isinstance(message, JSONRPCRequest):
            self._unanswered.add(message.id)
        await self._received.send(SessionMessage(message))

    async def send(self, messages: MemoryObjectReceiveStream[SessionMessage], descriptor: int) -> None:
        """Send messages to the client; discard them once it has gone."""
        async with messages:
            async for each in messages:
                data = f"{each.message.model_dump_json(by_alias=True, exclude_unset=True)}\n".encode()
                with suppress(BrokenPipeError):
                    if _has_room(descriptor, len(data)):  # a thread would take longer than all of the call
                        os.write(descriptor, data)
                    else:
                        await anyio.to_thread.run_sync(_write, descriptor, data, abandon_on_cancel=True)
                if isinstance(each.message, JSONRPCResponse | JSONRPCError) and each.message.id is not None:
                    self._unanswered.discard(each.message.id)
                    self._changed.set()
                    self._changed = anyio.Event()


def _read(
    descriptor: int, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes], room: threading.Semaphore
) -> None:
    """Read until the end, which is passed on as an empty chunk."""
    chunk = b"more"
    while chunk:
        room.acquire()
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError:
            chunk = b""
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        except RuntimeError:  # the loop is closed
            return


def _has_room(descriptor: int, size: int) -> bool:
    """Return whether so many bytes can be written whole without waiting."""
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    return size <= select.PIPE_BUF and ready.poll(0) == [(descriptor, select.POLLOUT)]


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _no_message(line: bytes, problem: ValidationError) -> JSONRPCError:
    """Return the error for an invalid message, with its id if it has one."""
    why = problem.errors(include_url=False)[0]["msg"]
    text = f"this is not a JSON-RPC message in UTF-8, and nothing was done: {why}"
    return JSONRPCError(jsonrpc="2.0", id=_id_in(line), error=ErrorData(code=PARSE_ERROR, message=text))


def _int(digits: str) -> int | None:
    """Return a number, None for one that Python refuses to convert: the id beside it is still wanted."""
    return int(digits) if len(digits) < sys.int_info.default_max_str_digits else None


def _id_in(line: bytes) -> RequestId | None:
    with suppress(ValueError, RecursionError):
        document = json.loads(line.decode(errors="replace"), parse_int=_int)
        id = document.get("id") if isinstance(document, dict) else None
        if isinstance(id, str | int) and str(id).isascii():
            return id
    return None
