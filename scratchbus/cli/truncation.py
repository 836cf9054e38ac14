"""Texts of tables, which are cut where a row has no room for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.text import Text

    from scratchbus.cli.output import Columns

T = TypeVar("T")

SPARE, WIDE, WIDER, WIDEST = 72, 100, 120, 140
"""Widths of terminals, in characters, that have room for more and more columns."""


def cut(text: Text) -> Text:
    """Have a text cut where its row has no room for it; the widest column is cut first."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def has_room(columns: Columns[T], item: T, terminal: int) -> bool:
    """Return whether a row has room for a part of its last column, when no other one is cut."""
    *others, last = columns
    needed = min(last.cell(item).rich.cell_len, terminal // 6)
    for column in others:
        if column.min_terminal <= terminal:
            cell = column.cell(item)
            least = column.width if terminal >= SPARE and cell.short is None else 0
            wide = column.wide_width if terminal >= WIDE else None
            needed += (wide or max(least, cell.rich.cell_len)) + 2
    return needed <= terminal


def least_width(texts: Iterable[Text], terminal: int) -> int:
    """Return the room that the last column of a table gets at least: up to a third of the terminal."""
    return min(max((text.cell_len for text in texts), default=0), terminal // 3)
