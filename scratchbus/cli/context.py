"""What agents are shown: `context`, `context surface` and `context exposure`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scratchbus.cli.common import BusGroup, Session, event_id_option, given, pass_session
from scratchbus.cli.output import Cell, Heading
from scratchbus.cli.text import one_line

if TYPE_CHECKING:
    from scratchbus.context import Context

_BUDGET = click.IntRange(min=1)
_SEEN = (
    Heading("session", 20),
    Heading("agent", 16),
    Heading("by", 16),
    Heading("version", 7, right=True),
    Heading("times", 5, right=True),
    Heading("first seen", 29),
)
_ACTIONS = (Heading("time", 29), Heading("by", 16), Heading("action"))

_budget_option = click.option("--budget", type=_BUDGET, metavar="N", help="At most so many tokens.  [context_budget]")
_session_option = click.option(
    "--session", "session_id", envvar="SCRATCHBUS_SESSION", metavar="ID",
    help="With the memory of this session.  [$SCRATCHBUS_SESSION]",
)  # fmt: skip
_record_option = click.option("--record", is_flag=True, help="Record which observations are in it.")


@click.group(
    cls=BusGroup,
    invoke_without_command=True,
    examples=(
        "scratchbus context --session s1 --agent analyst",
        "scratchbus context --session s1 --page user:42 --budget 2000 --json",
        "scratchbus context surface 'fraud ring' --session s1",
    ),
)
@_session_option
@click.option("--agent", metavar="NAME", help="With the scratchpad of this agent, which speaks then.")
@click.option("--query", metavar="TEXT", help="With the notes that bear on this, instead of the newest.")
@_budget_option
@_record_option
@event_id_option
@click.pass_context
def context(called: click.Context, /, session_id: str | None, agent: str | None, **how: Any) -> None:
    """Show what an agent would be shown of a session, itself and the page.

    Notepad, what is to be done, open observations by priority and notes, as many as there is room for.
    """
    if called.invoked_subcommand is not None:
        return
    session = called.ensure_object(Session)
    if agent is not None:
        session.speak_as(agent)
    with session.open() as place:
        found = place.bus.context.assemble(session=session_id, agent=agent, page=place.page.name, **given(**how))
    _show(session, found)


@context.command(examples=("scratchbus context surface 'fraud ring' --budget 500",))
@click.argument("query")
@_session_option
@_budget_option
@_record_option
@event_id_option
@pass_session
def surface(session: Session, query: str, session_id: str | None, **how: Any) -> None:
    """Show what bears on a question, the most relevant first.

    Open observations of the page, and notes of the session, if one is given.
    """
    with session.open() as place:
        found = place.bus.context.surface(query, session=session_id, page=place.page.name, **given(**how))
    _show(session, found)
    if not found.matches:
        session.out.note("Nothing bears on that")


@context.command(examples=("scratchbus context exposure 8F3K2M9Q",))
@click.argument("id", metavar="ID")
@pass_session
def exposure(session: Session, id: str) -> None:
    """Show who has had an observation in a context, and the actions they took since.

    Known is what was recorded: see --record.
    """
    with session.open() as place:
        found = place.page.exposure(place.id(id))
    if session.as_json:
        session.out.document(found.model_dump(mode="json"))
        return
    if not found.seen:
        session.out.note("Nobody was recorded to have seen it")
        return
    session.out.table(
        _SEEN,
        [
            (
                Cell(each.session or ""),
                Cell(each.agent or "", "cyan"),
                Cell(each.by, "cyan"),
                Cell(str(each.version)),
                Cell(str(each.times)),
                Cell(each.at.isoformat(timespec="milliseconds"), "dim"),
            )
            for each in found.seen
        ],
    )
    for each in found.actions:
        when = Cell(each.at.isoformat(timespec="milliseconds"), "dim")
        session.out.row(_ACTIONS, (when, Cell(each.by, "cyan"), Cell(one_line(each.action))))


def _show(session: Session, found: Context) -> None:
    if session.as_json:
        session.out.document(
            {
                "text": found.text,
                "tokens": found.tokens,
                "budget": found.budget,
                "left_out": dict(found.left_out),
                "exposed": dict(found.exposed),
                "position": found.position and str(found.position),
            }
        )
    elif found.text:
        session.out.line(found.text)
