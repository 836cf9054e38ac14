"""The tool that assembles a context."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.daemon import counts
from scratchbus.mcp.tool_parameters import EventId
from scratchbus.mcp.toolbox import SETS, ToolGroup, tool
from scratchbus.settings import MAX_BUDGET


class Revisions(TypedDict):
    """The `revision` to pass when replacing a memory."""

    notepad: NotRequired[int]
    todo: NotRequired[int]
    scratchpad: NotRequired[int]


class Assembled(TypedDict):
    """Everything you need to know, as one text."""

    text: str
    tokens: int
    left_out: Annotated[dict[str, int], Field(description="Number of items per section that did not fit the budget.")]
    revisions: Revisions


class ContextTools(ToolGroup):
    """The tool that shows an agent its own memory, its session and its page."""

    @tool("Get your context", SETS)
    async def get_context(
        self,
        budget: Annotated[int | None, WithJsonSchema({"type": "integer"}), Field(ge=1, le=MAX_BUDGET)] = None,
        query: Annotated[str | None, Field(description="What you will do: selects notes.")] = None,
        event_id: EventId = None,
    ) -> Assembled:
        """Get all you need to know in one text; call it first, and when you resume."""
        arguments = self._workspace.context_arguments
        revisions = await self._revisions(arguments["session"])  # first, so that a write with an outdated one fails
        assembled = await self._workspace.bus.context.assemble(
            **arguments, budget=budget, query=query, record=True, event_id=event_id
        )
        counts.contexts += 1
        counts.context_tokens += assembled.tokens
        left_out = dict(assembled.left_out)
        return {"text": assembled.text, "tokens": assembled.tokens, "left_out": left_out, "revisions": revisions}

    async def _revisions(self, session: str | None) -> Revisions:
        bus, found = self._workspace.bus, Revisions()
        if session is not None:
            found["notepad"] = (await bus.notepad(session).read_with_revision()).revision
            found["todo"] = (await bus.todo(session).read()).revision
        if self._workspace.identity.has_scratchpad:
            found["scratchpad"] = (await bus.scratchpad(self._workspace.identity.agent).read_with_revision()).revision
        return found
