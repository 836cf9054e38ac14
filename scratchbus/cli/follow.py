"""Following the log and a page: `tail` and `watch`."""

from __future__ import annotations

import click

import scratchbus
from scratchbus.cli.arguments import TIME
from scratchbus.cli.commands import ENGINE, PAGE, command, page_option
from scratchbus.cli.event_view import exporter, log_printer
from scratchbus.cli.invocation import Invocation, OpenPage, pass_invocation
from scratchbus.cli.observation_view import show_watched
from scratchbus.cli.shell_completion import kinds as kind_names
from scratchbus.cli.shell_completion import type_names
from scratchbus.errors import InvalidId, UnknownType


@command(
    examples=(
        "scratchbus tail --follow --after now",
        "scratchbus tail --after 10m --kind added --kind status_changed",
        "scratchbus --json tail --follow --page main --type risk_alert | my-script",
        "scratchbus tail --format jsonl > backup.jsonl",
        "scratchbus tail --follow --format cloudevents | my-broker",
    ),
    shared=ENGINE,
)
@click.option("-f", "--follow", is_flag=True, help="Continue with new events until Ctrl-C.")
@click.option("--after", metavar="POS", help=f"Start after a time or a position: {TIME}; or now.")
@page_option("The page to show.  [default: all]")
@click.option("--type", "types", multiple=True, shell_complete=type_names, help="Only this type; repeatable.")
@click.option("--kind", "kinds", multiple=True, shell_complete=kind_names, help="Only this kind of event; repeatable.")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv", "cloudevents"]), help="Export whole events.")
@pass_invocation
def tail(
    invocation: Invocation,
    follow: bool,
    after: str | None,
    types: tuple[str, ...],
    kinds: tuple[str, ...],
    form: str | None,
) -> None:
    """Show the event log, oldest first.

    It starts at the beginning unless --after is given, and covers all pages unless --page is given;
    SCRATCHBUS_PAGE does not restrict it.

    --format jsonl prints each event exactly as stored, one JSON document per line; `scratchbus import` makes an equal
    bus of them. --format csv prints the same in columns, below a line with their names. --format cloudevents prints
    CloudEvents 1.0, one per line.
    """
    with invocation.connect() as bus:
        for name in types:
            try:
                bus.types.get(name)
            except UnknownType as problem:  # probably a typo, but events of a removed type are still in the log
                invocation.out.note(str(problem))
        is_whole = not (follow or after or types or kinds or invocation.page)
        until = bus.position() if is_whole and form == "jsonl" else None
        show = log_printer(invocation) if form is None else exporter(invocation, form, until)
        pages = None if invocation.page is None else [invocation.page]
        start = bus.position() if after == "now" else after
        for event in bus.events(start, follow=follow, pages=pages, types=types or None, kinds=kinds or None):
            show(event)


@command(examples=("scratchbus watch --page session:abc",), shared=PAGE)
@pass_invocation
def watch(invocation: Invocation) -> None:
    """Show the page live until Ctrl-C.

    Shows the open observations by priority, and the last events below them.

    In a pipe it first prints the open observations, then one line per change: what happened, and the observation as it
    is now.
    """
    with invocation.open() as opened:
        if invocation.out.is_terminal:
            from scratchbus.cli.screen import run_screen  # late: rich takes longer to import than `--help` may take

            run_screen(opened, invocation)
        else:
            _print_changes(invocation, opened)


def _print_changes(invocation: Invocation, opened: OpenPage) -> None:
    start, page = opened.bus.position(), opened.page
    for observation in list_open(page):
        show_watched(invocation, "open", observation.id, observation)
    for event in opened.bus.events(start, follow=True, pages=[page.name]):
        show_watched(invocation, event.kind, event.subject, _current(page, event.subject))


def _current(page: scratchbus.Page, subject: str) -> scratchbus.Observation | None:
    """Return an observation as it is now; None off the page, and for other subjects, such as notes."""
    try:
        return page.get(subject)
    except InvalidId:
        return None


def list_open(page: scratchbus.Page, limit: int | None = None) -> list[scratchbus.Observation]:
    """Return the open observations of a page, those in review included: by priority, then newest first."""
    in_review = page.list(status="pending_review", limit=None)
    found = sorted([*page.active(limit), *in_review], key=lambda each: (-each.priority, -each.added_seq))
    return found[:limit]
