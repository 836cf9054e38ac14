"""The tools for the past: the history of an observation, the trace of an action, the page at a given time."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.mcp.answers import Happened, Moment, ObservationList, brief, happened, text_of
from scratchbus.mcp.paging import after_rank, cursor_of, first, position_in
from scratchbus.mcp.tool_parameters import Cursor, Limit
from scratchbus.mcp.toolbox import READS, ToolGroup, tool


class HistoryAnswer(TypedDict):
    """The events of an observation, oldest first."""

    events: list[Happened]
    more: NotRequired[Annotated[int, Field(description="How many follow; `next_cursor` leads to them.")]]
    next_cursor: NotRequired[str]


class TracedBranch(TypedDict):
    """An observation in a trace; the evidence for an observation is one level deeper."""

    depth: int
    id: str
    type: NotRequired[str]
    content: NotRequired[str]
    source: NotRequired[str]


class MotiveAnswer(TypedDict):
    """An observation that the action was linked to: by whom, and when."""

    id: str
    by: str
    at: Moment


class TraceAnswer(TypedDict):
    """What led to an action: the observations linked to it, each followed by its evidence."""

    action: str
    motives: list[MotiveAnswer]
    tree: list[TracedBranch]


class HistoryTools(ToolGroup):
    """The tools for the history of one page."""

    @tool("See the history of an observation", READS)
    async def history(
        self,
        id: Annotated[str, Field(description="Id of an observation.")],
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> HistoryAnswer:
        """See everything that happened to an observation, oldest first, also after it has left the page."""
        start = None if cursor is None else position_in(cursor)
        events = [x for x in await self._page.history(id) if start is None or x.position > start]
        answer: HistoryAnswer = {"events": [happened(event, None) for event in events[:limit]]}
        if len(events) > limit:
            answer["more"], answer["next_cursor"] = len(events) - limit, answer["events"][-1]["position"]
        return answer

    @tool("Trace an action", READS)
    async def trace(
        self, action: Annotated[str, Field(description="The linked action, such as a ticket or commit.")]
    ) -> TraceAnswer:
        """See what led to an action: the observations linked to it, and their evidence."""
        found = await self._page.trace(action)
        motives: list[MotiveAnswer] = [{"id": x.id, "by": x.by, "at": text_of(x.at)} for x in found.motives]
        return {"action": action, "motives": motives, "tree": [_branch(each) for each in found.tree()]}

    @tool("See the page at a past time", READS)
    async def as_of(
        self,
        when: Annotated[str, Field(description="A time, such as 2026-01-31T09:00:00Z, or a position.")],
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> ObservationList:
        """See which observations were active at a time, highest priority first."""
        found = await (await self._page.as_of(when)).active()
        return first(after_rank(cursor, found), limit, cursor_of)


def _branch(branch: scratchbus.Branch) -> TracedBranch:
    line: TracedBranch = {"depth": branch.depth, "id": branch.id}
    if branch.observation is not None:
        shown = brief(branch.observation)
        line["type"], line["content"], line["source"] = shown["type"], shown["content"], shown["source"]
    return line
