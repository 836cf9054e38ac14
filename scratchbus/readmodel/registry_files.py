"""Reading a registry from a file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from scratchbus.domain import lifecycle, shipped_types
from scratchbus.domain.registry import Registry
from scratchbus.errors import RegistryError, shown
from scratchbus.settings import read_text
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from scratchbus.domain import registry_yaml


def as_registry(source: object) -> Registry:
    """Return a registry, or read it from a file. Raises RegistryError."""
    if isinstance(source, Registry):
        return source
    if not isinstance(source, Path | str) or "\0" in str(source):
        raise RegistryError(shown(source), None, None, "is neither a registry nor the path of a file")
    try:
        text = read_text(Path(source), RegistryError)
        digest = sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise RegistryError(shown(source), None, None, "is not the path of a file") from None
    if digest == shipped_types.DIGEST:  # as for most buses
        return Registry(shipped_types.TYPES, {lifecycle.DEFAULT.name: lifecycle.DEFAULT}, text)
    return registry_yaml.parse_registry(text, str(source))
