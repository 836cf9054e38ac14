"""Threads that work beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from tests.waiting import eventually


class Threads:
    """Threads that work while a `with` lasts. Each ends once `stop` is set; an error of one is raised at the end."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as failure:
            self.failures.append(failure)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        eventually(lambda: not any(thread.is_alive() for thread in self._threads), "the work has stopped", 40)
        if self.failures:
            raise self.failures[0]
