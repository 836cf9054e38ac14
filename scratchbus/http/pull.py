"""Pulls over HTTP: a batch reaches a client that is still there and still welcome, or is given back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import Request

from scratchbus import AsyncBus, Pulled
from scratchbus.errors import ScratchbusError
from scratchbus.http.client_connections import wait_until_gone
from scratchbus.http.server import RECHECK, caller_of, server_of


async def pull_for(request: Request, bus: AsyncBus, name: str, **options: Any) -> Pulled | None:
    """Return a batch for the caller of a request; None if the client has left.

    Raises Refusal when the caller's token is revoked meanwhile.
    """
    server, caller = server_of(request), caller_of(request)
    pull = asyncio.ensure_future(bus.pull(name, by=caller.name, **options))
    disconnected = asyncio.ensure_future(wait_until_gone(request.receive))
    is_answered = False
    try:
        while not pull.done() and not disconnected.done():
            await asyncio.wait({pull, disconnected}, timeout=RECHECK, return_when=asyncio.FIRST_COMPLETED)
            server.callers.check_valid(caller)
        await asyncio.sleep(0)  # so that a client that left just now is seen to have left
        if disconnected.done():
            return None
        pulled = pull.result()
        is_answered = True
        return pulled
    finally:
        disconnected.cancel()
        if not is_answered:
            await asyncio.shield(_give_back(bus, name, pull))


async def _give_back(bus: AsyncBus, name: str, pull: asyncio.Future[Pulled]) -> None:
    """End a pull, and give back the events it has returned already."""
    pull.cancel()  # it gives back the events it is about to return
    await asyncio.wait({pull})
    if pull.cancelled() or pull.exception() is not None or not pull.result().deliveries:
        return
    pulled = pull.result()
    with suppress(ScratchbusError):  # it comes again when the lease ends
        await bus.requeue(name, pulled.token, [each.position for each in pulled.deliveries])
