"""Following what happens: `tail` and `watch`."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import click

from scratchbus.cli.common import Place, Session, command, pass_session
from scratchbus.cli.complete import kinds as kind_names
from scratchbus.cli.complete import type_names
from scratchbus.cli.render import exporter, show_event, show_watched
from scratchbus.cli.values import when

if TYPE_CHECKING:
    from scratchbus import Bus, BusPosition, Observation, Page, Position

_TICK = 0.1  # seconds within which what happens at once is shown at once


@command(
    examples=(
        "scratchbus tail --follow --after now",
        "scratchbus tail --after 10m --kind added --kind status_changed",
        "scratchbus --json tail --follow --page main --type risk_alert | my-script",
        "scratchbus tail --format jsonl > backup.jsonl",
    )
)
@click.option("-f", "--follow", is_flag=True, help="Go on as it happens, until Ctrl-C.")
@click.option("--after", metavar="POS", help="Begin behind a position, at a time (10m ago, 14:02, ISO 8601), or `now`.")
@click.option("--type", "types", multiple=True, shell_complete=type_names, help="Of this type; may be repeated.")
@click.option("--kind", "kinds", multiple=True, shell_complete=kind_names, help="Of this kind; may be repeated.")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), help="Export: whole events, to be read again.")
@pass_session
def tail(
    session: Session, follow: bool, after: str | None, types: tuple[str, ...], kinds: tuple[str, ...], form: str | None
) -> None:
    """Show the event log, oldest first.

    From its beginning, unless --after says otherwise, and on all pages, unless --page is given.

    --format jsonl prints each event as it was written, one JSON document a line; `scratchbus import` makes an equal bus
    of it. csv has a line of names first, and the same in columns.
    """
    from scratchbus.domain.values import check_page

    pages = None if session.page is None else [check_page(session.page)]
    with session.connect() as bus:
        for name in types:
            _hint_at_type(session, bus, name)
        place = None if after is None else _position(bus, after)
        show = partial(show_event, session) if form is None else exporter(session, form)
        for event in bus.events(place, follow=follow, pages=pages, types=types or None, kinds=kinds or None):
            show(event)


def _hint_at_type(session: Session, bus: Bus, name: str) -> None:
    """Say so when there is no such type: what was removed may be asked for, but more likely it is a slip."""
    from scratchbus.errors import UnknownType

    try:
        bus.types.get(name)
    except UnknownType as problem:
        session.out.note(str(problem))


def _position(bus: Bus, text: str) -> BusPosition | Position | str:
    """Return the place in the log that a text names. Raises InvalidPosition."""
    from scratchbus.domain.position import Position, millis

    if text == "now":
        return bus.position()
    place = when("after", text)
    return place if isinstance(place, str) else Position(millis(place), 0)


@command(examples=("scratchbus watch --page session:abc",))
@pass_session
def watch(session: Session) -> None:
    """Show the page live.

    What is open by priority, and below it what has happened last. Ctrl-C ends it.

    In a pipe it prints the open observations first, then one line for each change: what happened, and the observation
    as it is now.
    """
    with session.open() as place:
        if session.out.is_terminal:
            from scratchbus.cli.live import run_live

            run_live(place, session.out)
        else:
            _print_changes(session, place)


def _print_changes(session: Session, place: Place) -> None:
    from scratchbus.cli.pacing import follow

    begun = place.bus.position()
    for observation in open_ones(place.page):
        show_watched(session, "open", observation.id, observation)
    for event in follow(place.bus, threading.Event(), after=begun, page=place.page.name, every=_TICK):
        if event is not None:
            show_watched(session, event.kind, event.subject, place.page.get(event.subject))


def open_ones(page: Page, limit: int | None = None) -> list[Observation]:
    """Return what is open on a page by priority, then newest first: what is active, and what waits for review."""
    waiting = page.list(status="pending_review", limit=None)
    both = sorted([*page.active(limit), *waiting], key=lambda each: (-each.priority, -each.added_seq))
    return both if limit is None else both[:limit]
