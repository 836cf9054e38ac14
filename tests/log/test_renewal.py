"""The renewal of leases and claims in the background."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest

from scratchbus.engine import renewal
from scratchbus.engine.renewal import AsyncKeeper, Keeper
from scratchbus.errors import EngineForbidden
from tests.waiting import PATIENCE, eventually


class Slow:
    """A renewal that takes until `may_end` to be cancelled."""

    shard, max_pause, check_seconds = 0, renewal.MAX_PAUSE, 0.1

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


class Renewed:
    """A renewal that is always due; it notes that it was done."""

    shard, max_pause, check_seconds = 0, renewal.MAX_PAUSE, 0.1

    def __init__(self) -> None:
        self.was_kept = asyncio.Event()

    def is_due(self, now: float) -> bool:
        return True

    def keep(self) -> Any:
        self.was_kept.set()


def test_a_keeper_renews_in_a_second_event_loop_what_was_added_there() -> None:
    keeper, first, second = AsyncKeeper(lambda _: asyncio.sleep(0)), Renewed(), Renewed()

    async def keep(renewed: Renewed) -> None:
        keeper.add(renewed)
        await asyncio.wait_for(renewed.was_kept.wait(), PATIENCE)

    abandoned = asyncio.new_event_loop()
    abandoned.run_until_complete(keep(first))
    first.was_kept.clear()
    with asyncio.Runner() as runner:
        runner.run(keep(second))
        assert not first.was_kept.is_set()  # its holder may never run again
    with asyncio.Runner(loop_factory=lambda: abandoned) as runner:
        runner.run(keeper.close())


class Refused:
    """A renewal that the engine always refuses; it notes when, by a clock that only its checks advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_pause: float = renewal.MAX_PAUSE) -> None:
        self.shard, self.max_pause, self.check_seconds = 0, max_pause, 0.001
        self.times, self.is_over, self._now = list[float](), threading.Event(), 0.0
        monkeypatch.setattr(renewal, "time", self)
        monkeypatch.setattr(renewal, "CHECK_SECONDS", 0.001)

    def monotonic(self) -> float:
        return self._now

    def is_due(self, now: float) -> bool:
        self._now += 0.1
        if now > 60:
            self.is_over.set()
        return not self.is_over.is_set()

    def keep(self) -> Any:
        self.times.append(self._now)
        raise EngineForbidden("the user may not write")

    def assert_rarely_tried(self) -> None:
        assert 10 < len(self.times) < 30
        assert self.times[-1] - self.times[-2] < 7


def test_a_renewal_that_keeps_failing_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Refused(monkeypatch)
    keeper = Keeper(lambda _: None)
    keeper.add(refused)
    assert refused.is_over.wait(PATIENCE)
    keeper.close()
    refused.assert_rarely_tried()


async def test_an_async_renewal_that_keeps_failing_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = Refused(monkeypatch)
    keeper = AsyncKeeper(lambda _: asyncio.sleep(0))
    keeper.add(refused)
    assert await asyncio.to_thread(refused.is_over.wait, PATIENCE)
    await keeper.close()
    refused.assert_rarely_tried()


def test_a_failing_renewal_of_a_short_lease_is_tried_again_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Refused(monkeypatch, renewal.pause_for(3))
    keeper = Keeper(lambda _: None)
    keeper.add(refused)
    assert refused.is_over.wait(PATIENCE)
    keeper.close()
    assert max(after - before for before, after in pairwise(refused.times)) < 1


class Rare:
    """A renewal that is rarely checked; it counts the checks."""

    shard, max_pause, check_seconds = 0, renewal.MAX_PAUSE, 60.0

    def __init__(self) -> None:
        self.checks = 0

    def is_due(self, now: float) -> bool:
        self.checks += 1
        return False

    def keep(self) -> Any:
        """Never called."""


class Quick(Rare):
    """One that is often checked."""

    check_seconds = 0.001


def test_a_keeper_sleeps_until_its_next_check() -> None:
    keeper, rare, quick = Keeper(lambda _: None), Rare(), Quick()
    keeper.add(rare)
    eventually(lambda: rare.checks and keeper._threads[0]._pause == rare.check_seconds)
    assert rare.checks == 1
    keeper.add(quick)
    eventually(lambda: quick.checks > 2)
    keeper.close()


async def test_an_async_keeper_sleeps_until_its_next_check() -> None:
    keeper, rare, quick = AsyncKeeper(lambda _: asyncio.sleep(0)), Rare(), Quick()
    keeper.add(rare)
    await asyncio.to_thread(eventually, lambda: keeper._tasks[0]._pause == rare.check_seconds)
    assert rare.checks == 1
    keeper.add(quick)
    await asyncio.to_thread(eventually, lambda: quick.checks > 2)
    await keeper.close()


class Hung:
    """A renewal that ends when the other has been renewed twice; both are always due."""

    max_pause, check_seconds = renewal.MAX_PAUSE, 0.001

    def __init__(self, shard: int, other: Hung | None = None) -> None:
        self.shard, self.times, self._other = shard, 0, other

    def is_due(self, now: float) -> bool:
        return True

    def keep(self) -> Any:
        return self

    def renew(self) -> None:
        if self._other is not None:
            eventually(lambda: self._other.times > 1)
        self.times += 1


def test_a_renewal_that_hangs_delays_those_of_no_other_shard() -> None:
    keeper = Keeper(lambda step: step.renew())  # type: ignore[attr-defined]
    sound = Hung(1)
    hung = Hung(0, other=sound)
    keeper.add(hung)
    keeper.add(sound)
    eventually(lambda: hung.times)
    keeper.close()


async def test_an_async_renewal_that_hangs_delays_those_of_no_other_shard() -> None:
    keeper = AsyncKeeper(lambda step: asyncio.to_thread(step.renew))  # type: ignore[attr-defined]
    sound = Hung(1)
    hung = Hung(0, other=sound)
    keeper.add(hung)
    keeper.add(sound)
    await asyncio.to_thread(eventually, lambda: hung.times)
    await keeper.close()
