"""Saying something: `add` and `update`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.common import Session, command, event_id_option, fence_option, given, pass_session
from scratchbus.cli.complete import statuses, type_names
from scratchbus.cli.render import show_change
from scratchbus.cli.values import content_of, moment, pairs, trigger

_KEY_VALUE: dict[str, Any] = {"multiple": True, "callback": pairs, "metavar": "KEY=VALUE"}


@command(
    examples=(
        'scratchbus add risk_alert "Fraud ring on card 4711" --source fraud_detector --tag security --ttl 2h',
        "dmesg | tail -1 | scratchbus add observation - --source kernel --dedupe-key dmesg",
        'scratchbus add reminder "Call the bank" --source me --remind-at 10m',
    )
)
@click.argument("type", shell_complete=type_names)
@click.argument("content")
@click.option("--tag", "tags", multiple=True, help="A tag; may be given several times.")
@click.option("--ttl", metavar="DURATION", help="How long it lives: 90s, 2h, 1h30m, 7d, never.")
@click.option("--context", **_KEY_VALUE, help="What it is about; the value may be JSON. May be given several times.")
@click.option("--metadata", **_KEY_VALUE, help="What else there is to know, in the same way.")
@click.option("--confidence", type=float, metavar="X", help="How sure the source is, from 0 to 1.  [default: 1]")
@click.option("--owner", help="Who should deal with it.")
@click.option("--dedupe-key", metavar="KEY", help="While one with this key is open, this is counted as its repeat.")
@click.option("--times", type=int, metavar="N", help="How many sightings this stands for.  [default: 1]")
@click.option("--evidence", multiple=True, metavar="ID", help="What it rests on; may be given several times.")
@click.option("--status", shell_complete=statuses, help="What it begins as, if not as its type says.")
@click.option("--expires-at", metavar="TIME", help="When it ends, instead of --ttl: ISO 8601.")
@click.option("--remind-at", metavar="TIME", help="When it falls due: ISO 8601, or 10m, 2h … from now.")
@click.option(
    "--remind-on", multiple=True, callback=trigger, metavar="KEY=VALUE",
    help="What makes it fall due: an event with this type=, status=, tags=A,B.",
)  # fmt: skip
@event_id_option
@pass_session
def add(
    session: Session,
    type: str,
    content: str,
    evidence: tuple[str, ...],
    expires_at: str | None,
    remind_at: str | None,
    **fields: Any,
) -> None:
    """Put an observation onto the page.

    CONTENT says what was observed; - reads it from standard input. It prints the id of the observation; if one with
    the same dedupe key is open, that one is counted again instead.
    """
    with session.open() as place:
        if place.bus.settings.source is None:
            raise click.UsageError("who observed it? Give --source NAME, or set SCRATCHBUS_SOURCE")
        observation = place.page.add(
            type,
            content_of(content),
            evidence=place.ids(evidence),
            expires_at=None if expires_at is None else moment("expires_at", expires_at),
            remind_at=None if remind_at is None else moment("remind_at", remind_at),
            **given(**fields),
        )
    if session.as_json or session.out.is_terminal:
        show_change(session, "added" if observation.version == 1 else "counted", observation)
    else:
        session.out.line(observation.id)


@command(
    examples=(
        'scratchbus update 8F3K2M9Q --content "Fraud ring, three cards" --confidence 0.95',
        "scratchbus update 8F3K2M9Q --tag security --tag cards --expected-version 3",
    )
)
@click.argument("id", metavar="ID")
@click.option("--content", metavar="TEXT", help="- reads it from standard input.")
@click.option("--status", shell_complete=statuses, help="Where the type's lifecycle leads from here.")
@click.option("--owner", metavar="TEXT", help="An empty text takes the owner away.")
@click.option("--confidence", type=float, metavar="X", help="From 0 to 1.")
@click.option("--tag", "tags", multiple=True, help="All its tags, once for each; an empty text takes them away.")
@click.option("--context", **_KEY_VALUE, help="The whole context anew; may be given several times.")
@click.option("--metadata", **_KEY_VALUE, help="The whole metadata anew, in the same way.")
@click.option("--expires-at", metavar="TIME", help="ISO 8601; 10m, 2h … from now; or never.")
@click.option("--expected-version", type=int, metavar="N", help="Only if it is at this version.")
@fence_option
@event_id_option
@pass_session
def update(
    session: Session,
    id: str,
    content: str | None,
    owner: str | None,
    tags: tuple[str, ...],
    expires_at: str | None,
    **fields: Any,
) -> None:
    """Replace fields of an observation.

    What is given replaces what was there, as a whole; the rest stays. All of it happens, or nothing.
    """
    changes = given(**fields)
    if content is not None:
        changes["content"] = content_of(content)
    if owner is not None:
        changes["owner"] = owner or None
    if tags:
        changes["tags"] = [tag for tag in tags if tag]
    if expires_at is not None:
        changes["expires_at"] = None if expires_at == "never" else moment("expires_at", expires_at)
    with session.open_fenced(id, fields["fence"]) as place:
        observation = place.page.update(place.id(id), **changes)
    show_change(session, "updated", observation)
