"""Reading the relations of facts from their file."""

from __future__ import annotations

from pathlib import Path

from scratchbus.domain.relation_registry import RelationRegistry, parse_relations
from scratchbus.errors import RelationsError
from scratchbus.settings import read_text, shipped


def read_relations(file: Path | None) -> RelationRegistry:
    """Return the relations of a file, or those that come with scratchbus. Raises RelationsError."""
    path = file or shipped("relations.yaml")
    return parse_relations(read_text(path, RelationsError), str(path))
