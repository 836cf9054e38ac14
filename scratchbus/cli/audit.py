"""The page in the past, and its changes: `replay` and `diff`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

import scratchbus
from scratchbus.cli.arguments import TIME
from scratchbus.cli.commands import PAGE, command
from scratchbus.cli.invocation import Invocation, OpenPage, pass_invocation
from scratchbus.cli.observation_view import columns_at, show_differences
from scratchbus.cli.output import progress_bar
from scratchbus.cli.text import clock
from scratchbus.errors import InvalidInput, InvalidPosition

_WHEN = f"or a position: {TIME}"


@command(
    examples=(
        "scratchbus replay --until 14:02",
        "scratchbus replay --until '10m ago' --active",
        "scratchbus replay --without-source fraud_detector",
    ),
    shared=PAGE,
)
@click.option("--until", "--at", metavar="WHEN", help=f"The time to show, {_WHEN}.  [default: now]")
@click.option(
    "--without-source",
    "sources",
    multiple=True,
    metavar="NAME",
    help="Show what differs without this source; repeatable.",
)
@click.option("--active", "only_active", is_flag=True, help="Only active observations, by priority.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The most observations to show.  [default: all]")
@pass_invocation
def replay(
    invocation: Invocation, until: str | None, sources: tuple[str, ...], only_active: bool, limit: int | None
) -> None:
    """Show the page at a past time.

    Shows all its observations, newest first. A clock time without a day is the most recent one, in the local time zone.
    ISO 8601 without a zone is UTC.

    With --without-source it shows how the page would differ without what these sources published and all that rested on
    it. This reads the log of all pages up to that time.
    """
    if sources and (only_active or limit is not None):
        raise click.UsageError("--without-source shows differences; leave out --active and --limit")
    with invocation.open() as opened:
        moment = opened.bus.position() if until in (None, "now") else str(until)
        past = _past(opened, "--until", moment)
        if sources:
            show_differences(
                invocation, past.diff(_past(opened, "--until", moment, sources)), "Nothing would be different"
            )
            return
        found = past.active(limit) if only_active else past.list(limit=limit)
    if invocation.out.is_terminal:
        at = clock(past.at, datetime.now(UTC))
        invocation.out.note(f"{past.name} as of {at}, position {past.position}")
    empty = "Nothing was active" if only_active else "The page was empty"
    invocation.out.listing(columns_at(past.at), found, empty=empty)


@command(
    examples=(
        "scratchbus diff --from 1h --to '30m ago'",
        "scratchbus --json diff --from yesterday\\ 14:02 | jq .fields",
    ),
    shared=PAGE,
)
@click.option("--from", "start", required=True, metavar="WHEN", help=f"The earlier time, {_WHEN}.")
@click.option("--to", "end", metavar="WHEN", help="The later time, in the same forms.  [default: now]")
@pass_invocation
def diff(invocation: Invocation, start: str, end: str | None) -> None:
    """Show how the page changed between two times.

    Shows added observations, changed fields, and removed observations. With --json it prints one document per
    difference.
    """
    with invocation.open() as opened:
        before = _past(opened, "--from", start)
        after = _past(opened, "--to", end or opened.bus.position())
        if end is not None and (before.position, before.at) > (after.position, after.at):
            raise InvalidInput(f"--from {start} is after --to {end}; exchange them")
        show_differences(invocation, before.diff(after), "Nothing is different")


def _past(
    opened: OpenPage, option: str, when: scratchbus.BusPosition | str, sources: Sequence[str] = ()
) -> scratchbus.PastPage:
    """Return the page as of the value of an option. Raises InvalidPosition, which names the option."""
    with progress_bar("Replaying") as progress:
        try:
            return opened.page.as_of(when, sources, progress=progress)
        except InvalidPosition as problem:
            raise InvalidPosition(f"{option}: {str(problem).removeprefix('when: ')}") from None
