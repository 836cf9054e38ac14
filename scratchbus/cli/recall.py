"""Recall: `recall`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import PAGE, command, given, scope_option, session_option
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import IN_PIPES, Cell, Column, Columns
from scratchbus.cli.text import ago, one_line


@command(
    examples=(
        'scratchbus recall "which database does the shop use" --scope ada/shop --session s1',
        "scratchbus recall postgres --session s1 --at 2026-11-01T12:00Z --json",
    ),
    shared=PAGE,
)
@click.argument("query")
@scope_option(
    "Search the preferences and facts of this user or project; repeatable.  [$SCRATCHBUS_SCOPE]", multiple=True
)
@session_option("Search the notes and the notepad of this session; repeatable.  [$SCRATCHBUS_SESSION]", multiple=True)
@click.option("--at", metavar="TIME|POS", help="Search the knowledge at a past time or position.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="The most items.")
@pass_invocation
def recall(invocation: Invocation, query: str, **options: Any) -> None:
    """Search all memories, best match first, with reasons.

    It looks at notes, notepads, preferences, facts and observations. Without --scope, --session and --page it looks at
    the page main.
    """
    now = datetime.now(UTC)
    columns: Columns[scratchbus.Recalled] = (
        Column("kind", lambda each: Cell(each.kind, "cyan"), 11),
        Column("page", lambda each: Cell(each.page, "dim"), 16),
        Column("id", lambda each: Cell(each.id), 26, min_terminal=IN_PIPES),
        Column("age", lambda each: Cell(ago(each.item.updated_at, now), "dim"), 4, right=True),
        Column("why", lambda each: Cell("; ".join(map(str, each.reasons)), "dim"), 40),
        Column("text", lambda each: Cell(one_line(each.text))),
    )
    with invocation.connect() as bus:
        found = bus.recall(query, **given(page=invocation.page_in_force), **options)
    empty = "Nothing matches there; search elsewhere with --session, --scope or --page"
    invocation.out.listing(columns, found, empty=empty)
