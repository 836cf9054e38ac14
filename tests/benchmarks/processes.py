"""Processes beside the one that measures: each does what it is told and says when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests.forkserver import CONTEXT

PATIENCE = 120.0
"""Seconds after which a process that says nothing counts as lost."""


class Other:
    """Another process, by the pipe to it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def tell(self, word: Any) -> None:
        """Send it something."""
        self._pipe.send(word)

    def hear(self) -> Any:
        """Return what it says next. Raises RuntimeError when it says nothing."""
        if not self._pipe.poll(PATIENCE):
            raise RuntimeError(f"a process said nothing for {PATIENCE:g} s")
        return self._pipe.recv()


@contextmanager
def running(work: Callable[..., None], *arguments: Any) -> Iterator[Other]:
    """Run a function of a module in a process of its own, with its end of a pipe first; it ends with the `with`."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield Other(here)
    finally:
        process.terminate()
        process.join()
        here.close()
