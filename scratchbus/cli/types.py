"""The observation types: `types list`, `types show`, `types check`, `types push`."""

from __future__ import annotations

import click

import scratchbus
from scratchbus.cli.commands import OUTPUT, BusGroup, event_id_option
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import one_line, plural, type_style

_FILE = click.Path()


_TYPE: Columns[scratchbus.ObservationType] = (
    Column("type", lambda each: Cell(each.name, type_style(each.priority)), 20),
    Column("pri", lambda each: Cell(str(each.priority)), 3, right=True),
    Column("ttl", lambda each: Cell(scratchbus.document_of(each)["default_ttl"] or "", "dim"), 5, right=True),
    Column("owner", lambda each: Cell(each.default_owner or "", "cyan"), 8),
    Column(
        "lifecycle",
        lambda each: Cell(each.lifecycle.name, "dim", "" if each.lifecycle.name == "default" else None),
        10,
    ),
    Column("description", lambda each: Cell(one_line(each.description))),
)


@click.group(cls=BusGroup)
def types() -> None:
    """Show, check and publish the observation types."""


@types.command("list")
@pass_invocation
def list_types(invocation: Invocation) -> None:
    """Show the types of the bus, the highest priority first."""
    with invocation.connect() as bus:
        found = sorted(bus.types.types.values(), key=lambda each: (-each.priority, each.name))
    invocation.out.listing(_TYPE, found)


@types.command(examples=("scratchbus types show > types.yaml",))
@pass_invocation
def show(invocation: Invocation) -> None:
    """Print the types of the bus as YAML, to edit and push."""
    with invocation.connect() as bus:
        text, version = bus.types.text, bus.types_version
    if invocation.as_json:
        invocation.out.document({"version": version, "text": text})
    else:
        invocation.out.line(text.removesuffix("\n"))


@types.command(examples=("scratchbus types check types.yaml",), shared=OUTPUT)
@click.argument("file", type=_FILE)
@pass_invocation
def check(invocation: Invocation, file: str) -> None:
    """Check a file of types.

    Prints the first error with its line. This needs no engine.
    """
    registry = scratchbus.load_registry(file)
    document = {"file": file, "types": sorted(registry.types)}
    cells = Cell("valid", "green"), Cell(f"{file} has {plural(len(registry.types), 'type')}")
    invocation.out.result(document, *cells, is_whole=True)


@types.command(examples=("scratchbus types push types.yaml",))
@click.argument("file", type=_FILE)
@event_id_option
@pass_invocation
def push(invocation: Invocation, file: str, event_id: str | None) -> None:
    """Publish a file of types to the bus, which replaces all its types.

    Running daemons use it without a restart. `scratchbus types show` prints the types that it replaces. A type cannot
    be removed, or get another lifecycle, while an observation of it is open.
    """
    registry = scratchbus.load_registry(file)
    with invocation.connect() as bus:
        changes = registry.changes_from(bus.types)
        has_changed = bus.push_types(registry, event_id=event_id)
        version = bus.types_version
    document = {
        "changed": has_changed, "version": version, "types": sorted(registry.types),
        "added": changes.added, "removed": changes.removed, "modified": changes.changed,
    }  # fmt: skip
    published = (Cell("published", "green"), Cell(f"version {version}: {_summary(changes)}"))
    cells = published if has_changed else (Cell(f"The bus already has these types, as version {version}"),)
    invocation.out.result(document, *cells, is_whole=True)


def _summary(changes: scratchbus.RegistryChanges) -> str:
    """Return a sentence about the changed types."""
    parts = (("new", changes.added), ("changed", changes.changed), ("removed", changes.removed))
    return "; ".join(f"{label}: {', '.join(names)}" for label, names in parts if names) or "the same types"
