"""The conversation of a session: `turns list`, `append`, `compact`, `history`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import BusGroup, at_option, content_argument, session_memory
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import ago, one_line


@click.group(cls=BusGroup)
def turns() -> None:
    """Append to the conversation of a session, and see it."""


@turns.command("list", examples=("scratchbus turns list --session s1",))
@click.option("--shown", is_flag=True, help="With summaries in the place of the turns that they replace.")
@click.option("--after", metavar="ID", help="Only turns after this one.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N turns.  [default: all]")
@at_option
@session_memory("turns")
def list_(
    invocation: Invocation, turns: scratchbus.Turns, shown: bool, after: str | None, limit: int | None,
    at: str | None,
) -> None:  # fmt: skip
    """Show the original turns, oldest first."""
    if shown and (after is not None or limit is not None):
        raise click.UsageError("--shown shows the whole conversation; leave out --after and --limit")
    if shown:
        _show_turns(invocation, turns.shown() if at is None else turns.as_of(at))
    else:
        _show_turns(invocation, turns.list(after=after, limit=limit, at=at))


@turns.command(examples=("scratchbus turns append user - --session s1 < question.txt",))
@click.argument("role")
@content_argument("content")
@click.option("--tokens", type=int, metavar="N", help="How many tokens it has, if you know.")
@click.option("--task", metavar="ID", help="The task that it belongs to.")
@session_memory("turns", writes=True)
def append(invocation: Invocation, turns: scratchbus.Turns, role: str, content: str, **options: Any) -> None:
    """Append a turn.

    ROLE is a word such as user, assistant or tool; - reads CONTENT from standard input.
    """
    _show_turn(invocation, "appended", turns.append(role, content, **options))


@turns.command(examples=('scratchbus turns compact "They agreed on plan B." --session s1',))
@content_argument("summary")
@click.option("--turn", "ids", multiple=True, metavar="ID", help="A turn to replace, instead of all; repeatable.")
@session_memory("turns", writes=True)
def compact(
    invocation: Invocation, turns: scratchbus.Turns, summary: str, ids: tuple[str, ...], **options: Any
) -> None:
    """Replace turns with a summary; they stay in the history.

    - reads SUMMARY from standard input.
    """
    _show_turn(invocation, "compacted", turns.compact(summary, turns=list(ids) or None, **options))


@turns.command(examples=("scratchbus turns history --session s1",))
@session_memory("turns")
def history(invocation: Invocation, turns: scratchbus.Turns) -> None:
    """Show the turns and compactions as events, oldest first."""
    show_history(invocation, turns.history())


def _show_turn(invocation: Invocation, verb: str, turn: scratchbus.Turn) -> None:
    invocation.out.result(
        {"turn": scratchbus.document_of(turn)},
        Cell(verb, "green"),
        Cell(turn.id, "bold"),
        Cell(turn.role, "cyan"),
        Cell(one_line(turn.content)),
    )


def _show_turns(invocation: Invocation, found: list[scratchbus.Turn]) -> None:
    now = datetime.now(UTC)
    columns: Columns[scratchbus.Turn] = (
        Column("id", lambda each: Cell(each.id, "bold"), 18),
        Column("age", lambda each: Cell(ago(each.created_at, now), "dim"), 4, right=True),
        Column("role", lambda each: Cell(each.role, "cyan"), 9),
        Column("content", lambda each: Cell(one_line(each.content))),
    )
    invocation.out.listing(columns, found, empty="Nothing was said yet")
