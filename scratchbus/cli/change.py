"""Commands that change observations: transitions, `refute`, claims, `link`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import PAGE, BusCommand, command, event_id_option, fence_option, given
from scratchbus.cli.invocation import Invocation, OpenPage, pass_invocation, without_source
from scratchbus.cli.observation_view import show_change
from scratchbus.cli.output import Cell
from scratchbus.cli.text import clock, plural, short
from scratchbus.errors import NotFound

_REASON = "The reason, which is kept with the observation."
_SEVERAL = "Several ids are handled in order, up to the first that is refused."

_ACTION = click.option("--action", metavar="TEXT", help="What was done because of them, as `link` records it.")
_TTL = click.option("--ttl", metavar="DURATION", help="Their new time to live: 2h, 7d, never.  [default: unchanged]")

Options = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator that adds options to a command."""


_FORMER = ("run", "ls", "verify")


class _Archive(BusCommand):
    """The command that archives observations; `run`, `ls` and `verify`, its former subcommands, are `log-archive`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse its arguments, or pass those of a former subcommand to the group that now has it."""
        valued = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        before = ["", *args]
        if not any(arg in _FORMER and last not in valued for last, arg in zip(before, args, strict=False)):
            return super().make_context(info_name, args, parent, **extra)
        from scratchbus.cli.archive import log_archive

        return log_archive.make_context(info_name, args, parent, **extra)


def _change(
    verb: str,
    past_tense: str,
    help: str,
    *options: Options,
    example: str,
    reason: str = _REASON,
    cls: type[BusCommand] = BusCommand,
) -> BusCommand:
    """Return a command that calls this method of the page for each of several observations."""

    @click.argument("ids", nargs=-1, required=True, metavar="ID...")
    @click.option("--reason", required=reason is not _REASON, metavar="TEXT", help=reason)
    @fence_option
    @event_id_option
    @pass_invocation
    def change(invocation: Invocation, ids: tuple[str, ...], event_id: str | None, **arguments: Any) -> None:
        with invocation.open_fenced(ids[0], arguments["fence"]) as opened:
            for index, id in enumerate(opened.ids(ids)):
                own_event_id = f"{event_id}/{index}" if event_id and index else event_id
                show_change(
                    invocation, past_tense, getattr(opened.page, verb)(id, **given(event_id=own_event_id, **arguments))
                )

    for option in options:
        change = option(change)
    change.__doc__ = f"{help} {_SEVERAL}" if "\n" in help else f"{help}\n\n{_SEVERAL}"
    examples = (f"scratchbus {verb} 8F3K2M9Q --reason '{example}'",)
    return click.command(verb, cls=cls, examples=examples, shared=PAGE)(change)


review = _change(
    "review",
    "sent to review",
    "Send observations to review.\n\nThey stay open, but are not active.",
    example="the amounts differ",
)
resolve = _change("resolve", "resolved", "Resolve observations that are done.", _ACTION, example="card blocked")
archive = _change("archive", "archived", "Archive observations.", cls=_Archive, example="no longer of interest")
reopen = _change("reopen", "reopened", "Reopen observations: they become active again.", _TTL, example="it is back")
refute = _change(
    "refute",
    "refuted",
    "Archive observations because they are not true.\n\n"
    "Open observations that rest on them go to review, on every page.",
    reason="Why they are not true.",
    example="the log was from a test",
)


@command("clear-resolved", examples=("scratchbus clear-resolved 8F3K2M9Q 01HZX7",), shared=PAGE)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@event_id_option
@pass_invocation
def clear_resolved(invocation: Invocation, ids: tuple[str, ...], event_id: str | None) -> None:
    """Remove resolved observations from the page.

    Removes all of them, or none if one is not resolved. Their history stays.
    """
    with invocation.open() as opened:
        full_ids = opened.ids(ids)
        opened.page.clear_resolved(full_ids, event_id=event_id)
    if invocation.as_json:
        invocation.out.document({"page": opened.page.name, "cleared": full_ids})
    elif invocation.out.is_terminal:
        invocation.out.sentence(Cell("cleared", "green"), Cell(plural(len(set(full_ids)), "observation")))
    else:
        for id in full_ids:
            invocation.out.line(id)


