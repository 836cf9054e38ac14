"""Processes that tests start and kill."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, Self

from tests.forkserver import CONTEXT


class Crew:
    """Processes that each run a function; none outlives the crew."""

    def __init__(self) -> None:
        self._members: list[BaseProcess] = []

    def start(self, work: Callable[..., None], *args: Any) -> BaseProcess:
        process = CONTEXT.Process(target=work, args=args, daemon=True)
        process.start()
        self._members.append(process)
        return process

    def barrier(self, parties: int) -> Any:
        """Return a barrier to pass to processes."""
        return CONTEXT.Barrier(parties, timeout=30)

    def queue(self) -> Any:
        """Return a queue to pass to processes."""
        return CONTEXT.Queue()

    def join(self, within: float = 40.0, *, but: Collection[BaseProcess] = ()) -> None:
        """Wait until all processes, except for `but` and killed ones, have ended without an error."""
        for process in self._members:
            if process in but or process.exitcode == -signal.SIGKILL:
                continue
            process.join(within)
            assert process.exitcode == 0, f"{process.name} ended with {process.exitcode}"

    def close(self) -> None:
        """Kill all processes."""
        for process in self._members:
            kill(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Killable(Protocol):
    """A process that can be killed and joined."""

    def kill(self) -> None: ...

    def join(self) -> None: ...


def kill(process: Killable) -> None:
    """Kill a process, as a crash would."""
    process.kill()
    process.join()
