"""Starting quickly: no search for garbage while modules are imported, since what they make stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's search for garbage, which takes a tenth of the time that a short command needs to start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache  # only once: a process that calls `main` repeatedly makes garbage that should be collected
def keep_all() -> None:
    """Let later searches leave alone what there is when a command has opened its bus."""
    gc.freeze()
