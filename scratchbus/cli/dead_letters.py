"""The dead letters of subscriptions: `dead-letters ls`, `retry` and `drop`."""

from __future__ import annotations

import click

import scratchbus
from scratchbus.cli.commands import BusGroup
from scratchbus.cli.output import WIDE, Cell, Column, Columns
from scratchbus.cli.session import Session, pass_session
from scratchbus.cli.text import one_line, plural

_LETTER: Columns[scratchbus.DeadLetter] = (
    Column("subscription", lambda each: Cell(each.subscription), 12),
    Column("position", lambda each: Cell(each.position), 18),
    Column("page", lambda each: Cell(each.page), 6, least=WIDE),
    Column("kind", lambda each: Cell(each.kind), 8, least=WIDE),
    Column("attempts", lambda each: Cell(str(each.attempts)), right=True),
    Column("reason", lambda each: Cell(one_line(each.reason), "red")),
)


@click.group("dead-letters", cls=BusGroup)
def dead_letters() -> None:
    """Show, retry and drop the dead letters of subscriptions.

    A dead letter is an event that a subscription failed to handle and set aside.
    """


@dead_letters.command("ls", examples=("scratchbus dead-letters ls", "scratchbus dead-letters ls router"))
@click.argument("name", required=False)
@pass_session
def list_letters(session: Session, name: str | None) -> None:
    """Show the dead letters of a subscription, or of all, in log order."""
    with session.connect() as bus:
        found = bus.dead_letters(name)
    empty = "There are no dead letters"
    session.out.listing(_LETTER, found, empty=empty, document=lambda each: each.model_dump(mode="json"))


@dead_letters.command(
    examples=("scratchbus dead-letters retry router", "scratchbus dead-letters retry router 1795263437791-3")
)
@click.argument("name")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@pass_session
def retry(session: Session, name: str, positions: tuple[str, ...], is_all: bool) -> None:
    """Deliver dead letters again before any new event: those at these positions, or all."""
    chosen = _chosen(positions, is_all or not positions)
    with session.connect() as bus:
        count = bus.retry_dead_letters(name, chosen)
    _show_count(session, name, "retried", count)


@dead_letters.command(
    examples=("scratchbus dead-letters drop router --all", "scratchbus dead-letters drop router 1795263437791-3")
)
@click.argument("name")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@pass_session
def drop(session: Session, name: str, positions: tuple[str, ...], is_all: bool) -> None:
    """Drop dead letters. The events stay in the log."""
    chosen = _chosen(positions, is_all)
    with session.connect() as bus:
        count = bus.drop_dead_letters(name, chosen)
    _show_count(session, name, "dropped", count)


def _chosen(positions: tuple[str, ...], is_all: bool) -> list[str] | None:
    if bool(positions) is is_all:
        raise click.UsageError("give positions, as `dead-letters ls` shows them, or --all")
    return None if is_all else list(positions)


def _show_count(session: Session, name: str, verb: str, count: int) -> None:
    about = f"{plural(count, 'dead letter')} of {name}"
    session.out.result({"subscription": name, verb: count}, Cell(verb, "green"), Cell(about))
