"""Tests marked `alone` bound how long something takes: while one runs, the other workers of the run wait.

What else the machine does can break such a bound once or twice; code that is too slow breaks it each time. So a test
in which an assertion fails or a wait times out is tried twice more, fixtures included.

A test holds the file "running" shared, one that is alone exclusively. Each goes through the file "entering" first, so
that those that share do not keep out one that waits to be alone. Locks end with the process that holds them.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

_DIRECTORY = pytest.StashKey[Path]()
_HELD = pytest.StashKey[list[ExitStack]]()
_INPUT = "alone_directory"


def pytest_configure(config: pytest.Config) -> None:
    """Make the directory of the locks, one for all workers of a run."""
    if hasattr(config, "workerinput"):
        config.stash[_DIRECTORY] = Path(config.workerinput[_INPUT])
    else:
        config.stash[_DIRECTORY] = Path(tempfile.mkdtemp(prefix="sb-alone-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where the locks are."""
    node.workerinput[_INPUT] = str(node.config.stash[_DIRECTORY])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the directory, at the end of the run."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[_DIRECTORY], ignore_errors=True)


@contextmanager
def _locked(file: Path, how: int) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, how)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may have the file open still


def _is_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that run alone first, so that the others wait once."""
    items.sort(key=lambda item: not _is_alone(item))
    for item in filter(_is_alone, items):
        item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=["AssertionError", "TimeoutError", "TimeoutExpired"]))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of the timeout, which is not to count the wait
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Run a test, its fixtures included, beside others or alone; several in a row that are alone keep the lock."""
    directory, held = item.config.stash[_DIRECTORY], item.config.stash.setdefault(_HELD, [])
    if not held:
        with _locked(directory / "entering", fcntl.LOCK_EX), ExitStack() as stack:
            stack.enter_context(_locked(directory / "running", fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH))
            held.append(stack.pop_all())
    try:
        return (yield)
    finally:
        if not (_is_alone(item) and _is_alone(nextitem)):
            held.pop().close()
