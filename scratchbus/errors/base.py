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
    """Anything scratchbus raises on purpose."""


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
