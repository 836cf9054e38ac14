"""The tool that assembles a context."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.daemon import counts
from scratchbus.mcp.parameters import EventId
from scratchbus.mcp.toolbox import SETS, ToolGroup, tool
from scratchbus.mcp.workspace import Workspace

LARGEST: Final = 200_000


class Assembled(TypedDict):
    """Everything you need to know, as one text."""

    text: str
    tokens: int
    left_out: Annotated[dict[str, int], Field(description="Number of items per section that did not fit the budget.")]


class ContextTools(ToolGroup):
    """The tool that shows an agent its own memory, its session and its page."""

    def __init__(self, workspace: Workspace) -> None:
        self._context = workspace.bus.context
        self._identity = workspace.identity

    @tool("Get your context", SETS)
    async def get_context(
        self,
        budget: Annotated[
            int | None, Field(ge=1, le=LARGEST, description="Maximum number of tokens in the text.")
        ] = None,
        query: Annotated[
            str | None, Field(description="What you are about to do; selects the notes that match.")
        ] = None,
        event_id: EventId = None,
    ) -> Assembled:
        """Get your scratchpad, notepad, todo list, the open observations and your notes in one text.

        Call it when you start or resume work. The observations you were shown are recorded, so that everyone who relied
        on one can be found if it turns out to be wrong.
        """
        who = self._identity
        made = await self._context.assemble(
            session=who.session, agent=who.agent, page=who.page, budget=budget, query=query, record=True,
            event_id=event_id,
        )  # fmt: skip
        counts.contexts += 1
        counts.context_tokens += made.tokens
        return {"text": made.text, "tokens": made.tokens, "left_out": dict(made.left_out)}
