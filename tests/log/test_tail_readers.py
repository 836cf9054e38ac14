"""Tails that a bus reads for all its followers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from scratchbus.errors import BusClosed
from scratchbus.eventlog.tail_readers import AsyncFeeds


class SlowlyClosing:
    """An engine whose reads end with BusClosed while it is closing."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()

    async def run(self, conversation: Any) -> None:
        """Wait until this closes."""
        conversation.close()
        await self._closing.wait()
        raise BusClosed

    async def break_off(self) -> None:
        """End all reads, and take some time for it."""
        self._closing.set()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_closing_a_tail_logs_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    feeds = AsyncFeeds(cast(Any, None), cast(Any, SlowlyClosing()))
    feeds.feed(0)
    await asyncio.sleep(0)
    await feeds.close()
    assert capsys.readouterr().err == ""
