"""Who has seen an observation, and what they did since."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class Seen(BaseModel):
    """That a session or an agent had an observation, in this version, in a context: first when, and how often.

    `by` is who put the context together.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    session: str | None
    agent: str | None
    by: str
    version: int
    at: datetime
    times: int


class ActionTaken(BaseModel):
    """That an action was linked to an observation: by whom, and when."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    action: str
    id: str
    page: str
    by: str
    at: datetime


class Exposure(BaseModel):
    """Who has seen an observation in a context, and the actions that they linked to anything since; in time's order."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    page: str
    seen: list[Seen]
    actions: list[ActionTaken]

    def viewers(self) -> list[str]:
        """Return the sessions and agents that saw it, each once, as `session:<id>` and `agent:<name>`."""
        found: dict[str, None] = {}
        for each in self.seen:
            found |= {f"session:{each.session}": None} if each.session else {}
            found |= {f"agent:{each.agent}": None} if each.agent else {}
        return list(found)
