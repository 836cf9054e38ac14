"""Where results go: JSON for programs, plain columns into pipes, colour on terminals.

What comes from data may hold anything. Here, on its way out, it loses what a terminal would obey.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from scratchbus.telemetry.terminal import escaped, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


class Cell(NamedTuple):
    """A text and its style; `short`, when given, is what a terminal shows of it."""

    text: str
    style: str = ""
    short: str | None = None

    @property
    def plain(self) -> str:
        """What a pipe gets of it."""
        return _cell_text(self.text)

    @property
    def shown(self) -> str:
        """What a terminal shows of it."""
        return self.plain if self.short is None else _cell_text(self.short)


class Heading(NamedTuple):
    """The head of a column.

    `width` is the least it has, so that rows printed one by one line up too. On a terminal with fewer characters than
    `least` it is left out.
    """

    title: str
    width: int = 0
    right: bool = False
    least: int = 0


Row = Sequence[Cell]

WIDE, WIDER, WIDEST = 100, 120, 140
"""The characters of a terminal that has room for more than what matters most, and for yet more."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # wide ones are formulas too
_ON_ONE_LINE = {ord("\r"): None, ord("\n"): " ", ord("\t"): " "}

IN_PIPES = sys.maxsize
"""The `least` of a column that no terminal shows."""


class Output:
    """Standard output, in the form that was asked for. Notes for people go to standard error."""

    def __init__(self, as_json: bool = False, no_color: bool = False) -> None:
        self.as_json = as_json
        self.no_color = no_color or bool(os.environ.get("NO_COLOR"))
        self.is_terminal = sys.stdout.isatty() and not as_json

    @cached_property
    def console(self) -> Console:
        """The terminal."""
        from rich.console import Console

        return Console(no_color=self.no_color, highlight=False, markup=False, emoji=False)

    def document(self, document: Mapping[str, Any]) -> None:
        """Print one JSON document on one line, at once."""
        is_unicode = sys.stdout.encoding.lower().startswith("utf")
        self.json_line(json.dumps(document, ensure_ascii=not is_unicode))

    def json_line(self, document: str) -> None:
        """Print a line of JSON, at once."""
        self._write(escaped(document))

    def line(self, text: str) -> None:
        """Print plain text, at once: who reads it may be waiting for it."""
        self._write(visible(text))

    def csv_row(self, cells: Sequence[str]) -> None:
        """Print a line of CSV, at once; no cell of it is a formula to a spreadsheet."""
        line = StringIO()
        csv.writer(line, lineterminator="\n").writerow([_no_formula(visible(cell)) for cell in cells])
        self._write(line.getvalue()[:-1])

    def _write(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Tell a person something beside the result; programs that asked for JSON are left alone."""
        if not self.as_json:
            print(visible(text), file=sys.stderr, flush=True)  # noqa: T201  # this is what standard error is for

    def table(self, headings: Sequence[Heading], rows: Sequence[Row], empty: str = "There is nothing to show") -> None:
        """Print rows below each other; the last column takes what room is left. No rows are a note for people."""
        if not rows:
            self.note(empty)
            return
        if self.is_terminal:
            self.console.print(self.rich_table(headings, rows))
            return
        widths = [max(head.width, *map(len, column)) for head, column in zip(headings, _texts(rows), strict=True)]
        for row in rows:
            self.line(_plain(headings, row, widths))

    def row(self, headings: Sequence[Heading], row: Row) -> None:
        """Print one row of a table whose other rows come when they come."""
        if self.is_terminal:
            self.console.print(self._one_row(headings, row), no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self.line(_plain(headings, row, [head.width for head in headings]))

    def sentence(self, *cells: Cell) -> None:
        """Print cells as one line."""
        if self.is_terminal:
            self.console.print(_joined(cells, " "), no_wrap=True, overflow="ellipsis")
        else:
            self.line(" ".join(cell.plain for cell in cells if cell.text))

    def block(self, title: Sequence[Cell], body: str, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Print a title, a text and what belongs to it, as a card on a terminal."""
        if self.is_terminal:
            self.console.print(_card(_joined(title, " · "), body, list(pairs)))
            return
        self.line("  ".join(cell.plain for cell in title if cell.text))
        for text in body.splitlines():
            self.line(f"  {text}")
        for name, cell in pairs:
            self.line(f"{name and name + ':':<12} {cell.plain}")

    def rich_table(self, headings: Sequence[Heading], rows: Sequence[Row]) -> RenderableType:
        """Return a table for the terminal."""
        from rich.table import Table

        shown = self._shown(headings, rows)
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for index in shown[:-1]:
            head = headings[index]
            table.add_column(head.title, justify="right" if head.right else "left", no_wrap=True)
        table.add_column(headings[-1].title, no_wrap=True, overflow="ellipsis", ratio=1)
        for row in rows:
            table.add_row(*(_text(row[index]) for index in shown))
        return table

    def _shown(self, headings: Sequence[Heading], rows: Sequence[Row]) -> list[int]:
        """Return the columns to show in a table: those that there is room for and that are not empty."""
        last = len(headings) - 1
        return [
            index
            for index, head in enumerate(headings)
            if index == last or (head.least <= self.console.width and any(_text(row[index]) for row in rows))
        ]

    def _one_row(self, headings: Sequence[Heading], row: Row) -> Text:
        cells = zip(row, headings, strict=True)
        return _joined([_padded(cell, head) for cell, head in cells if head.least <= self.console.width], "  ")


def _padded(cell: Cell, head: Heading) -> Cell:
    """Return a cell as wide as its column; one that is shortened is as wide as it is."""
    if cell.short is not None:
        return cell
    return Cell(cell.text.rjust(head.width) if head.right else cell.text.ljust(head.width), cell.style)


def _no_formula(cell: str) -> str:
    """Return a cell with a quote before it, as OWASP has it, if a spreadsheet would take it for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULAS) else cell


def _cell_text(text: str) -> str:
    """Return a text that may stand in a cell: on one line."""
    return visible(text).translate(_ON_ONE_LINE)


def _texts(rows: Sequence[Row]) -> list[list[str]]:
    return [[cell.plain for cell in column] for column in zip(*rows, strict=True)]


def _plain(headings: Sequence[Heading], row: Row, widths: Sequence[int]) -> str:
    """Return a row for a pipe: no column is ever empty, so that they can be counted."""
    texts = [cell.plain or "-" for cell in row[:-1]] + [row[-1].plain]
    return "  ".join(
        text.rjust(width) if head.right else text.ljust(width)
        for text, head, width in zip(texts, headings, widths, strict=True)
    ).rstrip()


def _text(cell: Cell) -> Text:
    from rich.text import Text

    return Text(cell.shown, style=cell.style)


def _joined(cells: Iterable[Cell], between: str) -> Text:
    from rich.text import Text

    return Text(between).join(_text(cell) for cell in cells if cell.text)


def _card(title: Text, body: str, pairs: Sequence[tuple[str, Cell]]) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, cell in pairs:
        grid.add_row(name, _text(cell))
    parts: list[RenderableType] = [Text(visible(body)), Text()] if body else []
    return Panel(Group(*parts, grid), title=title, title_align="left", box=box.ROUNDED, padding=(1, 2), expand=False)
