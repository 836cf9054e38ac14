"""Prints what happens in the demo: in colour on a terminal, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scratchbus import Event, Observation, Trace, visible

DAEMONS = {
    "projector": "folds the event log into the page everyone reads",
    "expirer": "turns time into events: expiry, lapsed claims, reminders",
    "logwatch": "reads the log and publishes one alert per attacking address",
    "router": "holds the page in memory, ranks it, suggests what to act on",
    "executor-1": "claims a suggestion, acts on it, records the action",
    "executor-2": "shares the work with executor-1: one claim per suggestion",
    "evaluator": "resolves finished observations after a quiet time",
}
"""A short description of each process."""

_INDENT = (0, 0, 0, 2)
_MAX_TABLE = 40
_MAX_HISTORY = 14
_COLOURS = {
    "active": "red", "pending_review": "yellow", "resolved": "green", "archived": "dim",
    "added": "red", "repeated": "yellow", "claimed": "cyan", "linked": "magenta", "status_changed": "green",
}  # fmt: skip


class Report:
    """Writes the demo's chapters to a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._chapter = 0

    def opening(self, source: str) -> None:
        """Print an outline of the demo."""
        text = (
            "Daemons that know nothing of each other share one [b]Scratch Page[/b]: observations, kept as an event log."
            f" They are going to read {_safe(source)}, find attackers, block them, and tidy up."
        )
        self.console.print(Panel(text, title="[b cyan]scratchbus[/b cyan]", box=box.ROUNDED, expand=False))

    def chapter(self, title: str, *sentences: str) -> None:
        """Start a chapter."""
        self._chapter += 1
        self.console.print()
        self.console.print(f"[b cyan]{self._chapter}. {_safe(title)}[/b cyan]")
        for sentence in sentences:
            self.console.print(f"  [dim]{_safe(sentence)}[/dim]", soft_wrap=True)

    def processes(self, pids: dict[str, int]) -> None:
        """Show the processes."""
        table = _table("process", "pid", "what it does")
        for name, pid in pids.items():
            table.add_row(f"[cyan]{name}[/cyan]", f"[dim]{pid}[/dim]", DAEMONS[name])
        self.console.print(Padding(table, _INDENT))

    def page(self, observations: Sequence[Observation]) -> None:
        """Show the page in the order of `active()`, by priority."""
        table = _table("prio", "type", "what was seen", "times", "led to")
        for each in observations[:_MAX_TABLE]:
            led_to = ", ".join(link.split(":", 1)[0] for link in each.links)
            table.add_row(
                str(each.priority),
                _text(each.type, style="red" if each.priority >= 80 else "yellow"),
                _text(each.content),
                f"[b]{each.occurrences}×[/b]",
                _text(led_to, style="magenta"),
            )
        self._print_table(table, len(observations))

    def history(self, events: Sequence[Event]) -> None:
        """Show the history of one observation, with consecutive events of one kind in one line."""
        runs = [list(run) for _, run in groupby(events, key=lambda event: (event.kind, event.by))]
        table = _table("time", "event", "by", "what it says")
        shown = runs if len(runs) <= _MAX_HISTORY else [*runs[: _MAX_HISTORY - 4], None, *runs[-4:]]
        for run in shown:
            if run is None:
                table.add_row("", f"[dim]… {len(runs) - _MAX_HISTORY} more[/dim]", "", "")
                continue
            first = run[0]
            style = _COLOURS.get(first.kind, "")
            name = first.kind if len(run) == 1 else f"{first.kind} ×{len(run)}"
            table.add_row(
                f"[dim]{first.at:%H:%M:%S.%f}"[:-3] + "[/dim]",
                _text(name, style=style),
                _text(first.by, style="cyan"),
                _text(_says(run)),
            )
        self.console.print(Padding(table, _INDENT))

    def actions(self, rows: Sequence[tuple[Observation, str, str]]) -> None:
        """Show each suggestion, its claimant, and the action linked to its alert."""
        table = _table("urgency", "suggestion", "claimed by", "action")
        for suggestion, holder, action in rows[:_MAX_TABLE]:
            table.add_row(
                _text(str(suggestion.metadata.get("urgency", ""))),
                _text(suggestion.status, style=_COLOURS.get(suggestion.status, "")),
                _text(holder, style="cyan"),
                _text(action, style="magenta"),
            )
        self._print_table(table, len(rows))

    def trace(self, trace: Trace) -> None:
        """Show why an action was taken: who linked it to which observation, its source, and its evidence."""
        by = {motive.id: f"{_safe(motive.by)} linked it at {motive.at:%H:%M:%S} to: " for motive in trace.motives}
        self.line(f"From the other end, why [magenta]{_safe(trace.action)}[/magenta]?")
        for branch in trace.tree():
            if each := branch.observation:
                linked = "" if branch.depth else by[branch.id]
                text = f"{_safe(each.content)}, said by {_safe(each.source)} at {each.created_at:%H:%M:%S}"
                self.line(f"{'  ' * branch.depth}└ [cyan]{linked}[/cyan]{text}")

    def line(self, text: str) -> None:
        """Print a sentence, which may have markup."""
        self.console.print(f"  {text}", soft_wrap=True)

    def totals(self, rows: Iterable[tuple[str, Any]], closing: str) -> None:
        """Show the final numbers, then a closing sentence."""
        table = Table.grid(padding=(0, 2))
        for name, value in rows:
            table.add_row(name, f"[b]{value}[/b]")
        self.console.print()
        self.console.print(Panel(table, title="[b green]in the end[/b green]", box=box.ROUNDED, expand=False))
        self.console.print(f"[green]{_safe(closing)}[/green]", soft_wrap=True)

    def _print_table(self, table: Table, size: int) -> None:
        self.console.print(Padding(table, _INDENT))
        if size > _MAX_TABLE:
            self.line(f"[dim]… and {size - _MAX_TABLE} more[/dim]")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        is_numeric = column in {"prio", "times", "pid", "urgency"}
        table.add_column(column, justify="right" if is_numeric else "left", overflow="fold")
    return table


def _safe(text: str) -> str:
    """Return a text from data, escaped for markup."""
    return escape(visible(text))


def _text(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style)


def _says(run: Sequence[Event]) -> str:
    """Return a run of events of one kind in words."""
    fields = run[-1].model_dump()
    match run[-1].kind:
        case "added":
            return str(fields["content"])
        case "repeated":
            return f"{sum(event.model_dump()['times'] for event in run)} more attempts"
        case "linked":
            return f"led to {fields['action']}"
        case "claimed":
            return f"held by {fields['holder']}"
        case "status_changed":
            return f"{fields['status']}: {fields['reason'] or fields['reason_code']}"
    return ""
