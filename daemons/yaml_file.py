"""Reads the YAML files of the reference daemons."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from scratchbus.daemon import Spot, compose
from scratchbus.errors import RulesError


def parse(text: str, file: str) -> Spot:
    """Return the root of a YAML text; errors call it `file`. Raises RulesError."""
    return compose(text, file, RulesError)


def read(path: Path) -> str:
    """Return the text of a file. Raises RulesError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise RulesError(str(path), None, None, f"cannot be read: {problem.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise RulesError(str(path), None, None, "is not UTF-8; save it as UTF-8") from None


def keys(spot: Spot, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Spot]:
    """Return the values of a mapping by key. Raises RulesError for a missing required key and for an unknown key."""
    known = (*required, *optional)
    found = spot.fields(known)
    for name in required:
        if name not in found:
            raise spot.wrong(f"{name!r} is missing; add it", known)
    return found


def entries(spot: Spot) -> list[Spot]:
    """Return the entries of a list. Raises RulesError when it is empty."""
    found = spot.elements()
    if not found:
        raise spot.wrong("is empty; it needs at least one entry")
    return found
