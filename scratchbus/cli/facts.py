"""Facts: `facts assert`, `retract`, `query`, `neighbours`, `path`, `timeline`, `why`, `ingest` and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

import click

import scratchbus
from scratchbus.cli.arguments import TIME
from scratchbus.cli.commands import BusGroup, content_argument, given, memory, scope_option
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.relations import push_relations, relations
from scratchbus.cli.text import one_line

_STYLES = {"valid": "", "contested": "yellow", "superseded": "dim", "retracted": "red"}


_scope_help = "What the facts are about, such as a user or a project.  [$SCRATCHBUS_SCOPE]"
_scope_option = scope_option(_scope_help, default="main", show_default=True)
_at_option = click.option("--at", metavar="TIME", help=f"Facts true at this time: {TIME}.  [default: now]")
_known_option = click.option("--known-at", metavar="WHEN", help=f"Facts known at this time: a position, or {TIME}.")


def _limit(usual: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", help=f"The most to show.  [default: {usual:,}]"
    )


_valid_option = click.option("--valid-at", metavar="TIME", help=f"Since when: {TIME}.  [default: now]")
_confidence_option = click.option("--confidence", type=float, metavar="X", help="How certain it is, from 0 to 1.")
_evidence_option = click.option(
    "--evidence", multiple=True, metavar="ID", help="An observation that supports it; repeatable."
)


def _on_facts(*, writes: bool = False) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Return a decorator that makes a function a command on the facts of a scope."""

    def decorate(function: Callable[..., None]) -> Callable[..., Any]:
        @wraps(function)
        def command(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
            function(invocation, facts, **given(**options))

        return memory("facts", _scope_option, "scope", writes)(command)

    return decorate


@click.group(cls=BusGroup)
def facts() -> None:
    """Assert and query facts.

    A fact says how people or things are related, and during which time.
    """


@facts.command(
    "assert",
    examples=(
        'scratchbus facts assert App runs_on "Node 24" --text "we upgraded to Node 24" --source me',
        "scratchbus facts assert User lives_in London --valid-at 2026-03-01 --scope user:42",
    ),
)
@click.argument("subject")
@click.argument("relation")
@click.argument("object")
@_valid_option
@click.option("--invalid-at", metavar="TIME", help=f"Until when: {TIME}.")
@_confidence_option
@_evidence_option
@click.option("--text", "source_text", metavar="TEXT", help="The text it is based on.")
@_on_facts(writes=True)
def assert_fact(invocation: Invocation, facts: scratchbus.Facts, **fact: Any) -> None:
    """Assert that a relation holds between SUBJECT and OBJECT.

    `scratchbus facts relations` shows which relations there are.
    """
    _show_one(invocation, "asserted", facts.assert_fact(**fact))


@facts.command(examples=('scratchbus facts retract fact_1795256156929 --reason "it was misread"',))
@click.argument("id")
@click.option("--reason", required=True, metavar="TEXT", help="Why it is wrong.")
@_on_facts(writes=True)
def retract(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Retract a fact; its history stays."""
    _show_one(invocation, "retracted", facts.retract(**options))


@facts.command(
    examples=(
        "scratchbus facts query --subject App",
        "scratchbus facts query --relation depends_on --object postgres --at 2026-01-31",
    )
)
@click.option("--subject", metavar="NAME", help="Only facts about this.")
@click.option("--relation", metavar="NAME", help="Only facts of this relation; an inverse swaps subject and object.")
@click.option("--object", "object", metavar="NAME", help="Only facts with this object.")
@_at_option
@_known_option
@click.option("--distinct", is_flag=True, help="Show a fact that was asserted several times once, as last asserted.")
@_limit(100)
@_on_facts()
def query(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Show the facts that are true, last asserted first."""
    found, empty = facts.query(**options), "No such fact is true"
    asked = {name: value for name, value in options.items() if name not in ("limit", "distinct")}
    if not (found or invocation.as_json) and "subject" in asked and facts.contested(**asked):
        empty += "; sources disagree, as `scratchbus facts contested` shows"
    _show(invocation, found, empty)


@facts.command(examples=("scratchbus facts neighbours App --depth 2",))
@click.argument("entity")
@click.option("--depth", type=int, metavar="N", help="The greatest distance in facts.  [default: 1]")
@_at_option
@_known_option
@_limit(100)
@_on_facts()
def neighbours(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Show the entities that facts connect with ENTITY, nearest first."""
    columns: Columns[scratchbus.Neighbour] = (
        Column("facts away", lambda each: Cell(str(each.distance)), 2, right=True),
        Column("entity", lambda each: Cell(one_line(each.entity), "bold"), 16),
        Column("by", lambda each: Cell(one_line(each.fact.triplet))),
    )
    invocation.out.listing(columns, facts.neighbours(**options), empty="Nothing is connected with it")


@facts.command(examples=('scratchbus facts path "the user" docker',))
@click.argument("a")
@click.argument("b")
@_at_option
@_known_option
@_on_facts()
def path(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Show the facts that connect A with B in the fewest steps."""
    _show(invocation, facts.path(**options), "Nothing connects the two")


@facts.command(examples=("scratchbus facts timeline App runs_on",))
@click.argument("subject")
@click.argument("relation")
@_known_option
@_limit(1_000)
@_on_facts()
def timeline(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Show all facts about SUBJECT and RELATION.

    Each has its times; ended and retracted ones are among them.
    """
    columns: Columns[scratchbus.Span] = (
        Column("from", lambda each: Cell(_time(each.begins), "dim"), 20),
        Column("until", lambda each: Cell(_time(each.ends), "dim"), 20),
        Column("state", lambda each: Cell(each.state, _STYLES[each.state]), 10),
        Column("id", lambda each: Cell(each.fact.id, "bold"), 18),
        Column("fact", lambda each: Cell(one_line(each.fact.triplet))),
    )
    invocation.out.listing(columns, facts.timeline(**options), empty="There is no such fact")


@facts.command(examples=("scratchbus facts why fact_1795256156929",))
@click.argument("id")
@_on_facts()
def why(invocation: Invocation, facts: scratchbus.Facts, id: str) -> None:
    """Show why a fact is known.

    That is its source text, who asserted it and when, its evidence, and what ended it.
    """
    found = facts.why(id)
    invocation.out.text(scratchbus.document_of(found), found.text())


@facts.command(
    examples=(
        "scratchbus facts ingest - --subject build < summary.txt",
        "scratchbus facts ingest 'Agent -> fixed -> resize handles'",
    )
)
@content_argument("text")
@click.option("--subject", metavar="NAME", help="The subject of lines `key: value`.")
@_valid_option
@_confidence_option
@_evidence_option
@_on_facts(writes=True)
def ingest(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Assert the facts in a text, all or none.

    A fact is a line `A -> relation -> B`. With --subject, a line `key: value` whose key is a relation is one too. -
    reads TEXT from standard input.
    """
    _show(invocation, facts.ingest(**options), "The text has no such lines")


@facts.command("same", examples=('scratchbus facts same NYC "New York"',))
@click.argument("a")
@click.argument("b")
@click.option("--undo", is_flag=True, help="Undo it: they are not the same.")
@_on_facts(writes=True)
def same(invocation: Invocation, facts: scratchbus.Facts, a: str, b: str, undo: bool, **options: Any) -> None:
    """Declare that two names mean one entity."""
    if undo:
        for fact in facts.not_same_as(a, b, **options):
            _show_one(invocation, "retracted", fact)
    else:
        _show_one(invocation, "asserted", facts.same_as(a, b, **options))


@facts.command(examples=("scratchbus facts contested App", "scratchbus facts contested App --relation runs_on"))
@click.argument("subject")
@click.option("--relation", metavar="NAME", help="Only facts of this relation.")
@click.option("--object", "object", metavar="NAME", help="Only contests in which a fact names this.")
@_at_option
@_known_option
@_on_facts()
def contested(invocation: Invocation, facts: scratchbus.Facts, **options: Any) -> None:
    """Show the facts about SUBJECT that contest each other.

    Facts with the same number are of one contest; none of them is true until all but one are retracted.
    """
    contests = enumerate(facts.contested(**options), start=1)
    rows = [(number, fact) for number, contest in contests for fact in contest]
    columns: Columns[tuple[int, scratchbus.Fact]] = (
        Column("contest", lambda row: Cell(str(row[0])), 1, right=True),
        Column("id", lambda row: Cell(row[1].id, "bold"), 18),
        Column("by", lambda row: Cell(one_line(row[1].source), "cyan"), 12),
        Column("fact", lambda row: Cell(one_line(row[1].triplet))),
    )
    invocation.out.listing(columns, rows, empty="No facts about it contest each other", document=_in_contest)


def _in_contest(row: tuple[int, scratchbus.Fact]) -> dict[str, Any]:
    return {"contest": row[0], **scratchbus.document_of(row[1])}


@facts.command("review", examples=("scratchbus facts review --scope user:42",))
@_on_facts()
def review(invocation: Invocation, facts: scratchbus.Facts) -> None:
    """Show contested facts.

    They wait for someone to retract the wrong ones.
    """
    columns: Columns[scratchbus.Observation] = (
        Column("id", lambda each: Cell(each.id, "bold"), 26),
        Column("content", lambda each: Cell(one_line(each.content))),
    )
    invocation.out.listing(columns, facts.pending_review(), empty="No facts contest each other")


def _show(invocation: Invocation, found: Sequence[scratchbus.Fact], empty: str) -> None:
    columns: Columns[scratchbus.Fact] = (
        Column("id", lambda each: Cell(each.id, "bold"), 18),
        Column("by", lambda each: Cell(one_line(each.source), "cyan"), 12),
        Column("fact", lambda each: Cell(one_line(each.triplet))),
    )
    invocation.out.listing(columns, found, empty=empty)


def _show_one(invocation: Invocation, verb: str, fact: scratchbus.Fact) -> None:
    cells = Cell(verb, "green"), Cell(fact.id, "bold"), Cell(one_line(fact.triplet))
    invocation.out.result(scratchbus.document_of(fact), *cells)


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at is not None else ""


for each in (relations, push_relations):
    facts.add_command(each)
