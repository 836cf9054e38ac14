"""Adding and updating observations: `add` and `update`."""

from __future__ import annotations

from typing import Any

import click

import scratchbus
from scratchbus.cli.arguments import FUTURE, content_of, pairs, trigger
from scratchbus.cli.commands import PAGE, command, event_id_option, fence_option, given
from scratchbus.cli.invocation import Invocation, pass_invocation, without_source
from scratchbus.cli.observation_view import show_change
from scratchbus.cli.shell_completion import statuses, type_names
from scratchbus.cli.text import short
from scratchbus.errors import ScratchbusError

_KEY_VALUE: dict[str, Any] = {"multiple": True, "callback": pairs, "metavar": "KEY=VALUE"}


@command(
    examples=(
        'scratchbus add risk_alert "Fraud ring on card 4711" --source fraud_detector --tag security --ttl 2h',
        "dmesg | tail -1 | scratchbus add observation - --source kernel --dedupe-key dmesg",
        'scratchbus add reminder "Call the bank" --source me --remind-at 10m',
        'scratchbus add action_suggestion "Check the backups" --source me --every "0 3 * * *"',
    ),
    shared=PAGE,
)
@click.argument("type", shell_complete=type_names)
@click.argument("content")
@click.option("--tag", "tags", multiple=True, help="A tag; repeatable.")
@click.option("--ttl", metavar="DURATION", help="When it expires: after 90s, 2h, 1h30m, 7d, or never.")
@click.option("--context", **_KEY_VALUE, help="A field of its context, as JSON or text; repeatable.")
@click.option("--metadata", **_KEY_VALUE, help="A field of its metadata, as JSON or text; repeatable.")
@click.option("--confidence", type=float, metavar="X", help="How certain the source is, from 0 to 1.  [default: 1]")
@click.option("--owner", help="Who should handle it.")
@click.option("--dedupe-key", metavar="KEY", help="Count it as a repeat of the open observation with this key.")
@click.option("--times", type=int, metavar="N", help="How many occurrences to count.  [default: 1]")
@click.option(
    "--evidence",
    multiple=True,
    metavar="ID",
    help="An observation that supports it, on any page (of another page: the whole id); repeatable.",
)
@click.option("--status", shell_complete=statuses, help="Its first status, instead of its type's.")
@click.option("--expires-at", metavar="TIME", help=f"When it expires, instead of --ttl: {FUTURE}.")
@click.option("--remind-at", metavar="TIME", help=f"When it is due: {FUTURE}.")
@click.option(
    "--remind-on", multiple=True, callback=trigger, metavar="KEY=VALUE",
    help="The event that makes it due, by type=, status= or tags=A,B.",
)  # fmt: skip
@click.option(
    "--blocked-by",
    multiple=True,
    metavar="ID",
    help="An observation that must be closed before it is active; repeatable.",
)
@click.option("--not-before", metavar="TIME", help=f"When it becomes active: {FUTURE}.")
@click.option(
    "--every", metavar="EVERY",
    help='Recur: an interval such as 1h, or cron in UTC such as "0 3 * * *". Archive it to end the recurrence.',
)  # fmt: skip
@event_id_option
@pass_invocation
def add(
    invocation: Invocation,
    type: str,
    content: str,
    evidence: tuple[str, ...],
    blocked_by: tuple[str, ...],
    **fields: Any,
) -> None:
    """Add an observation to the page.

    CONTENT is the text of the observation; - reads it from standard input. Prints the id of the observation. If one
    with the same dedupe key is open, that one is counted once more instead.
    """
    with invocation.open() as opened:
        if opened.bus.settings.source is None:
            raise without_source("add needs a source")
        observation = opened.page.add(
            type,
            content_of(content),
            evidence=opened.ids(evidence) or None,  # an empty list would make a retry from Python another call
            blocked_by=opened.ids(blocked_by) or None,
            **given(**fields),
        )
        try:
            remarks = [f"the page is full: displaced {_named(each)}" for each in opened.page.displaced(observation)]
        except ScratchbusError as problem:  # it is added all the same
            remarks = [f"what it displaced, if anything, is not known: {problem}"]
    if invocation.as_json or invocation.out.is_terminal:
        show_change(invocation, "added" if observation.version == 1 else "counted", observation)
    else:
        invocation.out.line(observation.id)
    for remark in remarks:
        invocation.out.remark(remark)


