"""Standard output in the requested form: JSON for programs, plain columns in pipes, colour on terminals.

Content may come from anyone, so it is printed without the characters that control a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import scratchbus
from scratchbus.cli.json_text import escaped_json
from scratchbus.cli.truncation import SPARE, WIDE, cut, has_room, least_width

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")


class Cell(NamedTuple):
    """A text and its style; a terminal shows `short` instead, if it is given."""

    text: str
    style: str = ""
    short: str | None = None

    @property
    def plain(self) -> str:
        """The text for a pipe, on one line."""
        return _one_line(self.text)

    @property
    def rich(self) -> Text:
        """The text for a terminal, on one line."""
        from rich.text import Text

        return Text(_one_line(self.text if self.short is None else self.short), style=self.style)


class Column(NamedTuple, Generic[T]):
    """A column of a table: its title, and the cell of an item.

    `width` is its least width, so that rows that are printed one by one line up, except on a narrow terminal; on a wide
    one these have exactly `wide_width` if that is given. A terminal with fewer characters than `min_terminal` does not
    show the column.
    """

    title: str
    cell: Callable[[T], Cell]
    width: int = 0
    right: bool = False
    min_terminal: int = 0
    wide_width: int | None = None


Columns = Sequence[Column[T]]


IN_PIPES = sys.maxsize
"""The `min_terminal` of a column that no terminal shows."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # spreadsheets take the wide ones too
_ON_ONE_LINE = {ord("\r"): None, ord("\n"): " ", ord("\t"): " "}


