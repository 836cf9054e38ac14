"""The garbage collector, at rest while much is built that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Have Python look for no cyclic garbage meanwhile; what it would find waits.

    Each time that what is alive has grown by a quarter it walks through all of it. For who makes some hundred thousand
    documents, none of which is garbage, that is as much work as making them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
