"""The garbage collector, paused while many documents are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def without_collections(build: Callable[[], T]) -> T:
    """Return what a function builds, with the cyclic garbage collector paused until it returns.

    Python walks through all objects each time that they have grown by a quarter, which costs as much as making some
    hundred thousand documents of which none is garbage. Nothing may wait inside: other tasks of the process go on with
    the collector as they left it.
    """
    if not gc.isenabled():
        return build()
    gc.disable()
    try:
        return build()
    finally:
        gc.enable()
