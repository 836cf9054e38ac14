"""The renewal of leases and claims in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scratchbus.engine.renewal import AsyncKeeper


class Slow:
    """A renewal that takes a while to be cancelled."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()

    def is_due(self, now: float) -> bool:
        return True

    def keep(self) -> Any:
        return self

    async def run(self, _: object) -> None:
        try:
            self.has_begun.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)


async def test_closing_a_keeper_can_be_cancelled() -> None:
    slow = Slow()
    keeper = AsyncKeeper(slow.run)
    keeper.add(slow)
    await slow.has_begun.wait()
    closing = asyncio.create_task(keeper.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
