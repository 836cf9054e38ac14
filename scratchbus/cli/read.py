"""The page as it is now: `list`, `active`, `show`, `history`, `trace`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.arguments import pairs, past_moment
from scratchbus.cli.commands import command, given
from scratchbus.cli.completion import statuses, type_names
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation, pass_session
from scratchbus.cli.observation_view import columns_at, show_card, show_gone, show_trace
from scratchbus.errors import NotFound

_COUNT = click.IntRange(min=1)
_EMPTY = "The page is empty; add something with `scratchbus add TYPE CONTENT --source NAME`, or give another --page"


@command(
    "list",
    examples=(
        "scratchbus list --type risk_alert --status active --since 2h",
        "scratchbus list --tag security --text fraud",
        "scratchbus --json list --all | jq .content",
    ),
)
@click.option("--type", shell_complete=type_names, help="Only this type.")
@click.option("--status", multiple=True, shell_complete=statuses, help="Only this status; repeatable.")
@click.option("--owner", help="Only this owner.")
@click.option("--source", help="Only this source.")
@click.option("--tag", "tags", multiple=True, help="Only with this tag; repeatable.")
@click.option("--text", help="Only with this text in the content, ignoring case.")
@click.option(
    "--context", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Only with this in the context; repeatable."
)
@click.option("--since", metavar="TIME", help="Only added since: 2h ago, 14:02, ISO 8601.")
@click.option("--limit", type=_COUNT, metavar="N", help="The most observations to show.  [default: 100]")
@click.option("--all", "is_all", is_flag=True, help="Show all of them.")
@click.option("--after", metavar="ID", help="Continue after this one, the last of the previous list.")
@pass_session
def list_(
    session: Invocation,
    since: str | None,
    limit: int | None,
    is_all: bool,
    after: str | None,
    **narrow: Any,
) -> None:
    """List the observations of the page, newest first.

    Each option narrows the list. A terminal shows the last characters of ids; every command accepts these as an id.
    """
    wanted = given(**narrow)
    if since is not None:
        wanted["since"] = past_moment("since", since)
    if is_all or limit is not None:
        wanted["limit"] = limit
    with session.open() as opened:
        if after is not None:
            wanted["after"] = opened.page.whole_id(after)
        found = opened.page.list(**wanted)
    session.out.listing(columns_at(), found, empty="Nothing matches" if wanted.keys() - {"limit"} else _EMPTY)


@command(examples=("scratchbus active --limit 10",))
@click.option("--limit", type=_COUNT, metavar="N", help="The most observations to show.  [default: all]")
@pass_session
def active(session: Invocation, limit: int | None) -> None:
    """Show the active observations, by priority."""
    with session.open() as opened:
        found = opened.page.active(limit)
    session.out.listing(columns_at(), found, empty="Nothing is active; see all with `scratchbus list`")


@command(examples=("scratchbus show 8F3K2M9Q --history",))
@click.argument("id", metavar="ID")
@click.option("--history", "with_history", is_flag=True, help="Show its events too.")
@pass_session
def show(session: Invocation, id: str, with_history: bool) -> None:
    """Show one observation in full.

    ID is its id, or at least the last 6 characters of it. If it has left the page, --history shows its events.
    """
    with session.open() as opened:
        whole = opened.page.whole_id(id)
        observation = opened.page.get(whole)
        evidence = opened.page.evidence(whole) if observation and observation.evidence else {}
        is_wanted = with_history or observation is None  # its history is an error if there never was one
        events = opened.page.history(whole) if is_wanted else None
    if observation is not None:
        show_card(session, observation, events, evidence)
    elif with_history:
        show_gone(session, opened.page.name, whole, events or ())
    else:
        raise NotFound(f"{whole} is no longer on page {opened.page.name!r}; see `scratchbus history {whole}`")


@command(examples=("scratchbus trace goal-17", "scratchbus --json trace goal-17 | jq .motives"))
@click.argument("action")
@pass_session
def trace(session: Invocation, action: str) -> None:
    """Show what led to an action.

    Shows the observations linked to ACTION and, below each, the evidence it rests on, on any page.
    """
    with session.open() as opened:
        found = opened.page.trace(action)
    show_trace(session, found)


@command(examples=("scratchbus history 8F3K2M9Q",))
@click.argument("id", metavar="ID")
@pass_session
def history(session: Invocation, id: str) -> None:
    """Show the events about an observation, oldest first.

    This also works when it has left the page.
    """
    with session.open() as opened:
        events = opened.page.history(opened.page.whole_id(id))
    show_history(session, events)
