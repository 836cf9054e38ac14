"""Text from data made safe for a terminal: without characters that a terminal obeys or hides."""

from __future__ import annotations

import json
from unicodedata import category

_LAYOUT = "\n\t\u200c\u200d"
"""Harmless characters that are not printable: line breaks, tabs, and joiners of letters or emoji."""


def visible(text: str) -> str:
    """Return a text with a mark for each character that a terminal would obey or hide; its layout stays.

    Content may come from anyone, also from an attacker's line in a log: it must not move the cursor or change the
    direction of the text.
    """
    if text.isprintable():
        return text
    return "\r\n".join("".join(map(_visible, part)) for part in text.split("\r\n"))


def _visible(char: str) -> str:
    return char if char.isprintable() or char in _LAYOUT or category(char) == "Zs" else "�"


def escaped(document: str) -> str:
    """Return an equal JSON document with an escape for each character that `visible` marks."""
    return document if document.isprintable() else "".join(map(_escaped, document))


def _escaped(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]