class Output:
    """Standard output, in the requested form. Notes for people go to standard error."""

    def __init__(self, as_json: bool = False, no_color: bool = False) -> None:
        self.as_json = as_json
        self.no_color = no_color or bool(os.environ.get("NO_COLOR"))
        self.is_terminal = sys.stdout.isatty() and not as_json

    @cached_property
    def console(self) -> Console:
        """The terminal."""
        from rich.console import Console

        return Console(no_color=self.no_color, highlight=False, markup=False, emoji=False)

    # -- lines; each is flushed, because its reader may be waiting for it ----------------------------------------------

    def document(self, document: Mapping[str, Any]) -> None:
        """Print a JSON document on one line."""
        import json  # late, as all that `--help` does not need

        self.json_line(json.dumps(document, ensure_ascii=False))

    def json_line(self, document: str) -> None:
        """Print a line of JSON."""
        self._write(escaped_json(document))

    def line(self, text: str) -> None:
        """Print plain text."""
        self._write(scratchbus.visible(text))

    def csv_row(self, cells: Sequence[str]) -> None:
        """Print a line of CSV; a cell that a spreadsheet would take for a formula gets a quote before it (OWASP)."""
        import csv
        from io import StringIO

        shown = map(scratchbus.visible, cells)
        line = StringIO()
        csv.writer(line, lineterminator="\n").writerow([f"'{c}" if c.startswith(_FORMULAS) else c for c in shown])
        self._write(line.getvalue()[:-1])

    def note(self, text: str) -> None:
        """Print a note for a person on standard error, unless JSON was asked for."""
        if not self.as_json:
            self.remark(text)

    def remark(self, text: str) -> None:
        """Print a note on standard error that programs need too."""
        print(scratchbus.visible(text), file=sys.stderr, flush=True)  # noqa: T201  # what standard error is for

    def sentence(self, *cells: Cell, is_whole: bool = False) -> None:
        """Print cells on one line; a terminal cuts it to its width unless `is_whole`."""
        if self.is_terminal:
            text = _joined(cells, " ")
            self.console.print(text, no_wrap=True, overflow="ignore" if is_whole else "ellipsis", crop=not is_whole)
        else:
            self.line(" ".join(cell.plain for cell in cells if cell.text))

    def result(self, document: Mapping[str, Any], *cells: Cell, is_whole: bool = False) -> None:
        """Print a result: the document if JSON was asked for, else the cells as a sentence."""
        if self.as_json:
            self.document(document)
        else:
            self.sentence(*cells, is_whole=is_whole)

    def text(self, document: Mapping[str, Any], text: str) -> None:
        """Print the document if JSON was asked for, else a text: as paragraphs on a terminal, unchanged into a pipe."""
        if self.as_json:
            self.document(document)
        elif text:
            self.line(paragraphs(text) if self.is_terminal else text)

    # -- tables --------------------------------------------------------------------------------------------------------

    def listing(
        self,
        columns: Columns[T],
        items: Sequence[T],
        *,
        empty: str = "There is nothing to show",
        document: Callable[[T], Mapping[str, Any]] | None = None,
    ) -> None:
        """Print items: as JSON documents if JSON was asked for, else as a table; note `empty` if there are none."""
        if not self.as_json:
            self.table(columns, items, empty)
            return
        for item in items:
            self.document((document or scratchbus.document_of)(item))

    def table(self, columns: Columns[T], items: Sequence[T], empty: str = "", *, titled: bool = False) -> None:
        """Print items as rows that line up; note `empty` if there are none. In a pipe only `titled` has a heading."""
        if not items:
            self.note(empty)
        elif self.is_terminal:
            self.console.print(self.rich_table(columns, items))
        else:
            rows = [[column.cell(item).plain for column in columns] for item in items]
            rows = [[column.title for column in columns], *rows] if titled else rows
            widths = [max(map(len, texts)) for texts in zip(*rows, strict=True)]
            for row in rows:
                self.line(_plain(columns, row, widths))

    def row(
        self, columns: Columns[T], item: T, document: Mapping[str, Any] | None = None, *, brief: Sequence[Cell] = ()
    ) -> None:
        """Print one row of a table whose other rows are printed later; a document if JSON was asked for.

        A terminal shows `brief` instead, if it is given.
        """
        if self.as_json:
            self.document(scratchbus.document_of(item) if document is None else document)
        elif self.is_terminal and brief:
            self.sentence(*brief)
        elif self.is_terminal:
            self.console.print(self.rich_table(columns, [item], as_part=True))
        else:
            self.line(_plain(columns, [column.cell(item).plain for column in columns]))

    def rich_table(self, columns: Columns[T], items: Sequence[T], *, as_part: bool = False) -> Table:
        """Return a table for the terminal, without columns that are empty or for which there is no room.

        A part of a longer table has no heading, and keeps the columns that are empty in this part.
        """
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=not as_part
        )
        *_, last = columns
        shown, is_tight = list[Any](), as_part and not has_room(columns, items[0], self.console.width)
        for column in columns:
            cells = [column.cell(item) for item in items]
            title, texts = cut(Text(column.title)), [cut(cell.rich) for cell in cells]
            if column is last:
                width = None if as_part and not is_tight else least_width(texts, self.console.width)
                table.add_column(title, width=width, ratio=1)
            elif column.min_terminal <= self.console.width and (as_part or any(texts)):
                width = column.wide_width if as_part and self.console.width >= WIDE else None
                width = max(map(len, texts)) if width is None and cells[0].short else width  # a cut id finds nothing
                is_padded = as_part and not is_tight and self.console.width >= SPARE and cells[0].short is None
                min_width = width or (column.width if is_padded else None)
                table.add_column(title, justify="right" if column.right else "left", width=width, min_width=min_width)
            else:
                continue
            shown.append(texts)
        for row in zip(*shown, strict=True):
            table.add_row(*row)
        return table

    # -- cards ---------------------------------------------------------------------------------------------------------

    def block(
        self, document: Mapping[str, Any], title: Sequence[Cell], body: str, pairs: Iterable[tuple[str, Cell]]
    ) -> None:
        """Print the document if JSON was asked for, else a title, a text and named details: a card on a terminal.

        A word that is too long for the card, such as a URL to copy, stays whole: then there is no frame.
        """
        if self.as_json:
            self.document(document)
            return
        if not self.is_terminal:
            self.line("  ".join(cell.plain for cell in title if cell.text))
            for text in body.splitlines():
                self.line(f"  {text}")
            for name, cell in pairs:
                self.line(f"{name and name + ':':<12} {cell.plain}")
            return
        from scratchbus.cli.card import print_card  # late: it imports rich, which pipes do not need

        details = [(name, cell.rich) for name, cell in pairs]
        print_card(self.console, _joined(title, " · "), scratchbus.visible(body), details)

    def _write(self, line: str) -> None:
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError as problem:
            problem.add_note(line)  # shown if it is the result of a write
            raise


def paragraphs(text: str) -> str:
    """Return a text with its line breaks, and a mark for each character that a terminal would obey or hide."""
    return "\n".join(scratchbus.visible(line.expandtabs(4)) for line in text.splitlines())


def _one_line(text: str) -> str:
    return scratchbus.visible(text).translate(_ON_ONE_LINE)


def _plain(columns: Columns[T], texts: Sequence[str], widths: Sequence[int] | None = None) -> str:
    """Return a row for a pipe. No column but the last is empty, so that a reader can count them."""
    padded = []
    for index, (column, text) in enumerate(zip(columns, texts, strict=True)):
        shown = text or ("-" if index < len(columns) - 1 else "")
        width = max(column.width, widths[index] if widths else 0)
        padded.append(shown.rjust(width) if column.right else shown.ljust(width))
    return "  ".join(padded).rstrip()


def _joined(cells: Iterable[Cell], separator: str) -> Text:
    from rich.text import Text

    return Text(separator).join(filter(None, (cell.rich for cell in cells)))


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], object] | None]:
    """Yield a callback that draws a bar on standard error from (done, total); None if it is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)

    def show(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
