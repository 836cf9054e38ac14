"""What subscriptions set aside: `dead-letters ls`, `dead-letters retry`, `dead-letters drop`."""

from __future__ import annotations

import click

from scratchbus.cli.common import BusGroup, Session, pass_session
from scratchbus.cli.output import WIDE, Cell, Heading
from scratchbus.cli.text import one_line, plural

_HEADINGS = (
    Heading("subscription", 12),
    Heading("position", 18),
    Heading("page", 6, least=WIDE),
    Heading("kind", 8, least=WIDE),
    Heading("attempts", right=True),
    Heading("reason"),
)


@click.group("dead-letters", cls=BusGroup)
def dead_letters() -> None:
    """See and deal with the events that subscriptions set aside."""


@dead_letters.command("ls", examples=("scratchbus dead-letters ls", "scratchbus dead-letters ls router"))
@click.argument("name", required=False)
@pass_session
def list_letters(session: Session, name: str | None) -> None:
    """Show the dead letters of a subscription, or of all, in the order of their events."""
    with session.connect() as bus:
        found = bus.dead_letters(name)
    if session.as_json:
        for each in found:
            session.out.document(each.model_dump(mode="json"))
    elif not found:
        session.out.note("There are no dead letters.")
    else:
        rows = [
            [
                Cell(each.subscription),
                Cell(each.position),
                Cell(each.page),
                Cell(each.kind),
                Cell(str(each.attempts)),
                Cell(one_line(each.reason), "red"),
            ]
            for each in found
        ]
        session.out.table(_HEADINGS, rows)


@dead_letters.command(
    examples=("scratchbus dead-letters retry router", "scratchbus dead-letters retry router 1795263437791-3")
)
@click.argument("name")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "is_all", is_flag=True, help="All there are.")
@pass_session
def retry(session: Session, name: str, positions: tuple[str, ...], is_all: bool) -> None:
    """Have dead letters delivered again, before anything new: those at these positions, or all."""
    chosen = _chosen(positions, is_all or not positions)
    with session.connect() as bus:
        count = bus.retry_dead_letters(name, chosen)
    _say(session, name, "retried", count)


@dead_letters.command(
    examples=("scratchbus dead-letters drop router --all", "scratchbus dead-letters drop router 1795263437791-3")
)
@click.argument("name")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "is_all", is_flag=True, help="All there are.")
@pass_session
def drop(session: Session, name: str, positions: tuple[str, ...], is_all: bool) -> None:
    """Throw dead letters away. The events stay in the log."""
    chosen = _chosen(positions, is_all)
    with session.connect() as bus:
        count = bus.drop_dead_letters(name, chosen)
    _say(session, name, "dropped", count)


def _chosen(positions: tuple[str, ...], is_all: bool) -> list[str] | None:
    if bool(positions) is is_all:
        raise click.UsageError("name positions, as `dead-letters ls` shows them, or say --all")
    return None if is_all else list(positions)


def _say(session: Session, name: str, verb: str, count: int) -> None:
    if session.as_json:
        session.out.document({"subscription": name, verb: count})
    else:
        session.out.sentence(Cell(verb, "green"), Cell(f"{plural(count, 'dead letter')} of {name}"))
