"""The bodies of events that older versions of scratchbus wrote, as they would be written today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scratchbus.domain.events import SCHEMA

Body = dict[str, Any]
Upcaster = Callable[[str, Body], Body]
"""Makes of the body of an event of some kind the one that the next schema version has for it."""


def _as_it_is(kind: str, body: Body) -> Body:
    return body


UPCASTERS: Mapping[int, Upcaster] = {
    1: _as_it_is,  # 2 adds `owner` to `claimed`: a claim without one belongs to any connection that has its fence
}
"""By the schema version that a body has. When SCHEMA is raised, the version before it needs an entry here."""


def upcast(kind: str, body: Body, version: int, upcasters: Mapping[int, Upcaster] = UPCASTERS) -> Body:
    """Return a body of an older schema version as one of today. Raises LookupError for a version that never was."""
    for each in range(version, SCHEMA):
        if each not in upcasters:
            raise LookupError(f"schema version {each} was never written")
        body = upcasters[each](kind, body)
    return body
