"""A process in which no thread can be started for a while: the call fails or does without, and nothing hangs later."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from scratchbus.engine.queues import Queues
from scratchbus.engine.renewal import MAX_PAUSE, Keeper
from scratchbus.engine.steps import Queued
from scratchbus.engine.waits import call_within
from scratchbus.subscriptions.concurrency import run_together
from tests.waiting import eventually


@contextmanager
def no_more_threads(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> Iterator[None]:
    """Let only so many more threads start."""
    start, left = threading.Thread.start, iter(range(after))

    def refuse(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_queued_jobs_are_done_by_the_caller_before_them(monkeypatch):
    queues, begun, end = Queues(), threading.Event(), threading.Event()

    def work(jobs: Sequence[int]) -> Generator[Any, Any, Sequence[int]]:
        begun.set()
        end.wait(60)
        yield from ()
        return jobs

    def drive(steps: Any) -> Any:
        try:
            next(steps)
        except StopIteration as done:
            return done.value

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(queues.run, Queued(queues, "key", 1, work), drive)
        assert begun.wait(60)
        second = pool.submit(queues.run, Queued(queues, "key", 2, work), drive)
        eventually(lambda: queues._waiting["key"])
        with no_more_threads(monkeypatch):
            end.set()
            assert (first.result(60), second.result(60)) == (1, 2)


def test_the_keeper_renews_what_is_added_later(monkeypatch):
    class Lease:
        is_renewed = False
        shard, max_pause, check_seconds = 0, MAX_PAUSE, 0.1

        def is_due(self, now: float) -> bool:
            return True

        def keep(self) -> Any:
            self.is_renewed = True

    keeper, lease = Keeper(lambda step: None), Lease()
    with no_more_threads(monkeypatch), pytest.raises(RuntimeError):
        keeper.add(Lease())
    keeper.add(lease)
    eventually(lambda: lease.is_renewed)
    keeper.close()


def test_handlers_end_when_not_all_of_them_can_start(monkeypatch):
    halted = threading.Event()
    with no_more_threads(monkeypatch, after=1), pytest.raises(RuntimeError, match="can't start new thread"):
        run_together([lambda: halted.wait(60)] * 2, halted.set)
    assert halted.is_set()


@pytest.mark.real
def test_a_tail_is_read_by_the_next_thread_that_starts(monkeypatch, real_bus):
    with no_more_threads(monkeypatch), pytest.raises(RuntimeError):
        real_bus.feeds.pump(0)
    real_bus.feeds.pump(0)
    eventually(lambda: real_bus.feeds.feed(0).has_begun)


def test_a_call_that_no_thread_can_make_times_out(monkeypatch):
    with no_more_threads(monkeypatch), pytest.raises(TimeoutError):
        call_within(60, list)
