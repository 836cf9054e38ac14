"""The root of the error tree, and how messages quote what they were given."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from reprlib import Repr

LONGEST = 80
"""Characters of a value that a message shows."""

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = LONGEST
_short.maxlevel = 2


class ScratchbusError(Exception):
    """Anything scratchbus raises on purpose.

    An error of the engine, the log or the archive says what it knows of the write that it interrupted: `event_id` is
    the id to retry it with, and `position` is None unless the write is in the log. `fence` is that of a claim.
    """

    event_id: str | None = None
    position: tuple[int, ...] | None = None
    fence: int | None = None
    advice: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()}{self.advice}"

    def in_doubt(self) -> None:
        """Say that whether the write happened is not known, and how to find out."""
        self.advice = f"; whether the last write happened is not known: retry it with event_id={self.event_id!r}"

    def written(self, event_id: str, position: tuple[int, ...], fence: int | None) -> None:
        """Say that the write is in the log, and how to get its answer."""
        self.event_id, self.position, self.fence = event_id, position, fence
        proof = "" if fence is None else f" with fence {fence}"
        self.advice = f"; the write is in the log at {position}{proof}: retry it with event_id={event_id!r}"


def shown(value: object) -> str:
    """Return a value as messages quote it: as Python writes it, a long one shortened in its middle."""
    if isinstance(value, int) and value.bit_length() > sys.int_info.default_max_str_digits:
        return "a number beyond all measure"  # Python refuses to write it
    try:
        return _short.repr(value).replace("\n", " ")
    except Exception:  # a number inside it that Python refuses to write, or a __repr__ that fails
        return f"a {type(value).__name__}"


def listed(names: Iterable[str]) -> str:
    """Return names as messages list them: sorted, or "none"."""
    return ", ".join(sorted(names)) or "none"
