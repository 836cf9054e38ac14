"""The fence around quoted text: it marks the text as data, and nothing inside can end it or imitate text outside.

Every quoted line starts with a mark, so no content can escape. Characters that make text look different from what is
stored are removed: control characters, invisible characters, and those that change the direction of writing.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category

MARK: Final = "> "
"""The mark at the start of each fenced line."""

_BREAK: Final = " ⏎ "

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SELECTORS: Final = range(0xE0100, 0xE01F0)
"""Invisible variation selectors, which can smuggle hidden text; the ordinary ones belong to emoji."""


def fenced(text: str) -> str:
    """Return text as a block in which every line is marked as quoted."""
    return "\n".join(MARK + visible(line) for line in text.splitlines() or [""])


def on_one_line(text: str) -> str:
    """Return text on one line, with a mark for each line break, so that it cannot imitate another line."""
    return _BREAK.join(map(visible, text.splitlines()))


def visible(line: str) -> str:
    """Return a line without control, direction and other invisible characters; a tab becomes four spaces."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char for char in line.replace("\t", "    ") if not _is_hidden(char))


def encodable(text: str) -> str:
    """Return a text with a question mark for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _is_hidden(char: str) -> bool:
    return category(char) in _HIDDEN or ord(char) in _SELECTORS
