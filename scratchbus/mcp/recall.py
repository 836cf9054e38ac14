"""The tool that searches everything the agent may read."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.mcp.answers import answer_of
from scratchbus.mcp.tool_parameters import Limit
from scratchbus.mcp.toolbox import READS, ToolGroup, tool


class Found(TypedDict):
    """A match for the question, where it is, and why it was found."""

    kind: str
    id: str
    text: str
    why: str
    page: NotRequired[str]


class Recollection(TypedDict):
    """The matches for the question, best first."""

    found: list[Found]


class RecallTools(ToolGroup):
    """The tool for recall."""

    @tool("Recall", READS)
    async def recall(
        self,
        query: str,
        at: Annotated[str | None, Field(description="Search what was known then (ISO 8601).")] = None,
        limit: Limit = 10,
    ) -> Recollection:
        """Search notes, notepad, observations, facts and preferences at once, best match first."""
        identity, session = self._workspace.identity, self._workspace.known_session
        sessions = () if session is None else (session,)
        found = await self._workspace.bus.recall(
            query, scopes=identity.knowledge, sessions=sessions, page=identity.page, at=at, limit=limit
        )
        return {"found": [answer_of(Found, each, why="; ".join(map(str, each.reasons))) for each in found]}