def _named(observation: scratchbus.Observation) -> str:
    return f"{short(observation.id)} ({observation.type}, priority {observation.priority})"


_GUARDS = {"expected_version", "fence", "event_id"}
"""Options of `update` that change nothing by themselves."""


@command(
    examples=(
        'scratchbus update 8F3K2M9Q --content "Fraud ring, three cards" --confidence 0.95',
        "scratchbus update 8F3K2M9Q --tag security --tag cards --expected-version 3",
        "scratchbus update 8F3K2M9Q --not-before 'tomorrow 9:00'",
    ),
    shared=PAGE,
)
@click.argument("id", metavar="ID")
@click.option("--content", metavar="TEXT", help="Its new content; - reads it from standard input.")
@click.option("--status", shell_complete=statuses, help="Its new status, which the lifecycle of its type must allow.")
@click.option("--reason", metavar="TEXT", help="Why its status changes.")
@click.option("--owner", metavar="TEXT", help="Its new owner; an empty text removes it.")
@click.option("--confidence", type=float, metavar="X", help="Its new confidence, from 0 to 1.")
@click.option("--tag", "tags", multiple=True, help="Its new tags; repeatable. An empty text removes all.")
@click.option("--context", **_KEY_VALUE, help="A field of its new context, as JSON or text; repeatable.")
@click.option("--metadata", **_KEY_VALUE, help="A field of its new metadata, as JSON or text; repeatable.")
@click.option("--expires-at", metavar="TIME", help=f"When it expires: {FUTURE}; or never.")
@click.option(
    "--blocked-by",
    multiple=True,
    metavar="ID",
    help="An observation that must be closed before it is active; an empty text removes all.",
)
@click.option("--not-before", metavar="TIME", help=f"When it becomes active, or recurs next: {FUTURE}; or now.")
@click.option("--every", metavar="EVERY", help="How often it recurs: an interval, or cron in UTC.")
@click.option("--remind-at", metavar="TIME", help=f"When it is due: {FUTURE}; or never.")
@click.option("--release", is_flag=True, default=None, help="End the claim on it too.")
@click.option("--expected-version", type=int, metavar="N", help="Update only this version.")
@fence_option
@event_id_option
@pass_invocation
def update(
    invocation: Invocation,
    id: str,
    content: str | None,
    owner: str | None,
    tags: tuple[str, ...],
    expires_at: str | None,
    remind_at: str | None,
    blocked_by: tuple[str, ...],
    **fields: Any,
) -> None:
    """Replace fields of an observation.

    Each option replaces a whole field; other fields stay unchanged. Either all are replaced or none.
    """
    changes = given(**fields)
    if content is not None:
        changes["content"] = content_of(content)
    if owner is not None:
        changes["owner"] = owner or None
    if tags:
        changes["tags"] = [tag for tag in tags if tag]
    for name, time in (("expires_at", expires_at), ("remind_at", remind_at)):
        if time is not None:
            changes[name] = None if time == "never" else time
    if not blocked_by and changes.keys() <= _GUARDS:
        raise click.UsageError("nothing to update; give --content, --status, --tag or another field")
    with invocation.open_fenced(id, fields["fence"]) as opened:
        if blocked_by:
            changes["blocked_by"] = opened.ids([each for each in blocked_by if each])
        observation = opened.page.update(opened.page.whole_id(id), **changes)
    show_change(invocation, "updated", observation)
