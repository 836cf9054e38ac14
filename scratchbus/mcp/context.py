"""The tool for contexts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.mcp.desk import Desk
from scratchbus.mcp.toolbox import SETS, Row
from scratchbus.telemetry.counters import counts

LARGEST: Final = 200_000

EventId = Annotated[str | None, Field(description="An id of your own: a retry with it records nothing more.")]


class Assembled(TypedDict):
    """What you have to know now, as one text."""

    text: str
    tokens: int
    left_out: Annotated[dict[str, int], Field(description="How many items of each section had no room.")]


class Contexts:
    """The tool for what an agent has to know of itself, its session and its page."""

    TOOLS: ClassVar[tuple[Row, ...]] = (Row("get_context", "What do I have to know?", SETS),)

    def __init__(self, desk: Desk) -> None:
        self._context = desk.bus.context
        self._identity = desk.identity

    async def get_context(
        self,
        budget: Annotated[int | None, Field(ge=1, le=LARGEST, description="How many tokens it may have.")] = None,
        query: Annotated[str | None, Field(description="What you are about to do: notes are chosen by it.")] = None,
        event_id: Annotated[
            str | None, Field(description="An id of your own: a retry with it records nothing more.")
        ] = None,
    ) -> Assembled:
        """Get in one text your scratchpad, notepad, todo list, the open observations and your notes.

        Which observations were in it is recorded: should one turn out to be wrong, you are found.
        """
        who = self._identity
        made = await self._context.assemble(
            session=who.session, agent=who.agent, page=who.page, budget=budget, query=query, record=True,
            event_id=event_id,
        )  # fmt: skip
        counts.contexts += 1
        counts.context_tokens += made.tokens
        return {"text": made.text, "tokens": made.tokens, "left_out": dict(made.left_out)}
