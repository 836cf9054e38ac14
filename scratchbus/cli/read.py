"""Looking at the page: `list`, `active`, `show`, `history`, `trace`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.common import Session, command, given, pass_session
from scratchbus.cli.complete import statuses, type_names
from scratchbus.cli.render import show_card, show_gone, show_history, show_list, show_trace
from scratchbus.cli.values import pairs, past_moment

_COUNT = click.IntRange(min=1)
_FIRST = "Nothing here yet: add something with `scratchbus add TYPE CONTENT --source NAME`, or give another --page"


@command(
    "list",
    examples=(
        "scratchbus list --type risk_alert --status active --since 2h",
        "scratchbus list --tag security --text fraud",
        "scratchbus --json list --all | jq .content",
    ),
)
@click.option("--type", shell_complete=type_names, help="Of this type.")
@click.option("--status", multiple=True, shell_complete=statuses, help="In this status; may be given several times.")
@click.option("--owner", help="Of this owner.")
@click.option("--source", help="From this source.")
@click.option("--tag", "tags", multiple=True, help="With this tag; with each of them when given several times.")
@click.option("--text", help="With this text in the content, in any case.")
@click.option(
    "--context", multiple=True, callback=pairs, metavar="KEY=VALUE", help="With this in the context; the same way."
)
@click.option("--since", metavar="TIME", help="Added since then: 2h ago, 14:02, ISO 8601.")
@click.option("--limit", type=_COUNT, metavar="N", help="At most so many.  [default: 100]")
@click.option("--all", "is_all", is_flag=True, help="As many as there are.")
@click.option("--after", metavar="ID", help="Go on after this one, the last of the list before.")
@pass_session
def list_(
    session: Session,
    since: str | None,
    limit: int | None,
    is_all: bool,
    after: str | None,
    **narrow: Any,
) -> None:
    """List what is on the page, newest first.

    Every option narrows it. On a terminal ids are shown by their last characters; those are enough wherever an id is
    asked for.
    """
    wanted = given(**narrow)
    if since is not None:
        wanted["since"] = past_moment("since", since)
    if is_all or limit is not None:
        wanted["limit"] = limit
    with session.open() as place:
        if after is not None:
            wanted["after"] = place.id(after)
        found = place.page.list(**wanted)
        show_list(session, found)
        if not found:
            session.out.note("Nothing matches" if wanted.keys() - {"limit"} else _FIRST)


@command(examples=("scratchbus active --limit 10",))
@click.option("--limit", type=_COUNT, metavar="N", help="At most so many.  [default: all]")
@pass_session
def active(session: Session, limit: int | None) -> None:
    """Show what is active, by priority."""
    with session.open() as place:
        found = place.page.active(limit)
    show_list(session, found)
    if not found:
        session.out.note("Nothing is active; see all with `scratchbus list`")


@command(examples=("scratchbus show 8F3K2M9Q --history",))
@click.argument("id", metavar="ID")
@click.option("--history", "with_history", is_flag=True, help="With the events about it.")
@pass_session
def show(session: Session, id: str, with_history: bool) -> None:
    """Show one observation in full.

    ID is its id, or at least the last 6 characters of it. Of one that has left the page there is the history.
    """
    from scratchbus.commands.trace import with_evidence
    from scratchbus.errors import NotFound

    with session.open() as place:
        whole = place.id(id)
        observation = place.page.get(whole)
        evidence = observation.evidence if observation else []
        found = place.bus.converse(with_evidence(place.bus.core, place.page.name, evidence))
        refuted = {each.id for each in found.values() if each.reason_code == "refuted"}
        is_wanted = with_history or observation is None  # which says when there never was one
        events = place.page.history(whole) if is_wanted else None
    if observation is not None:
        show_card(session, observation, events, refuted)
    elif with_history:
        show_gone(session, place.page.name, whole, events or ())
    else:
        raise NotFound(f"{whole} is no longer on page {place.page.name!r}; see `scratchbus history {whole}`")


@command(examples=("scratchbus trace goal-17", "scratchbus --json trace goal-17 | jq .motives"))
@click.argument("action")
@pass_session
def trace(session: Session, action: str) -> None:
    """Show what led to an action.

    Those are the observations that ACTION is linked to and, below each, the evidence it rests on, on whatever page.
    """
    with session.open() as place:
        found = place.page.trace(action)
    show_trace(session, found)


@command(examples=("scratchbus history 8F3K2M9Q",))
@click.argument("id", metavar="ID")
@pass_session
def history(session: Session, id: str) -> None:
    """Show what happened to an observation, oldest first.

    Also when it has left the page.
    """
    with session.open() as place:
        events = place.page.history(place.id(id))
    show_history(session, events)
