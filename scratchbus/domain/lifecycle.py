"""Lifecycles: the statuses and the allowed transitions between them, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, get_args

from scratchbus.errors import InvalidField, shown

StatusClass = Literal["open", "closed", "final"]
"""The meaning of a status: open ones count towards the page's room, closed ones are done, final ones never change."""

STATUS_CLASSES: Final[tuple[StatusClass, ...]] = get_args(StatusClass)

ARCHIVED: Final = "archived"
"""The final status of every lifecycle: expiry, displacement and refutation lead to it."""


@dataclass(frozen=True)
class Lifecycle:
    """The statuses of an observation, those it may begin with, and the allowed transitions.

    Every lifecycle has the final status `archived`. The bus archives from any open status if an observation expires,
    is displaced or is refuted; requests of callers must follow `transitions`. A status without transitions may be left
    out there. `leftover` is a closed status that only one observation has; see `of_observation`.
    """

    name: str
    statuses: Mapping[str, StatusClass] = field(hash=False)
    initial: tuple[str, ...]
    transitions: Mapping[str, frozenset[str]] = field(hash=False)
    leftover: str | None = None

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
        """Return the statuses that may follow a status. Raises InvalidField if the lifecycle has no such status."""
        if status not in self.statuses:
            raise self._unknown(status)
        return self.transitions.get(status, frozenset())

    def sources_of(self, status: str) -> frozenset[str]:
        """Return the statuses that a status may follow. Raises InvalidField if the lifecycle has no such status."""
        if status not in self.statuses:
            raise self._unknown(status)
        return frozenset(source for source, targets in self.transitions.items() if status in targets)

    def of_class(self, status_class: StatusClass) -> frozenset[str]:
        """Return the statuses of a class."""
        return frozenset(status for status, its_class in self.statuses.items() if its_class == status_class)

    def of_observation(self, status: str, status_class: str) -> Lifecycle:
        """Return the lifecycle of an observation whose stored status may be older than this lifecycle.

        A closed status that this lifecycle lacks, or has with another class, can only be followed by `archived`, and a
        final one by none.
        """
        if status_class == "open" or self.statuses.get(status) == status_class:
            return self
        is_closed = status_class == "closed"
        return replace(
            self,
            statuses={**self.statuses, status: "closed" if is_closed else "final"},
            transitions={**self.transitions, status: frozenset({ARCHIVED} if is_closed else ())},
            leftover=status if is_closed else None,
        )

    def same_table(self, other: Lifecycle) -> bool:
        """Return whether both have the same statuses and transitions, regardless of name and order of `initial`."""
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
    """Return the open statuses that cannot reach a closed or final one; a valid lifecycle has none."""
    can_close = set(lifecycle.of_class("closed") | lifecycle.of_class("final"))
    while True:
        more = {source for status in can_close for source in lifecycle.sources_of(status)} - can_close
        if not more:
            return frozenset(lifecycle.statuses) - can_close
        can_close |= more


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
