"""The contexts of agents: `context`, `context surface` and `context exposure`."""

from __future__ import annotations

from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import PAGE, BusGroup, event_id_option, given, scope_option, session_option
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import one_line

_BUDGET = click.IntRange(min=1)
_SEEN: Columns[scratchbus.Seen] = (
    Column("session", lambda each: Cell(each.session or ""), 20),
    Column("agent", lambda each: Cell(each.agent or "", "cyan"), 16),
    Column("by", lambda each: Cell(each.by, "cyan"), 16),
    Column("version", lambda each: Cell(str(each.version)), 7, right=True),
    Column("times", lambda each: Cell(str(each.times)), 5, right=True),
    Column("first seen", lambda each: Cell(each.at.isoformat(timespec="milliseconds"), "dim"), 29),
)
_ACTIONS: Columns[scratchbus.ActionTaken] = (
    Column("time", lambda each: Cell(each.at.isoformat(timespec="milliseconds"), "dim"), 29),
    Column("by", lambda each: Cell(each.by, "cyan"), 16),
    Column("action", lambda each: Cell(one_line(each.action))),
)

_budget_option = click.option("--budget", type=_BUDGET, metavar="N", help="The most tokens to use.  [context_budget]")
_session_option = session_option("Include the memory of this session.  [$SCRATCHBUS_SESSION]")
rules_option = click.option(
    "--rules", metavar="DIR", type=click.Path(file_okay=False, exists=True),
    help="Include CLAUDE.md, AGENTS.md and .claude/rules/*.md of this directory.",
)  # fmt: skip
_record_option = click.option("--record", is_flag=True, help="Record which observations the context contains.")


@click.group(
    cls=BusGroup,
    invoke_without_command=True,
    examples=(
        "scratchbus context --session s1 --agent analyst",
        "scratchbus context --session s1 --page user:42 --budget 2000 --json",
        "scratchbus context surface 'fraud ring' --session s1",
    ),
    shared=PAGE,
)
@_session_option
@scope_option(
    "Include the preferences and facts of this user or project; repeatable.  [$SCRATCHBUS_SCOPE]", multiple=True
)
@click.option("--agent", metavar="NAME", help="Include the scratchpad of this agent, and use it as the source.")
@click.option("--query", metavar="TEXT", help="Include the notes that match this, instead of the newest.")
@_budget_option
@rules_option
@click.option("--strict", is_flag=True, help="Fail if the notepad exceeds the budget, instead of cutting it.")
@_record_option
@event_id_option
@click.pass_context
def context(
    click_context: click.Context, /, session_id: str | None, agent: str | None, rules: str | None, **options: Any
) -> None:
    """Print the context of an agent: its session and the page.

    It contains the notepad, the open todo items, open observations by priority, and notes, within the budget.
    """
    if click_context.invoked_subcommand is not None:
        return
    invocation = click_context.ensure_object(Invocation)
    if agent is not None:
        invocation.act_for(agent)
    with invocation.open() as opened:
        found = opened.bus.context.assemble(
            session=session_id, agent=agent, page=opened.page.name, **given(**options), **with_rules(rules)
        )
    _show(invocation, found)
    if not found.text:
        invocation.out.note("The context is empty; name a --session, --scope or --agent, or another --page")


def with_rules(directory: str | None) -> dict[str, Any]:
    """Return the rules of a directory as arguments of `assemble`; none without a directory."""
    if directory is None:
        return {}
    rules = scratchbus.read_rules(directory)
    return {
        "sections": [rule.section for rule in rules],
        "files": {rule.path: rule.sha256 for rule in rules if rule.text},
    }


@context.command(examples=("scratchbus context surface 'fraud ring' --budget 500",), shared=PAGE)
@click.argument("query")
@_session_option
@_budget_option
@_record_option
@event_id_option
@pass_invocation
def surface(invocation: Invocation, query: str, session_id: str | None, **options: Any) -> None:
    """Print what matches a question, the most relevant first.

    Searches the open observations of the page, and the notes of the session if one is given.
    """
    with invocation.open() as opened:
        found = opened.bus.context.surface(query, session=session_id, page=opened.page.name, **given(**options))
    _show(invocation, found)
    if not found.matches:
        invocation.out.note("Nothing matches")


@context.command(examples=("scratchbus context exposure 8F3K2M9Q",), shared=PAGE)
@click.argument("id", metavar="ID")
@pass_invocation
def exposure(invocation: Invocation, id: str) -> None:
    """Show whose contexts included an observation, and the actions they took since.

    Only contexts that were recorded count: see --record.
    """
    with invocation.open() as opened:
        found = opened.page.exposure(opened.page.whole_id(id))
    if invocation.as_json:
        invocation.out.document(found.model_dump(mode="json"))
        return
    invocation.out.table(_SEEN, found.seen, empty="No one was recorded to have seen it")
    for each in found.actions if found.seen else ():
        invocation.out.row(_ACTIONS, each)


def _show(invocation: Invocation, found: scratchbus.Context) -> None:
    if invocation.as_json:
        invocation.out.document(scratchbus.document_of(found))
    elif found.text:
        invocation.out.line(found.text)
