"""How an action came about, and what an observation led to: trees of observations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation


class Branch(NamedTuple):
    """One line of a tree. `observation` is None for one that is on no page, or no longer.

    What is beneath one that comes `again`, because two rest on it or because it rests on itself, is shown once.
    """

    depth: int
    id: str
    observation: Observation | None
    again: bool


class Tree(BaseModel):
    """Observations by id, and the ids that are beneath each of them."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    observations: dict[str, Observation] = Field(default_factory=dict)
    beneath: dict[str, list[str]] = Field(default_factory=dict)

    def _grow(self, roots: Iterable[str]) -> Iterator[Branch]:
        seen: set[str] = set()
        waiting = [(0, id) for id in roots][::-1]
        while waiting:
            depth, id = waiting.pop()
            again = id in seen
            yield Branch(depth, id, self.observations.get(id), again)
            if not again:
                seen.add(id)
                waiting += [(depth + 1, below) for below in reversed(self.beneath.get(id, ()))]


class Motive(BaseModel):
    """An observation that an action was linked to: by whom, and when."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    by: str
    at: datetime


class Trace(Tree):
    """How an action came about: the observations that led to it, and beneath each one the evidence it rests on."""

    action: str
    page: str
    motives: list[Motive]

    def tree(self) -> Iterator[Branch]:
        """Yield the motives, each with its evidence after it, one deeper."""
        return self._grow(motive.id for motive in self.motives)


class Consequences(Tree):
    """What an observation led to: what rests on it, the actions linked to any of these, and the events it caused."""

    id: str
    page: str
    actions: list[str]
    events: list[AnyEvent]

    def tree(self) -> Iterator[Branch]:
        """Yield the observation, and after each one what rests on it, one deeper."""
        return self._grow([self.id])
