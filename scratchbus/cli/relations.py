"""The relations that facts may use: `facts relations` and `facts push-relations`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

import scratchbus
from scratchbus.cli.commands import command, event_id_option
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import one_line
from scratchbus.errors import RelationsError

_RELATIONS: Columns[scratchbus.Relation] = (
    Column("relation", lambda each: Cell(each.name, "bold"), 16),
    Column("values", lambda each: Cell(each.values), 6),
    Column("inverse", lambda each: Cell(each.inverse or ("itself" if each.symmetric else "")), 12),
    Column("aliases", lambda each: Cell(", ".join(each.aliases), "dim"), 40),
    Column("description", lambda each: Cell(one_line(each.description))),
)


@command(examples=("scratchbus facts relations",))
@pass_invocation
def relations(invocation: Invocation) -> None:
    """Show the relations that facts may use."""
    with invocation.connect() as bus:
        found = bus.relations().relations.values()
    invocation.out.listing(_RELATIONS, list(found), document=asdict)


@command("push-relations", examples=("scratchbus facts push-relations relations.yaml",))
@click.argument("file", type=click.Path())
@event_id_option
@pass_invocation
def push_relations(invocation: Invocation, file: str, event_id: str | None) -> None:
    """Publish a file of relations to the bus.

    All processes read facts by it within seconds, and no longer by a file of their own.
    """
    from scratchbus.settings import read_text  # late: it imports pydantic, which `--help` does not need

    found = scratchbus.parse_relations(read_text(Path(file), RelationsError), file)
    with invocation.connect() as bus:
        has_changed = bus.push_relations(found, event_id=event_id)
    names = sorted(found.relations)
    published = (Cell("published", "green"), Cell(f"the relations {', '.join(names)}"))
    cells = published if has_changed else (Cell("The bus already has these relations"),)
    invocation.out.result({"changed": has_changed, "relations": names}, *cells)
