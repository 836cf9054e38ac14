"""The root of the error tree, and how messages quote values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from reprlib import Repr

MAX_SHOWN = 80
"""The most characters of a value that a message shows."""

_REPEAT = "; some of its writes may be in the log: repeat the call"

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = MAX_SHOWN
_short.maxlevel = 2


class ScratchbusError(Exception):
    """Anything scratchbus raises on purpose.

    An error of the engine, the log or the archive, or a closed bus, describes the write it interrupted: `event_id` is
    the id to retry with, `position` is None unless the write is in the log, and `fence` is set if the write was a
    claim. With `is_repeatable` the operation takes no event id, and continues when it is called again.
    """

    event_id: str | None = None
    position: tuple[int, ...] | None = None
    fence: int | None = None
    is_repeatable: bool = False
    advice: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()}{self.advice}"

    def __reduce__(self) -> tuple[Callable[..., ScratchbusError], tuple[object, ...]]:
        """Return how to copy it: a pool of processes pickles what its workers raise."""
        return _copied, (type(self), self.args, self.__dict__)

    def in_doubt(self) -> None:
        """Add to the message that the outcome of the write is unknown, and how to find out."""
        self.advice = f"; the outcome of the last write is unknown: retry it with event_id={self.event_id!r}"

    def written(self, event_id: str, position: tuple[int, ...], fence: int | None) -> None:
        """Add to the message that the write is in the log, and how to get its result."""
        if self.is_repeatable:
            self.position, self.advice = position, _REPEAT
            return
        self.event_id, self.position, self.fence = event_id, position, fence
        proof = "" if fence is None else f" with fence {fence}"
        self.advice = f"; the write is in the log at {position}{proof}: retry it with event_id={event_id!r}"

    def repeatable(self) -> None:
        """Advise to repeat the call, not to retry it with an event id."""
        self.is_repeatable, self.event_id = True, None
        if self.advice:
            self.advice = _REPEAT


def _copied(kind: type[ScratchbusError], args: tuple[object, ...], attributes: dict[str, object]) -> ScratchbusError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def shown(value: object) -> str:
    """Return the repr of a value for a message, shortened in the middle if it is long."""
    if isinstance(value, int) and value.bit_length() > sys.int_info.default_max_str_digits:
        return "a huge number"  # Python refuses to convert it
    try:
        return _short.repr(value).replace("\n", " ")
    except Exception:  # it contains a number that Python refuses to convert, or its __repr__ fails
        return f"a {type(value).__name__}"


def key_text(key: object) -> str:
    """Return the key of a mapping for a message: a text without quotes, anything else as `shown`."""
    return key if isinstance(key, str) else shown(key)


def listed(names: Iterable[str]) -> str:
    """Return names as a sorted list for a message, or "none"."""
    return ", ".join(sorted(names)) or "none"
