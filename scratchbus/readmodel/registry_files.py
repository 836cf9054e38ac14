"""Reading the registry of types, and the relations of facts, from their files."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from scratchbus.domain import lifecycle, shipped_types
from scratchbus.domain.registry import Registry
from scratchbus.errors import RegistryError, RelationsError, shown
from scratchbus.settings import read_text
from scratchbus.telemetry.lazy import imported_on_first_use

if TYPE_CHECKING:
    from scratchbus.domain.relation_registry import RelationRegistry

with imported_on_first_use(__name__):
    from scratchbus.domain import registry_yaml, relation_registry


def as_registry(source: object) -> Registry:
    """Return a registry, or read it from a file. Raises RegistryError."""
    if isinstance(source, Registry):
        return source
    path = _path_of(source, "a registry", RegistryError)
    text = read_text(path, RegistryError)
    if sha256(text.encode()).hexdigest() == shipped_types.DIGEST:  # as for most buses
        return Registry(shipped_types.TYPES, {lifecycle.DEFAULT.name: lifecycle.DEFAULT}, text)
    return registry_yaml.parse_registry(text, str(source))


def as_relations(source: object) -> RelationRegistry:
    """Return relations, or read them from a file. Raises RelationsError."""
    if isinstance(source, relation_registry.RelationRegistry):
        return source
    path = _path_of(source, "relations", RelationsError)
    return relation_registry.parse_relations(read_text(path, RelationsError), str(path))


def _path_of(source: object, what: str, error: type[RegistryError | RelationsError]) -> Path:
    if isinstance(source, Path | str) and "\0" not in str(source):
        return Path(source)
    raise error(shown(source), None, None, f"is neither {what} nor the path of a file")
