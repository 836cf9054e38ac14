"""The fence around what others said: it is shown as data, and can neither end its fence nor pass for anything else.

Every line within begins with a mark, so there is nothing that could be written to get out. What makes text read other
than it is stored goes: control characters, and what is invisible or changes the direction of writing.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category

MARK: Final = "> "
"""What each line of the fence begins with."""

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SELECTORS: Final = range(0xE0100, 0xE01F0)
"""Variation selectors of no visible effect, which can carry a text of their own; the plain ones belong to emoji."""


def fenced(text: str) -> str:
    """Return a text of others as a block in which every line is marked as theirs."""
    return "\n".join(MARK + visible(line) for line in text.splitlines() or [""])


def visible(line: str) -> str:
    """Return a line without control characters, direction marks and what else cannot be seen; tabs are spaces."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char for char in line.replace("\t", "    ") if not _is_hidden(char))


def _is_hidden(char: str) -> bool:
    return category(char) in _HIDDEN or ord(char) in _SELECTORS
