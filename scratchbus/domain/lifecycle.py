"""Lifecycles: which status may follow which, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, get_args

from scratchbus.errors import InvalidField, shown

StatusClass = Literal["open", "closed", "final"]
"""What a status means to the bus: open ones fill the page, closed ones are done, final ones never change again."""

STATUS_CLASSES: Final[tuple[StatusClass, ...]] = get_args(StatusClass)

ARCHIVED: Final = "archived"
"""The final status of every lifecycle: where expiry, displacement and refutation lead."""


@dataclass(frozen=True)
class Lifecycle:
    """The statuses an observation can have, those it may begin with, and where each may go next.

    Every lifecycle has the final status `archived`. The bus archives from any open status when an observation
    expires, is displaced or is refuted; what a caller asks for follows `transitions`, where a status that leads
    nowhere may be left out.
    """

    name: str
    statuses: Mapping[str, StatusClass] = field(hash=False)
    initial: tuple[str, ...]
    transitions: Mapping[str, frozenset[str]] = field(hash=False)

    def __post_init__(self) -> None:
        """Make the tables read-only; `initial` keeps its order."""
        object.__setattr__(self, "statuses", MappingProxyType(dict(self.statuses)))
        object.__setattr__(self, "transitions", MappingProxyType(dict(self.transitions)))

    def class_of(self, status: str) -> StatusClass:
        """Return whether a status is open, closed or final. Raises InvalidField if the lifecycle has no such status."""
        try:
            return self.statuses[status]
        except KeyError:
            raise self._unknown(status) from None

    def allowed_from(self, status: str) -> frozenset[str]:
        """Return where a status may go. Raises InvalidField if the lifecycle has no such status."""
        if status not in self.statuses:
            raise self._unknown(status)
        return self.transitions.get(status, frozenset())

    def sources_of(self, status: str) -> frozenset[str]:
        """Return the statuses that may go to this one. Raises InvalidField if the lifecycle has no such status."""
        if status not in self.statuses:
            raise self._unknown(status)
        return frozenset(source for source, targets in self.transitions.items() if status in targets)

    def of_class(self, status_class: StatusClass) -> frozenset[str]:
        """Return the statuses that are open, closed or final."""
        return frozenset(status for status, its_class in self.statuses.items() if its_class == status_class)

    def same_table(self, other: Lifecycle) -> bool:
        """Return whether both allow exactly the same; the name does not count, nor the order of `initial`."""
        return (
            self.statuses == other.statuses
            and set(self.initial) == set(other.initial)
            and _edges(self) == _edges(other)
        )

    def _unknown(self, status: str) -> InvalidField:
        known = ", ".join(sorted(self.statuses))
        return InvalidField(
            "status", f"{shown(status)} is not a status of lifecycle {self.name!r}; use one of: {known}"
        )


def never_closing(lifecycle: Lifecycle) -> frozenset[str]:
    """Return the open statuses from which no way leads to a closed or final one; a sound lifecycle has none."""
    closing = set(lifecycle.of_class("closed") | lifecycle.of_class("final"))
    while True:
        more = {source for status in closing for source in lifecycle.sources_of(status)} - closing
        if not more:
            return frozenset(lifecycle.statuses) - closing
        closing |= more


def _edges(lifecycle: Lifecycle) -> set[tuple[str, str]]:
    return {(source, target) for source, targets in lifecycle.transitions.items() for target in targets}


DEFAULT: Final = Lifecycle(
    name="default",
    statuses={"active": "open", "pending_review": "open", "resolved": "closed", ARCHIVED: "final"},
    initial=("active", "pending_review"),
    transitions={
        "active": frozenset({"pending_review", "resolved", ARCHIVED}),
        "pending_review": frozenset({"active", "resolved", ARCHIVED}),
        "resolved": frozenset({"active", "pending_review", ARCHIVED}),
    },
)
"""The lifecycle of a type that names none."""
