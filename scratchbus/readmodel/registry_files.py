"""Reading a registry from a file."""

from __future__ import annotations

from pathlib import Path

from scratchbus.domain.registry import Registry
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import RegistryError, shown
from scratchbus.settings import read_text


def as_registry(given: object) -> Registry:
    """Return a registry, or read it from a file. Raises RegistryError."""
    if isinstance(given, Registry):
        return given
    if not isinstance(given, Path | str) or "\0" in str(given):
        raise RegistryError(shown(given), None, None, "is neither a registry nor the path of a file")
    try:
        return parse_registry(read_text(Path(given), RegistryError), str(given))
    except UnicodeEncodeError:
        raise RegistryError(shown(given), None, None, "is not the path of a file") from None
