"""Serve one client over standard input and output, one message a line.

A line that is not a message, such as one with half a surrogate pair, gets an error, since its sender would otherwise
wait forever. Requests received before the input ends are answered before the process exits.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
from pydantic_core import from_json, to_json

from scratchbus.daemon import exit_within
from scratchbus.mcp.json_rpc import Id, McpSession, Message
from scratchbus.mcp.methods import Methods
from scratchbus.mcp.pipes import InputPipe, OutputPipe
from scratchbus.mcp.protocol import INVALID_REQUEST, PARSE_ERROR, ProtocolError

GRACE: Final = 0.8
"""Seconds after a signal until the process exits, even if the client reads nothing."""

ANSWER_SECONDS: Final = 5.0
"""Seconds to wait for each next pending answer after the end of the input; a signal ends that."""

MAX_MESSAGE: Final = 20 * 2**20
"""The most bytes of a message. The rest of a longer line is read and discarded."""

_ANY_OF: Final = ("method", "result", "error")
_HEAD: Final = 512
_EARLY_ID: Final = re.compile(
    rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15}|"[ -!#-\[\]-~]{1,128}")'
)

Send = Callable[[Message], Awaitable[None]]


async def serve_stdio(methods: Methods) -> None:
    """Serve until the input ends, or until SIGTERM or SIGINT.

    File descriptor 1 is redirected to standard error meanwhile, so that only the protocol reaches the client.
    """
    input_descriptor = _replace_descriptor(0, os.open(os.devnull, os.O_RDONLY))
    output = OutputPipe(_replace_descriptor(1, os.dup(2)))

    async def send(message: Message) -> None:
        await output.write(to_json(message) + b"\n")
        if "method" not in message:
            session.settle(message["id"])

    async with methods.serving(), anyio.create_task_group() as tasks:
        session = McpSession(methods, tasks, send)
        async with session.ending:
            tasks.start_soon(_end_on_signal, tasks.cancel_scope)
            await _receive(session, send, InputPipe(input_descriptor))
            await session.wait_until_answered(ANSWER_SECONDS)
        tasks.cancel_scope.cancel()


def _replace_descriptor(descriptor: int, replacement: int) -> int:
    """Return a duplicate of a descriptor, and replace the original by another file."""
    duplicate = os.dup(descriptor)
    os.dup2(replacement, descriptor)
    os.close(replacement)
    return duplicate


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            exit_within(GRACE)
            scope.cancel()


class _Partial:
    """An incomplete line, kept in chunks, since joining them each time would take quadratic time."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk; of a line that is too long, keep only the beginning."""
        self.size += len(chunk)
        if self.size > MAX_MESSAGE:
            del self.chunks[1:]
        elif chunk:
            self.chunks.append(chunk)


async def _receive(session: McpSession, send: Send, chunks: InputPipe) -> None:
    """Forward the client's messages until the input ends."""
    line = _Partial()

    def take(chunk: bytes) -> bool:
        """Take a chunk if it is one whole message, as most are."""
        if line.size or chunk.find(b"\n") != len(chunk) - 1:
            return False
        try:
            message = _message(chunk)
        except ValueError:
            return False
        session.take(message)
        return True

    while chunk := await chunks.next(take):
        first, *lines = chunk.split(b"\n")
        line.add(first)
        for each in lines:
            await _take(session, send, line)
            line = _Partial()
            line.add(each)
    await _take(session, send, line)


async def _take(session: McpSession, send: Send, partial: _Partial) -> None:
    if partial.size > MAX_MESSAGE:
        text = f"this message is {partial.size:,} bytes long and was discarded; the limit is {MAX_MESSAGE:,}"
        await send(_error(_early_id(partial), INVALID_REQUEST, text))
        return
    line = b"".join(partial.chunks)
    if not line.strip():
        return
    try:
        message = _message(line)
    except ValueError as problem:
        text = f"this is not a JSON-RPC message in UTF-8, and nothing was done: {problem}"
        await send(_error(_id_in(line), PARSE_ERROR, text))
    else:
        session.take(message)


def _message(line: bytes) -> Message:
    """Return the message in a line. Raises ValueError if there is none."""
    message = from_json(line)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ValueError('it is not an object with "jsonrpc": "2.0"')
    id = message.get("id", 0)
    if not isinstance(id, str | int) or isinstance(id, bool):
        raise ValueError("its id is neither a text nor a whole number")
    if not isinstance(message.get("method", ""), str) or not isinstance(message.get("params") or {}, dict):
        raise ValueError("its method is not a text, or its params are not an object")
    if message.keys().isdisjoint(_ANY_OF):
        raise ValueError("it has no method")
    return message


def _error(id: Id | None, code: int, text: str) -> Message:
    """Return the answer to a message that is not a request, with its id if it has one."""
    return {"jsonrpc": "2.0", "id": id, "error": ProtocolError(code, text).document}


def _early_id(line: _Partial) -> Id | None:
    """Return the id of a message that is too long, if it comes early enough to be seen."""
    found = _EARLY_ID.search(line.chunks[0][:_HEAD]) if line.chunks else None
    if found is None:
        return None
    return int(found[1]) if found[1].isdigit() else found[1].strip(b'"').decode()


def _int(digits: str) -> int | None:
    """Return a number, or None if Python refuses to convert it: the id in the same message is still needed."""
    return int(digits) if len(digits) < sys.int_info.default_max_str_digits else None


def _id_in(line: bytes) -> Id | None:
    with suppress(ValueError, RecursionError):
        document = json.loads(line.decode(errors="replace"), parse_int=_int)
        id = document.get("id") if isinstance(document, dict) else None
        if isinstance(id, str | int) and not isinstance(id, bool) and str(id).isascii():
            return id
    return None
