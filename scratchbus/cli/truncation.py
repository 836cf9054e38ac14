"""Texts of tables, which are cut where a row has no room for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def cut(text: Text) -> Text:
    """Have a text cut where its row has no room for it; the widest column is cut first."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def least_width(texts: Iterable[Text], terminal: int) -> int:
    """Return the room that the last column of a table gets at least: up to a third of the terminal."""
    return min(max((text.cell_len for text in texts), default=0), terminal // 3)
