"""A bus for each test, and the roles on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from scratchbus import Bus, Page
from tests.waiting import eventually

Run = Callable[[threading.Event], None]


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex}"


@pytest.fixture
def bus(url: str) -> Iterator[Bus]:
    with Bus.connect(url, source="tester") as opened:
        yield opened


@pytest.fixture
def page(bus: Bus) -> Page:
    return bus.page("main")


@pytest.fixture
def running() -> Callable[[Run], contextlib.AbstractContextManager[None]]:
    """Run a role in a thread for the length of a with block; what it raises is raised there."""

    @contextlib.contextmanager
    def run_it(run: Run) -> Iterator[None]:
        stop, problems = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                run(stop)
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)
        eventually(lambda: not thread.is_alive(), "the role has stopped")
        if problems:
            raise problems[0]

    return run_it
