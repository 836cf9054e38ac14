"""Dealing with what is on the page: its status, claims, links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from scratchbus.cli.common import BusCommand, Session, command, event_id_option, fence_option, given, pass_session
from scratchbus.cli.output import Cell
from scratchbus.cli.render import show_change
from scratchbus.cli.text import clock, plural, short
from scratchbus.errors import NotFound

if TYPE_CHECKING:
    from scratchbus import Claim

_SEVERAL = "With several ids they are done in that order, up to the first that is refused."


def _transition(verb: str, done: str, help: str) -> BusCommand:
    """Return the command that takes observations to another status."""

    @click.argument("ids", nargs=-1, required=True, metavar="ID...")
    @click.option("--reason", metavar="TEXT", help="Why; it is kept with the observation.")
    @fence_option
    @event_id_option
    @pass_session
    def transition(session: Session, ids: tuple[str, ...], event_id: str | None, **how: Any) -> None:
        with session.open_fenced(ids[0], how["fence"]) as place:
            for index, id in enumerate(place.ids(ids)):
                own = event_id and _numbered(event_id, index)
                observation = getattr(place.page, verb)(id, **given(event_id=own, **how))
                show_change(session, done, observation)

    transition.__doc__ = f"{help}\n\n{_SEVERAL}"
    return command(verb, examples=(f"scratchbus {verb} 8F3K2M9Q --reason TEXT",))(transition)


review = _transition("review", "sent to review", "Send observations back for review: open, but not active.")
resolve = _transition("resolve", "resolved", "Close observations: what they said has been dealt with.")
archive_ids = _transition("archive", "archived", "Put observations away for good.")
reopen = _transition("reopen", "reopened", "Make observations active again.")


@command(examples=('scratchbus refute 8F3K2M9Q --reason "the log was from a test"',))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why it is not true.")
@fence_option
@event_id_option
@pass_session
def refute(session: Session, ids: tuple[str, ...], reason: str, event_id: str | None, **how: Any) -> None:
    """Archive observations because they are not true.

    What is open and rests on them goes to review, on every page. With several ids they are done in that order, up to
    the first that is refused.
    """
    with session.open_fenced(ids[0], how["fence"]) as place:
        for index, id in enumerate(place.ids(ids)):
            own = event_id and _numbered(event_id, index)
            show_change(session, "refuted", place.page.refute(id, reason=reason, **given(event_id=own, **how)))


def _numbered(event_id: str, index: int) -> str:
    """Return the event id of one of several: the first has it as it is, the next have a number behind it."""
    return f"{event_id}/{index}" if index else event_id


@command("clear-resolved", examples=("scratchbus clear-resolved 8F3K2M9Q 01HZX7",))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@event_id_option
@pass_session
def clear_resolved(session: Session, ids: tuple[str, ...], event_id: str | None) -> None:
    """Take resolved observations off the page.

    All of them or, if one is not resolved, none. Their history stays.
    """
    with session.open() as place:
        whole = place.ids(ids)
        place.page.clear_resolved(whole, event_id=event_id)
    if session.as_json:
        session.out.document({"page": place.page.name, "cleared": whole})
    elif session.out.is_terminal:
        session.out.sentence(Cell("cleared", "green"), Cell(plural(len(set(whole)), "observation")))
    else:
        for id in whole:
            session.out.line(id)


@command(
    examples=(
        "scratchbus claim 8F3K2M9Q --by executor-1 --ttl 5m",
        'scratchbus resolve 8F3K2M9Q --fence 1 --reason "card blocked"',
    )
)
@click.argument("id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who takes it; else --source.")
@click.option("--ttl", metavar="DURATION", help="How long it is held: 30s, 10m …")
@click.option("--fence", type=int, metavar="N", help="The fence of your claim, to renew it.")
@event_id_option
@pass_session
def claim(session: Session, id: str, by: str | None, **how: Any) -> None:
    """Take an observation, so that nobody else acts on it.

    The claim ends by itself after a while. It prints the fence that proves the claim: pass it to what you do with the
    observation. The fence counts in this terminal only, or wherever the same --source and --instance are given.
    """
    session.speak_as(by)
    with session.open() as place:
        holder = by or place.bus.settings.source
        if holder is None:
            raise click.UsageError("who takes it? Give --by NAME, or set SCRATCHBUS_SOURCE")
        whole = place.id(id)
        taken = place.page.claim(whole, by=holder, **given(**how))
    if session.as_json:
        session.out.document({"id": whole, "page": place.page.name, **taken.model_dump(mode="json")})
    else:
        _show_claim(session, whole, taken)


def _show_claim(session: Session, id: str, taken: Claim) -> None:
    out = session.out
    if out.is_terminal:
        until = clock(taken.until, datetime.now(UTC))
        out.sentence(
            Cell("claimed", "green"), Cell(short(id), "bold"), Cell("by"), Cell(taken.by, "magenta"),
            Cell(f"until {until}: pass --fence {taken.fence} to what you do with it"),
        )  # fmt: skip
    else:
        out.line(f"{id}  {taken.fence}  {taken.by}  {taken.until.isoformat(timespec='milliseconds')}")


@command(
    "claim-next",
    examples=(
        "scratchbus claim-next --by executor-1 --type risk_alert --tag security",
        'scratchbus resolve 8F3K2M9Q --fence 1 --reason "card blocked"',
    ),
)
@click.option("--by", metavar="NAME", help="Who takes it; else --source.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Take only this type; repeatable.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Take only what has this tag; repeatable.")
@click.option("--ttl", metavar="DURATION", help="How long it is held: 30s, 10m …")
@event_id_option
@pass_session
def claim_next(session: Session, by: str | None, **how: Any) -> None:
    """Take what is most important and free.

    Of what is active and nobody holds, the highest priority comes first, then the newest. It prints the observation and
    the claim on it, with the fence that proves it. When nothing is free it exits with 3.
    """
    session.speak_as(by)
    with session.open() as place:
        holder = by or place.bus.settings.source
        if holder is None:
            raise click.UsageError("who takes it? Give --by NAME, or set SCRATCHBUS_SOURCE")
        job = place.page.claim_next(by=holder, **given(**how))
        if job is None:
            raise NotFound(f"nothing on page {place.page.name!r} is free just now; see `scratchbus active`")
    if not session.as_json:
        _show_claim(session, job.id, job.claim)
    show_change(session, "next", job.observation)


@command(examples=("scratchbus release 8F3K2M9Q --by executor-1",))
@click.argument("id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who holds it; else --source.")
@fence_option
@event_id_option
@pass_session
def release(session: Session, id: str, by: str | None, **how: Any) -> None:
    """Give a claimed observation back."""
    session.speak_as(by)
    with session.open() as place:
        holder = by or place.bus.settings.source
        if holder is None:
            raise click.UsageError("who holds it? Give --by NAME, or set SCRATCHBUS_SOURCE")
        observation = place.page.release(place.id(id), by=holder, **given(**how))
    show_change(session, "released", observation)


@command(examples=("scratchbus link 8F3K2M9Q goal-17",))
@click.argument("id", metavar="ID")
@click.argument("action")
@fence_option
@event_id_option
@pass_session
def link(session: Session, id: str, action: str, **how: Any) -> None:
    """Record that an action was taken because of an observation.

    ACTION is its name, such as a goal, a ticket, a commit.
    """
    with session.open_fenced(id, how["fence"]) as place:
        observation = place.page.link(place.id(id), action, **given(**how))
    show_change(session, f"linked to {action}", observation)
