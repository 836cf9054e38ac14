"""Pause the garbage collector while many lasting documents are made."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def with_gc_paused(build: Callable[[], T]) -> T:
    """Return the result of a function, with the cyclic garbage collector paused until it returns.

    Python scans all objects each time that their number has grown by a quarter, which costs as much as making some
    hundred thousand documents, none of which is garbage. The function must not wait: other tasks of the process would
    run without the collector.
    """
    if not gc.isenabled():
        return build()
    gc.disable()
    try:
        return build()
    finally:
        gc.enable()
