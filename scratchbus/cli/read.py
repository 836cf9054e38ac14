"""The current page: `list`, `active`, `ready`, `show`, `history`, `trace`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.arguments import TIME, pairs
from scratchbus.cli.commands import PAGE, command, given
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation, pass_session
from scratchbus.cli.observation_view import blocked_in, columns_at, show_card, show_gone, show_trace
from scratchbus.cli.shell_completion import statuses, type_names
from scratchbus.cli.text import short
from scratchbus.errors import NotFound

_MOST = 100
_COUNTED = 1_000  # of those not shown
_COUNT = click.IntRange(min=1)
_EMPTY = "The page is empty; add something with `scratchbus add TYPE CONTENT --source NAME`, or give another --page"


@command(
    "list",
    examples=(
        "scratchbus list --type risk_alert --status active --since 2h",
        "scratchbus list --tag security --text fraud",
        "scratchbus --json list --all | jq .content",
    ),
    shared=PAGE,
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
@click.option(
    "--metadata", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Only with this in the metadata; repeatable."
)
@click.option("--confidence", type=float, metavar="X", help="Only with at least this confidence, 0 to 1.")
@click.option("--since", metavar="TIME", help=f"Only added since: {TIME}.")
@click.option("--limit", type=_COUNT, metavar="N", help=f"The most observations to show.  [default: {_MOST}]")
@click.option("--all", "is_all", is_flag=True, help="Show all of them.")
@click.option("--after", metavar="ID", help="Continue after this one, the last of the previous list.")
@pass_session
def list_(
    session: Invocation,
    limit: int | None,
    is_all: bool,
    after: str | None,
    **narrow: Any,
) -> None:
    """List the observations of the page, newest first.

    Each option narrows the list. A terminal shows the last characters of ids; every command accepts these as an id.
    """
    if is_all and limit is not None:
        raise click.UsageError("--all shows all; leave out --limit")
    wanted = given(**narrow)
    most = None if is_all else limit or _MOST
    with session.open() as opened:
        begin = None if after is None else opened.page.whole_id(after)
        found = opened.page.list(**wanted, limit=most, after=begin)
        more = opened.page.count(**wanted, after=found[-1], limit=_COUNTED) if found and len(found) == most else 0
        blocked = blocked_in(opened.page, found) if session.out.is_terminal else frozenset()
    columns = columns_at(blocked=blocked)
    session.out.listing(columns, found, empty="Nothing matches" if wanted or after is not None else _EMPTY)
    if more:
        session.out.remark(
            f"{_many(more)} more match: go on with --after {short(found[-1].id)}, or show all with --all"
        )


def _many(more: int) -> str:
    return f"At least {more:,}" if more == _COUNTED else f"{more:,}"


@command(examples=("scratchbus active --limit 10",), shared=PAGE)
@click.option("--limit", type=_COUNT, metavar="N", help="The most observations to show.  [default: all]")
@pass_session
def active(session: Invocation, limit: int | None) -> None:
    """Show the active observations, by priority."""
    with session.open() as opened:
        found = opened.page.active(limit)
        is_full = len(found) == limit
        more = len(opened.page.active(len(found) + _COUNTED)) - len(found) if is_full else 0
    session.out.listing(columns_at(), found, empty="Nothing is active; see all with `scratchbus list`")
    if more > 0:
        session.out.remark(f"{_many(more)} more are active: show all without --limit")


@command(examples=("scratchbus ready --limit 5",), shared=PAGE)
@click.option("--limit", type=_COUNT, metavar="N", help="The most observations to show.  [default: all]")
@pass_session
def ready(session: Invocation, limit: int | None) -> None:
    """Show what can be claimed now, by priority.

    That is: active, not blocked and not claimed, in the order in which claim-next hands them out.
    """
    with session.open() as opened:
        found = opened.page.ready(limit)
    session.out.listing(columns_at(), found, empty="Nothing is ready; see what is going on with `scratchbus active`")


@command(examples=("scratchbus show 8F3K2M9Q --history",), shared=PAGE)
@click.argument("id", metavar="ID")
@click.option("--history", "with_history", is_flag=True, help="Show its events too.")
@pass_session
def show(session: Invocation, id: str, with_history: bool) -> None:
    """Show one observation in full.

    ID is its id, or at least 6 characters of its end or beginning. If it has left the page, --history shows its events.
    """
    with session.open() as opened:
        whole = opened.page.whole_id(id)
        observation = opened.page.get(whole)
        evidence = opened.page.evidence(whole) if observation and observation.evidence else {}
        is_wanted = with_history or observation is None  # its history is an error if there never was one
        events = opened.page.history(whole) if is_wanted else None
        blocked = blocked_in(opened.page, [observation] if observation and not session.as_json else [])
    if observation is not None:
        show_card(session, observation, events, evidence, blocked)
    elif with_history:
        show_gone(session, opened.page.name, whole, events or ())
    else:
        raise NotFound(f"{whole} is no longer on page {opened.page.name!r}; see `scratchbus history {whole}`")


@command(examples=("scratchbus trace goal-17", "scratchbus --json trace goal-17 | jq .motives"), shared=PAGE)
@click.argument("action")
@pass_session
def trace(session: Invocation, action: str) -> None:
    """Show what led to an action.

    Shows the observations linked to ACTION and, below each, the evidence it rests on, on any page.
    """
    with session.open() as opened:
        found = opened.page.trace(action)
    show_trace(session, found)


@command(examples=("scratchbus history 8F3K2M9Q",), shared=PAGE)
@click.argument("id", metavar="ID")
@pass_session
def history(session: Invocation, id: str) -> None:
    """Show the events about an observation, oldest first.

    This also works when it has left the page.
    """
    with session.open() as opened:
        events = opened.page.history(opened.page.whole_id(id))
    show_history(session, events)
