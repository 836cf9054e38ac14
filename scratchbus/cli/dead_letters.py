"""The dead letters of subscriptions: `dead-letters list`, `retry` and `drop`."""

from __future__ import annotations

import click

import scratchbus
from scratchbus.cli.commands import BusGroup
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import one_line, plural
from scratchbus.cli.truncation import WIDE

_LETTER: Columns[scratchbus.DeadLetter] = (
    Column("subscription", lambda each: Cell(each.subscription), 12),
    Column("position", lambda each: Cell(each.position), 18),
    Column("page", lambda each: Cell(each.page), 6, min_terminal=WIDE),
    Column("kind", lambda each: Cell(each.kind), 8, min_terminal=WIDE),
    Column("attempts", lambda each: Cell(str(each.attempts)), right=True),
    Column("reason", lambda each: Cell(one_line(each.reason), "red")),
)


@click.group("dead-letters", cls=BusGroup)
def dead_letters() -> None:
    """Show, retry and drop the dead letters of subscriptions.

    A dead letter is an event that a subscription failed to handle and set aside.
    """


@dead_letters.command("list", examples=("scratchbus dead-letters list", "scratchbus dead-letters list router"))
@click.argument("name", required=False)
@pass_invocation
def list_letters(invocation: Invocation, name: str | None) -> None:
    """Show the dead letters of a subscription, or of all, in log order."""
    with invocation.connect() as bus:
        found = bus.dead_letters(name)
    empty = "There are no dead letters"
    invocation.out.listing(_LETTER, found, empty=empty, document=lambda each: each.model_dump(mode="json"))


def _change(verb: str, past_tense: str, help: str, *, default_all: bool) -> None:
    """Declare a command that calls `bus.<verb>_dead_letters` for some dead letters or all."""

    @click.argument("name")
    @click.argument("positions", nargs=-1, metavar="[POSITION]...")
    @click.option("--all", "is_all", is_flag=True, help="All of them.")
    @pass_invocation
    def change(invocation: Invocation, name: str, positions: tuple[str, ...], is_all: bool) -> None:
        if bool(positions) is (is_all or (default_all and not positions)):
            raise click.UsageError("give positions, as `dead-letters list` shows them, or --all")
        with invocation.connect() as bus:
            count = getattr(bus, f"{verb}_dead_letters")(name, list(positions) or None)
        count_text = f"{plural(count, 'dead letter')} of {name}"
        invocation.out.result({"subscription": name, past_tense: count}, Cell(past_tense, "green"), Cell(count_text))

    change.__doc__ = help
    all_of_them = f"scratchbus dead-letters {verb} router" + ("" if default_all else " --all")
    examples = (all_of_them, f"scratchbus dead-letters {verb} router 1795263437791-3")
    dead_letters.command(verb, examples=examples)(change)


_change(
    "retry",
    "retried",
    "Deliver dead letters again before any new event: those at these positions, or all.",
    default_all=True,
)
_change("drop", "dropped", "Drop dead letters. The events stay in the log.", default_all=False)
