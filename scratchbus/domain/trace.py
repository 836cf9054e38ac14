"""The reasons for an action and the consequences of an observation, as trees of observations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from pydantic import Field

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.models import Immutable
from scratchbus.domain.observation import Observation


class Branch(NamedTuple):
    """One line of a tree. `observation` is None if it is not on the page, or no longer.

    It is marked `again` if it was shown before, because two rest on it or it rests on itself; its subtree is not
    repeated.
    """

    depth: int
    id: str
    observation: Observation | None
    again: bool


class Tree(Immutable):
    """Observations by id, and the ids below each of them."""

    observations: dict[str, Observation] = Field(default_factory=dict)
    beneath: dict[str, list[str]] = Field(default_factory=dict)

    def _grow(self, roots: Iterable[str]) -> Iterator[Branch]:
        seen: set[str] = set()
        stack = [(0, id) for id in roots][::-1]
        while stack:
            depth, id = stack.pop()
            is_repeated = id in seen
            yield Branch(depth, id, self.observations.get(id), is_repeated)
            if not is_repeated:
                seen.add(id)
                stack += [(depth + 1, child) for child in reversed(self.beneath.get(id, ()))]


class Motive(Immutable):
    """An observation that an action was linked to: by whom, and when."""

    id: str
    by: str
    at: datetime


class Trace(Tree):
    """The reasons for an action: the observations that led to it, and below each one the evidence it rests on."""

    action: str
    page: str
    motives: list[Motive]

    def tree(self) -> Iterator[Branch]:
        """Yield the motives, each followed by its evidence one level deeper."""
        return self._grow(motive.id for motive in self.motives)


class Consequences(Tree):
    """The consequences of an observation: those that rest on it, the actions linked to any of these, and its events.

    `events` are the events that it caused.
    """

    id: str
    page: str
    actions: list[str]
    events: list[AnyEvent]

    def tree(self) -> Iterator[Branch]:
        """Yield the observation, each followed by those that rest on it one level deeper."""
        return self._grow([self.id])
