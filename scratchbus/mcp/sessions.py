"""The tools for sessions and tasks."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.errors import NotFound, shown
from scratchbus.mcp.answers import ObservationAnswer, brief
from scratchbus.mcp.tool_parameters import EventId
from scratchbus.mcp.toolbox import ADDS, EDITS, SETS, ToolGroup, tool

RESULT: Final = "session_result"
"""The tag of a result that a session reports to its parent."""


class NewSession(TypedDict):
    """A new session and its parent."""

    session: str
    parent: str


class EnteredSession(TypedDict):
    """The session whose notes, notepad and todo list your tools use now."""

    session: str | None


class EndedSession(TypedDict):
    """The session that ended, and the one your tools use now."""

    ended: str
    session: str | None


class Begun(TypedDict):
    """A started task."""

    task: Annotated[str, Field(description="The id of the task; pass it to `end_task`.")]


class Ended(TypedDict):
    """An ended task."""

    text: Annotated[str, Field(description="Replaces the part of the conversation in which the task was done.")]


class SessionTools(ToolGroup):
    """The tools that start sessions and tasks from one session, and end them."""

    def has(self, name: str) -> bool:
        """See `ToolGroup`. Clients that share a token cannot change the session, since that would affect the others."""
        return not self._workspace.is_shared or name not in (
            "spawn_session",
            "fork_session",
            "enter_session",
            "end_session",
        )

    @tool("Spawn a session", ADDS)
    async def spawn_session(
        self,
        copy_notepad: Annotated[bool, Field(description="Start with a copy of your notepad.")] = False,
        event_id: EventId = None,
    ) -> NewSession:
        """Start a separate session for part of the work, with an empty notepad. Then call enter_session."""
        parent = self._workspace.session
        child = await self._workspace.bus.spawn_session(parent, copy_notepad=copy_notepad, event_id=event_id)
        return {"session": child, "parent": parent}

    @tool("Fork this session", ADDS)
    async def fork_session(self, event_id: EventId = None) -> NewSession:
        """Start a session with a copy of your notepad; notes and todo list start empty. Then call enter_session."""
        parent = self._workspace.session
        return {"session": await self._workspace.bus.fork_session(parent, event_id=event_id), "parent": parent}

    @tool("Enter a session", SETS)
    async def enter_session(
        self, session: Annotated[str, Field(description="From spawn_session or fork_session.")]
    ) -> EnteredSession:
        """Use the notes, notepad and todo list of a session you started, until you end it."""
        await self._workspace.enter(session)
        return {"session": self._workspace.session}

    @tool("End the session", EDITS)
    async def end_session(self, event_id: EventId = None) -> EndedSession:
        """Archive the notes, notepad and todo list of the session you entered, and return to its parent.

        Call report_result first.
        """
        ended, session = await self._workspace.leave(event_id)
        return {"ended": ended, "session": session}

    @tool("Start a task", ADDS)
    async def begin_task(
        self, title: Annotated[str, Field(description="What the task is.")], event_id: EventId = None
    ) -> Begun:
        """Start a task. When you end it, its summary replaces that part of the conversation."""
        return {"task": await self._workspace.bus.begin_task(self._workspace.session, title, event_id=event_id)}

    @tool("End a task", ADDS)
    async def end_task(
        self,
        task: Annotated[str, Field(description="The id from `begin_task`.")],
        summary: Annotated[str, Field(description="The outcome: what you did and found.")],
        event_id: EventId = None,
    ) -> Ended:
        """End a task of this session and get the summary that replaces it."""
        session = self._workspace.session
        if task.partition("@")[2] != session:  # the name of a session may have an @ too
            raise NotFound(f"task: {shown(task)} is not a task of session {session}; pass the id from begin_task")
        return {"text": await self._workspace.bus.end_task(task, summary, event_id=event_id)}

    @tool("Report to the parent session", ADDS)
    async def report_result(
        self,
        result: Annotated[str, Field(description="A summary for readers who did not follow the work.")],
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Report the result of this session to its parent, as an observation on the page. No notepad is changed."""
        session = self._workspace.session
        record = await self._workspace.bus.session(session)
        if record is None or record.parent is None:
            raise NotFound(f"session {session} has no parent; only one from spawn_session or fork_session has one")
        context = {"session": session, "parent": record.parent}
        added = await self._workspace.page.add("observation", result, tags=[RESULT], context=context, event_id=event_id)
        return brief(added)
