"""The exposure of an observation: who has seen it, and what they did since."""

from __future__ import annotations

from datetime import datetime

from scratchbus.domain.models import Immutable


class Seen(Immutable):
    """A version of an observation that a session or an agent had in its context: when first, and how often.

    `by` is who rendered the context.
    """

    session: str | None
    agent: str | None
    by: str
    version: int
    at: datetime
    times: int


class ActionTaken(Immutable):
    """An action that was linked to an observation: by whom, and when."""

    action: str
    id: str
    page: str
    by: str
    at: datetime


class Exposure(Immutable):
    """Who has seen an observation in a context, and the actions that they have linked since, both in order of time."""

    id: str
    page: str
    seen: list[Seen]
    actions: list[ActionTaken]

    def viewers(self) -> list[str]:
        """Return the sessions and agents that saw it, without duplicates, as `session:<id>` and `agent:<name>`."""
        found: dict[str, None] = {}
        for each in self.seen:
            found |= {f"session:{each.session}": None} if each.session else {}
            found |= {f"agent:{each.agent}": None} if each.agent else {}
        return list(found)
