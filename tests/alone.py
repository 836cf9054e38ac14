"""Run tests marked `alone` by themselves: they limit how long something takes, so the other workers wait.

A busy machine may exceed such a limit once or twice; slow code exceeds it every time. So a test that fails with an
assertion or a timeout is run up to twice more, with its fixtures.

Each test locks the file "running": shared, or exclusively if it is marked `alone`. It holds the lock "entering" while
it waits for that, so that a stream of shared locks cannot starve an exclusive one. A lock ends with its process.
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
    """Create the directory of the locks, shared by all workers of a run."""
    if hasattr(config, "workerinput"):
        config.stash[_DIRECTORY] = Path(config.workerinput[_INPUT])
    else:
        config.stash[_DIRECTORY] = Path(tempfile.mkdtemp(prefix="sb-alone-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the directory of the locks to a worker."""
    node.workerinput[_INPUT] = str(node.config.stash[_DIRECTORY])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the directory at the end of the run."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[_DIRECTORY], ignore_errors=True)


@contextmanager
def _locked(file: Path, how: int) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, how)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may still have the file open


def _is_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the `alone` tests first, so that the others wait only once."""
    items.sort(key=lambda item: not _is_alone(item))
    for item in filter(_is_alone, items):
        item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=["AssertionError", "TimeoutError", "TimeoutExpired"]))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of the timeout, which must not include the wait
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Run a test with its fixtures under its lock; consecutive `alone` tests keep the lock."""
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
