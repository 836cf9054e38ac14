"""The current page: `list`, `active`, `ready`, `show`, `history`, `trace`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.arguments import TIME, pairs
from scratchbus.cli.commands import PAGE, command, given
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.observation_view import blocked_in, columns_at, show_card, show_gone, show_trace
from scratchbus.cli.shell_completion import statuses, type_names
from scratchbus.cli.text import short
from scratchbus.errors import NotFound

_DEFAULT_LIMIT = 100
_MAX_COUNTED = 1_000  # of those not shown
_COUNT = click.IntRange(min=1)


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
@click.option("--limit", type=_COUNT, metavar="N", help=f"The most observations to show.  [default: {_DEFAULT_LIMIT}]")
@click.option("--all", "is_all", is_flag=True, help="Show all of them.")
@click.option("--after", metavar="ID", help="Continue after this one, the last of the previous list.")
@pass_invocation
def list_(
    invocation: Invocation,
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
    filters = given(**narrow)
    max_rows = None if is_all else limit or _DEFAULT_LIMIT
    with invocation.open() as opened:
        after_id = None if after is None else opened.page.whole_id(after)
        found = opened.page.list(**filters, limit=max_rows, after=after_id)
        remaining = (
            opened.page.count(**filters, after=found[-1], limit=_MAX_COUNTED) if found and len(found) == max_rows else 0
        )
        blocked = blocked_in(opened.page, found) if invocation.out.is_terminal else frozenset()
    columns = columns_at(blocked=blocked)
    how = invocation.hint("add TYPE CONTENT --source NAME")
    empty = f"The page is empty; add something with {how}, or give another --page"
    invocation.out.listing(columns, found, empty="Nothing matches" if filters or after is not None else empty)
    if remaining:
        invocation.out.remark(
            f"{_count_text(remaining)} more match: go on with --after {short(found[-1].id)}, or show all with --all"
        )


def _count_text(count: int) -> str:
    return f"At least {count:,}" if count == _MAX_COUNTED else f"{count:,}"


@command(examples=("scratchbus active --limit 10",), shared=PAGE)
@click.option("--limit", type=_COUNT, metavar="N", help="The most observations to show.  [default: all]")
@pass_invocation
def active(invocation: Invocation, limit: int | None) -> None:
    """Show the active observations, by priority."""
    with invocation.open() as opened:
        found = opened.page.active(limit)
        is_full = len(found) == limit
        remaining = len(opened.page.active(len(found) + _MAX_COUNTED)) - len(found) if is_full else 0
    empty = f"Nothing is active; see all with {invocation.hint('list')}, or give another --page"
    invocation.out.listing(columns_at(), found, empty=empty)
    if remaining > 0:
        invocation.out.remark(f"{_count_text(remaining)} more are active: show all without --limit")


@command(examples=("scratchbus ready --limit 5",), shared=PAGE)
@click.option("--limit", type=_COUNT, metavar="N", help="The most observations to show.  [default: all]")
@pass_invocation
def ready(invocation: Invocation, limit: int | None) -> None:
    """Show what can be claimed now, by priority.

    That is: active, not blocked and not claimed, in the order in which claim-next hands them out.
    """
    with invocation.open() as opened:
        found = opened.page.ready(limit)
    invocation.out.listing(
        columns_at(), found, empty=f"Nothing is ready; see what is going on with {invocation.hint('active')}"
    )


@command(examples=("scratchbus show 8F3K2M9Q --history",), shared=PAGE)
@click.argument("id", metavar="ID")
@click.option("--history", "with_history", is_flag=True, help="Show its events too.")
@pass_invocation
def show(invocation: Invocation, id: str, with_history: bool) -> None:
    """Show one observation in full.

    ID is its id, or at least 6 characters of its end or beginning. If it has left the page, --history shows its events.
    """
    with invocation.open() as opened:
        full_id = opened.page.whole_id(id)
        observation = opened.page.get(full_id)
        evidence = opened.page.evidence(full_id) if observation and observation.evidence else {}
        is_wanted = with_history or observation is None  # its history is an error if there never was one
        events = opened.page.history(full_id) if is_wanted else None
        blocked = blocked_in(opened.page, [observation] if observation and not invocation.as_json else [])
    if observation is not None:
        show_card(invocation, observation, events, evidence, blocked)
    elif with_history:
        show_gone(invocation, opened.page.name, full_id, events or ())
    else:
        raise NotFound(
            f"{full_id} is no longer on page {opened.page.name!r}; see {invocation.hint(f'history {full_id}')}"
        )


@command(examples=("scratchbus trace goal-17", "scratchbus --json trace goal-17 | jq .motives"), shared=PAGE)
@click.argument("action")
@pass_invocation
def trace(invocation: Invocation, action: str) -> None:
    """Show what led to an action.

    Shows the observations linked to ACTION and, below each, the evidence it rests on, on any page.
    """
    with invocation.open() as opened:
        found = opened.page.trace(action)
    show_trace(invocation, found)


@command(examples=("scratchbus history 8F3K2M9Q",), shared=PAGE)
@click.argument("id", metavar="ID")
@pass_invocation
def history(invocation: Invocation, id: str) -> None:
    """Show the events about an observation, oldest first.

    This also works when it has left the page.
    """
    with invocation.open() as opened:
        events = opened.page.history(opened.page.whole_id(id))
    show_history(invocation, events)
