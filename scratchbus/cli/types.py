"""The observation types: `types list`, `types check`, `types push`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scratchbus.cli.common import BusGroup, Session, event_id_option, pass_session
from scratchbus.cli.output import Cell
from scratchbus.cli.text import plural

if TYPE_CHECKING:
    from scratchbus.domain.registry import RegistryChanges

_FILE = click.Path(path_type=Path)


@click.group(cls=BusGroup)
def types() -> None:
    """See and change which types of observations there are."""


@types.command("list")
@pass_session
def list_types(session: Session) -> None:
    """Show the types of the bus, the most urgent first."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import type_document

    with session.connect() as bus:
        found = sorted(bus.types.types.values(), key=lambda each: (-each.priority, each.name))
    if session.as_json:
        for each in found:
            session.out.document(type_document(each))
    else:
        session.out.table(columns.heads(columns.TYPE), columns.rows_of(columns.TYPE, found))


@types.command(examples=("scratchbus types check config/observation_types.yaml",))
@click.argument("file", type=_FILE)
@pass_session
def check(session: Session, file: Path) -> None:
    """Say whether a file of types is right.

    If not, it says what is wrong in which line. No engine is needed.
    """
    from scratchbus.opening import as_registry

    registry = as_registry(file)
    if session.as_json:
        session.out.document({"file": str(file), "types": sorted(registry.types)})
    else:
        session.out.sentence(Cell("right", "green"), Cell(f"{file} has {plural(len(registry.types), 'type')}"))


@types.command(examples=("scratchbus types push config/observation_types.yaml",))
@click.argument("file", type=_FILE)
@event_id_option
@pass_session
def push(session: Session, file: Path, event_id: str | None) -> None:
    """Publish a file of types to the bus.

    Every daemon takes it, without a restart. A type cannot go, nor get another lifecycle, while an observation of it is
    open.
    """
    from scratchbus.opening import as_registry

    registry = as_registry(file)
    with session.connect() as bus:
        changes = registry.changes_from(bus.types)
        has_changed = bus.push_types(registry, event_id=event_id)
        version = bus.core.registry_version
    if session.as_json:
        session.out.document(
            {
                "changed": has_changed, "version": version, "types": sorted(registry.types),
                "added": changes.added, "removed": changes.removed, "modified": changes.changed,
            }
        )  # fmt: skip
    elif has_changed:
        session.out.sentence(Cell("published", "green"), Cell(f"version {version}: {_told(changes)}"))
    else:
        session.out.sentence(Cell(f"The bus has these types already, as version {version}"))


def _told(changes: RegistryChanges) -> str:
    """Return what changes, for people."""
    told = (("new", changes.added), ("changed", changes.changed), ("gone", changes.removed))
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in told if names) or "the same types"