@command(
    examples=(
        "scratchbus claim 8F3K2M9Q --by executor-1 --ttl 5m",
        'scratchbus resolve 8F3K2M9Q --fence 1 --reason "card blocked"',
    ),
    shared=PAGE,
)
@click.argument("id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who claims it.  [default: --source]")
@click.option("--ttl", metavar="DURATION", help="How long the claim lasts: 10m, PT1H …  [default: 30s]")
@click.option("--fence", type=int, metavar="N", help="The fence of your claim, to renew it.")
@event_id_option
@pass_invocation
def claim(invocation: Invocation, id: str, by: str | None, **options: Any) -> None:
    """Claim an observation, so that no one else acts on it.

    The claim lapses after its --ttl. Prints the fence that proves the claim: pass it to the commands that change the
    observation. The fence is valid in this terminal, or with the same --source and --instance.
    """
    with _open_for_holder(invocation, by, "a claim needs a holder") as (opened, holder):
        full_id = opened.page.whole_id(id)
        claimed = opened.page.claim(full_id, by=holder, **given(**options))
    if invocation.as_json:
        invocation.out.document({"id": full_id, "page": opened.page.name, **claimed.model_dump(mode="json")})
    else:
        _show_claim(invocation, full_id, claimed)


@contextmanager
def _open_for_holder(invocation: Invocation, by: str | None, problem: str) -> Iterator[tuple[OpenPage, str]]:
    """Open the page, and yield the holder of a claim with it: `--by`, else the source."""
    invocation.speak_as(by)
    with invocation.open() as opened:
        holder = by or opened.bus.settings.source
        if holder is None:
            raise without_source(problem, "--by")
        yield opened, holder


def _show_claim(invocation: Invocation, id: str, claim: scratchbus.Claim) -> None:
    out = invocation.out
    if out.is_terminal:
        until = clock(claim.until, datetime.now(UTC))
        out.sentence(
            Cell("claimed", "green"), Cell(short(id), "bold"), Cell("by"), Cell(claim.by, "magenta"),
            Cell(f"until {until}: pass --fence {claim.fence} to the commands that change it"),
            is_whole=True,
        )  # fmt: skip
    else:
        out.line(f"{id}  {claim.fence}  {claim.by}  {claim.until.isoformat(timespec='milliseconds')}")


@command(
    "claim-next",
    examples=(
        "scratchbus claim-next --by executor-1 --type risk_alert --tag security",
        'scratchbus resolve 8F3K2M9Q --fence 1 --reason "card blocked"',
    ),
    shared=(*PAGE, "instance"),
)
@click.option("--by", metavar="NAME", help="Who claims it.  [default: --source]")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Claim only this type; repeatable.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Claim only observations with this tag; repeatable.")
@click.option("--ttl", metavar="DURATION", help="How long the claim lasts: 10m, PT1H …  [default: 30s]")
@event_id_option
@pass_invocation
def claim_next(invocation: Invocation, by: str | None, **options: Any) -> None:
    """Claim the most important observation that is free.

    Of the active observations that no one holds, it claims the one with the highest priority, the newest first. Prints
    the claim, with the fence that proves it, and the observation. Exits with 3 if nothing is free.
    """
    with _open_for_holder(invocation, by, "a claim needs a holder") as (opened, holder):
        job = opened.page.claim_next(by=holder, **given(**options))
        if job is None:
            raise NotFound(f"nothing on page {opened.page.name!r} is free; see {invocation.hint('active')}")
    if not invocation.as_json:
        _show_claim(invocation, job.id, job.claim)
    show_change(invocation, "next", job.observation)


@command(examples=("scratchbus release 8F3K2M9Q --by executor-1",), shared=PAGE)
@click.argument("id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who holds it.  [default: --source]")
@fence_option
@event_id_option
@pass_invocation
def release(invocation: Invocation, id: str, by: str | None, **options: Any) -> None:
    """Release a claimed observation."""
    with _open_for_holder(invocation, by, "release needs the holder") as (opened, holder):
        observation = opened.page.release(opened.page.whole_id(id), by=holder, **given(**options))
    show_change(invocation, "released", observation)


@command(examples=("scratchbus link 8F3K2M9Q goal-17",), shared=PAGE)
@click.argument("id", metavar="ID")
@click.argument("action")
@fence_option
@event_id_option
@pass_invocation
def link(invocation: Invocation, id: str, action: str, **options: Any) -> None:
    """Record that an action was taken because of an observation.

    ACTION is the name of a goal, a ticket, a commit or the like.
    """
    with invocation.open_fenced(id, options["fence"]) as opened:
        observation = opened.page.link(opened.page.whole_id(id), action, **given(**options))
    show_change(invocation, f"linked to {action}", observation)
