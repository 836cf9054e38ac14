"""The tools for the scratchpad of an agent."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.mcp.notepad import Done, done
from scratchbus.mcp.tool_parameters import Based, EventId, Overwrite, replacing
from scratchbus.mcp.toolbox import READS, REPLACES, ToolGroup, tool


class Self(TypedDict):
    """Your identity here, and your scratchpad."""

    agent: str
    kind: str
    page: str
    session: NotRequired[str]
    text: Annotated[str, Field(description="Your identity and the text of your scratchpad.")]
    revision: Annotated[int, Field(description="The revision of your scratchpad; pass it to `update_scratchpad`.")]


class ScratchpadTools(ToolGroup):
    """The tools for the scratchpad of the agent itself."""

    @property
    def _scratchpad(self) -> scratchbus.AsyncScratchpad:
        return self._workspace.bus.scratchpad(self._workspace.identity.agent)

    def has(self, name: str) -> bool:
        """See `ToolGroup`. Without a scratchpad, an identity has only the tool that shows who it is."""
        return self._workspace.identity.has_scratchpad or name == "whoami"

    @tool("Who am I?", READS)
    async def whoami(self) -> Self:
        """See who you are, where you work, and your scratchpad if you have one."""
        identity = self._workspace.identity
        _, revision = await self._scratchpad.read_with_revision()  # first, so that a write with an outdated one fails
        text = await self._scratchpad.whoami()
        answer: Self = {
            "agent": identity.agent,
            "kind": identity.kind,
            "page": identity.page,
            "text": text,
            "revision": revision,
        }
        if (session := self._workspace.known_session) is not None:
            answer["session"] = session
        return answer

    @tool("Rewrite the scratchpad", REPLACES)
    async def update_scratchpad(
        self,
        content: Annotated[str, Field(description="Up to 10,000 characters.")],
        revision: Based = None,
        overwrite: Overwrite = False,
        event_id: EventId = None,
    ) -> Done:
        """Replace your scratchpad, which outlives the session."""
        reader = "whoami" if "scratchpad" in self._workspace.identity.tools else "get_context"
        with replacing("scratchpad", reader, revision, overwrite=overwrite) as base:
            return done(await self._scratchpad.write(content, revision=base, event_id=event_id))
