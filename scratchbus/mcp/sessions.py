"""The tools for sessions and tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.errors import NotFound, shown
from scratchbus.mcp.answers import ObservationAnswer, brief
from scratchbus.mcp.parameters import EventId
from scratchbus.mcp.toolbox import ADDS, ToolGroup, tool
from scratchbus.mcp.workspace import Workspace


class NewSession(TypedDict):
    """A new session and its parent."""

    session: str
    parent: str


class Begun(TypedDict):
    """A started task."""

    task: Annotated[str, Field(description="The id of the task; pass it to `end_task`.")]


class Ended(TypedDict):
    """An ended task."""

    text: Annotated[str, Field(description="Replaces the part of the conversation in which the task was done.")]


class SessionTools(ToolGroup):
    """The tools that start sessions and tasks from one session, and end them."""

    def __init__(self, workspace: Workspace) -> None:
        self._bus = workspace.bus
        self._session = workspace.session

    @tool("Spawn a session", ADDS)
    async def spawn_session(
        self,
        copy_notepad: Annotated[
            bool, Field(description="Start with a copy of your notepad instead of an empty one.")
        ] = False,
        event_id: EventId = None,
    ) -> NewSession:
        """Start a separate session for part of the work, to keep its details out of yours."""
        new = await self._bus.spawn_session(self._session, copy_notepad=copy_notepad, event_id=event_id)
        return {"session": new, "parent": self._session}

    @tool("Fork this session", ADDS)
    async def fork_session(self, event_id: EventId = None) -> NewSession:
        """Start a session with a copy of everything this one has noted. After that the two are independent."""
        new = await self._bus.fork_session(self._session, event_id=event_id)
        return {"session": new, "parent": self._session}

    @tool("Start a task", ADDS)
    async def begin_task(
        self, title: Annotated[str, Field(description="What the task is.")], event_id: EventId = None
    ) -> Begun:
        """Start a task. When you end it, its summary replaces that part of the conversation."""
        return {"task": await self._bus.begin_task(self._session, title, event_id=event_id)}

    @tool("End a task", ADDS)
    async def end_task(
        self,
        task: Annotated[str, Field(description="The id from `begin_task`.")],
        summary: Annotated[str, Field(description="The outcome: what you did and found.")],
        event_id: EventId = None,
    ) -> Ended:
        """End a task of this session and get the summary that replaces it."""
        if not task.endswith(f"@{self._session}"):
            raise NotFound(f"task: {shown(task)} is not a task of session {self._session}; pass the id from begin_task")
        return {"text": await self._bus.end_task(task, summary, event_id=event_id)}

    @tool("Report to the parent session", ADDS)
    async def report_result(
        self,
        result: Annotated[str, Field(description="A self-contained summary for readers who did not follow the work.")],
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Report the result of this session to its parent session. No notepad is changed."""
        return brief(await self._bus.report_result(self._session, result, event_id=event_id))
