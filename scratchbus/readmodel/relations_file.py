"""Read the relations of facts from their file."""

from __future__ import annotations

from pathlib import Path

from scratchbus.domain.relation_registry import RelationRegistry, parse_relations
from scratchbus.errors import RelationsError, shown
from scratchbus.settings import read_text, shipped


def read_relations(file: Path | None) -> RelationRegistry:
    """Return the relations in a file, by default those of scratchbus. Raises RelationsError."""
    path = file or shipped("relations.yaml")
    return parse_relations(read_text(path, RelationsError), str(path))


def as_relations(source: object) -> RelationRegistry:
    """Return relations, or read them from a file. Raises RelationsError."""
    if isinstance(source, RelationRegistry):
        return source
    if not isinstance(source, Path | str) or "\0" in str(source):
        raise RelationsError(shown(source), None, None, "is neither relations nor the path of a file")
    return read_relations(Path(source))
