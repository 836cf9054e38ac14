"""Long work: returns its result or, to clients that accept an event stream, its progress and then its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from fastapi import Request
from pydantic_core import to_json
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from scratchbus.errors import ScratchbusError
from scratchbus.http.documents import answer
from scratchbus.http.metrics import open_stream
from scratchbus.http.problems import Refusal, problem_of, refusal
from scratchbus.http.server import RECHECK, caller_of, server_of

STREAM: Final = "text/event-stream"

_EACH: Final = 0.25
"""Seconds between two events of progress."""

Work = Callable[[Callable[[int, int], object]], Awaitable[dict[str, Any]]]
"""Long work with a callback for its progress: (done, total)."""


async def answer_with_progress(request: Request, work: Work) -> Response:
    """Return the result of long work; with `Accept: text/event-stream`, a stream that ends with it."""
    if STREAM in request.headers.get("accept", ""):
        server, caller = server_of(request), caller_of(request)
        return EventSourceResponse(_events(work, lambda: server.callers.check_valid(caller)))
    return answer(await work(lambda done, total: None))


async def _events(work: Work, check_caller: Callable[[], None]) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield `progress` events, then one `result` or `problem`.

    The work ends when the client leaves, or when its token is revoked: `check_caller` raises Refusal then.
    """
    latest: tuple[int, int] | None = None
    sent = None

    def report(done: int, total: int) -> None:
        nonlocal latest
        latest = done, total

    with open_stream():
        task = asyncio.ensure_future(work(report))
        try:
            checked = time.monotonic()
            while not task.done():
                await asyncio.wait({task}, timeout=_EACH)
                if time.monotonic() - checked > RECHECK or task.done():
                    check_caller()
                    checked = time.monotonic()
                if latest is not None and latest != sent:
                    sent = latest
                    yield _event("progress", {"done": sent[0], "total": sent[1]})
            yield _event("result", task.result())
        except ScratchbusError as error:
            yield _problem(problem_of(error))
        except Refusal as error:
            yield _problem(refusal(error))
        finally:
            task.cancel()


def _event(kind: str, document: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(to_json(document).decode(), event=kind)


def _problem(answer: Response) -> ServerSentEvent:
    return ServerSentEvent(bytes(answer.body).decode(), event="problem")
