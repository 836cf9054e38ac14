"""The renewal of leases and claims in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scratchbus.engine.renewal import AsyncKeeper


class Slow:
    """A renewal that takes until `may_end` to be cancelled."""

    def __init__(self) -> None:
        self.has_begun, self.is_ending, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def is_due(self, now: float) -> bool:
        return True

    def keep(self) -> Any:
        return self

    async def run(self, _: object) -> None:
        try:
            self.has_begun.set()
            await asyncio.sleep(60)
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def test_closing_a_keeper_can_be_cancelled() -> None:
    slow = Slow()
    keeper = AsyncKeeper(slow.run)
    keeper.add(slow)
    await slow.has_begun.wait()
    closing = asyncio.create_task(keeper.close())
    await slow.is_ending.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    slow.may_end.set()
