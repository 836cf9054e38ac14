"""Reading ahead: the engine reads the next chunk while the one before it is worked on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(read: Callable[[], T | None], is_worth_it: Callable[[], bool] = lambda: True) -> Iterator[T]:
    """Yield chunks until `read` returns None; a thread reads the next one while one is in use.

    It does where `is_worth_it` says so after reading that. The child of a fork does not have the thread and reads by
    itself.
    """
    process = os.getpid()
    with ThreadPoolExecutor(1, "read ahead") as reader:
        chunk = read()
        while chunk is not None:
            coming = reader.submit(read) if os.getpid() == process and is_worth_it() else None
            yield chunk
            is_read = coming is not None and (os.getpid() == process or coming.done())
            chunk = coming.result() if coming is not None and is_read else read()
