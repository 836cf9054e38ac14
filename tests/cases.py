"""Several cases in one test, for tables of cases where setting up a bus for each would dominate the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(name: object) -> Iterator[None]:
    """Add the name of the case to any exception raised in it."""
    try:
        yield
    except BaseException as problem:
        problem.add_note(f"in the case {name!r}")
        raise
