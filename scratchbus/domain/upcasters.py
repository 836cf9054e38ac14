"""Upcasters: they convert the bodies of events of older schema versions to the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scratchbus.domain.event import SCHEMA

Body = dict[str, Any]
Upcaster = Callable[[str, Body], Body]
"""Converts the body of an event of a kind to the next schema version."""


def _as_it_is(kind: str, body: Body) -> Body:
    return body


UPCASTERS: Mapping[int, Upcaster] = {
    1: _as_it_is,  # 2 adds `owner` to `claimed`: a claim without one belongs to any connection that has its fence
}
"""By the schema version of the body. When SCHEMA is raised, its previous value needs an entry here."""


def upcast(kind: str, body: Body, version: int) -> Body:
    """Return a body converted to the current schema version. Raises LookupError for a version that never existed."""
    for each in range(version, SCHEMA):
        if each not in UPCASTERS:
            raise LookupError(f"schema version {each} was never written")
        body = UPCASTERS[each](kind, body)
    return body
