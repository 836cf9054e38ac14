"""Many cases in one test, where a case is a line of a table: to set up a bus for each would take most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(name: object) -> Iterator[None]:
    """Name the case in whatever fails within it."""
    try:
        yield
    except BaseException as problem:
        problem.add_note(f"in the case {name!r}")
        raise
