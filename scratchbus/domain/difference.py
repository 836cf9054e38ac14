"""Differences between two states of a page: at two times, or actual and hypothetical."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from scratchbus.domain.document import POSITION_FIELDS
from scratchbus.domain.models import Immutable
from scratchbus.domain.observation import Observation

_COMPARED = tuple(name for name in Observation.model_fields if name not in POSITION_FIELDS)


class Difference(Immutable):
    """One observation that differs: `added` if it is only in `after`, `gone` if only in `before`, else `changed`.

    `fields` are the names of the changed fields; empty for one that was added or is gone.
    """

    kind: Literal["added", "changed", "gone"]
    id: str
    before: Observation | None = None
    after: Observation | None = None
    fields: tuple[str, ...] = ()

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Return the changed fields, each with its value before and after."""
        return {name: (getattr(self.before, name), getattr(self.after, name)) for name in self.fields}


def differences(before: Iterable[Observation], after: Iterable[Observation]) -> list[Difference]:
    """Return the observations that differ, in the order of their addition; positions in the log are not compared."""
    earlier = {each.id: each for each in before}
    current = {each.id: each for each in after}
    found = [Difference(kind="gone", id=id, before=each) for id, each in earlier.items() if id not in current]
    for id, each in current.items():
        old = earlier.get(id)
        if old is None:
            found.append(Difference(kind="added", id=id, after=each))
        elif fields := tuple(name for name in _COMPARED if getattr(old, name) != getattr(each, name)):
            found.append(Difference(kind="changed", id=id, before=old, after=each, fields=fields))
    return sorted(found, key=_added_at)


def _added_at(difference: Difference) -> int:
    each = difference.after or difference.before
    return each.added_seq if each else 0
