"""A card: a title, a text and named details, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_FRAME = 6  # columns that a card has beside its content
_GAP = 2  # columns between names and values


def print_card(console: Console, title: Text, body: str, details: Sequence[tuple[str, Text]]) -> None:
    """Print a card, in a frame unless a word is too long for that, such as a URL to copy: each word stays whole."""
    names = max((len(name) + _GAP for name, _ in details), default=0)
    words = [title.cell_len, _longest_word(body), *(names + _longest_word(value.plain) for _, value in details)]
    if max(words) + _FRAME <= console.width:
        grid = _grid(names, details)
        content = Group(Text(f"{body}\n"), grid) if body else grid
        console.print(Panel(content, title=title, title_align="left", padding=(1, 2), expand=False))
        return
    console.print(title, soft_wrap=True)
    for line in [*body.splitlines(), ""] if body else []:
        console.print(Text(line), soft_wrap=_longest_word(line) > console.width)
    for name, value in details:
        if names + _longest_word(value.plain) > console.width:
            console.print(Text.assemble((name.ljust(names), "dim"), value), soft_wrap=True)
        else:
            console.print(_grid(names, [(name, value)]))


def _longest_word(text: str) -> int:
    """Return the columns of the longest word of a text."""
    return max(map(cell_len, text.split()), default=0)


def _grid(names: int, details: Sequence[tuple[str, Text]]) -> Table:
    """Return details in two columns; that of the names has this width."""
    grid = Table.grid()
    grid.add_column(style="dim", width=names)
    grid.add_column(overflow="fold")
    for row in details:
        grid.add_row(*row)
    return grid
