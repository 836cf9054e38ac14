"""Pulls over HTTP: a batch reaches a client that is still there and still welcome, or is given back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from fastapi import Request

from scratchbus import AsyncBus, Pulled
from scratchbus.errors import ScratchbusError
from scratchbus.http.server import caller_of, server_of

RECHECK: Final = 2.0
"""Seconds between checks that a waiting caller is still valid."""


async def pull_for(request: Request, bus: AsyncBus, name: str, **given: Any) -> Pulled | None:
    """Return a batch for the caller of a request; None if the client has left.

    Raises Refusal when the caller's token is revoked meanwhile.
    """
    server, caller = server_of(request), caller_of(request)
    pulling = asyncio.ensure_future(bus.pull(name, by=caller.name, **given))
    gone = asyncio.ensure_future(_until_gone(request))
    is_answered = False
    try:
        while not pulling.done() and not gone.done():
            await asyncio.wait({pulling, gone}, timeout=RECHECK, return_when=asyncio.FIRST_COMPLETED)
            server.callers.check_valid(caller)
        await asyncio.sleep(0)  # so that a client that left just now is seen to have left
        if gone.done():
            return None
        pulled = pulling.result()
        is_answered = True
        return pulled
    finally:
        gone.cancel()
        if not is_answered:
            await asyncio.shield(_give_back(bus, name, pulling))


async def _give_back(bus: AsyncBus, name: str, pulling: asyncio.Future[Pulled]) -> None:
    """End a pull, and give back the events it has returned already."""
    pulling.cancel()  # it gives back the events it is about to return
    await asyncio.wait({pulling})
    if pulling.cancelled() or pulling.exception() is not None or not pulling.result().deliveries:
        return
    pulled = pulling.result()
    with suppress(ScratchbusError):  # it comes again when the lease ends
        await bus.requeue(name, pulled.token, [each.position for each in pulled.deliveries])


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
