"""Reading ahead: the engine reads the next chunk while the one before it is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(chunks: Iterator[T], is_worth_it: Callable[[], bool] = lambda: True) -> Iterator[T]:
    """Yield chunks; a thread reads the next one while one is in use, where `is_worth_it` says so after reading that."""
    with ThreadPoolExecutor(1, "read ahead") as reader:
        chunk = next(chunks, None)
        while chunk is not None:
            coming = reader.submit(next, chunks, None) if is_worth_it() else None
            yield chunk
            chunk = next(chunks, None) if coming is None else coming.result()
