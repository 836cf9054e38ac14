"""The tools for sessions and tasks."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.errors import NotFound, shown
from scratchbus.mcp.answers import Seen, brief
from scratchbus.mcp.desk import Desk
from scratchbus.mcp.toolbox import ADDS, Row


class NewSession(TypedDict):
    """A session that was begun, and the one that it was begun from."""

    session: str
    parent: str


class Begun(TypedDict):
    """A task that was begun."""

    task: Annotated[str, Field(description="Its id: end it with this.")]


class Ended(TypedDict):
    """A task that is over."""

    text: Annotated[str, Field(description="Stands in the conversation for all that was said and done for the task.")]


EventId = Annotated[str | None, Field(description="An id of your own: a retry with it changes nothing more.")]


class Sessions:
    """The tools that begin sessions and tasks from one session, and end them."""

    TOOLS: ClassVar[tuple[Row, ...]] = (
        Row("spawn_session", "Spawn a session", ADDS),
        Row("fork_session", "Fork this session", ADDS),
        Row("begin_task", "Begin a task", ADDS),
        Row("end_task", "End a task", ADDS),
        Row("report_result", "Report to the parent session", ADDS),
    )

    def __init__(self, desk: Desk) -> None:
        self._bus = desk.bus
        self._session = desk.session

    async def spawn_session(
        self,
        copy_notepad: Annotated[
            bool, Field(description="Begin with a copy of your notepad, not an empty one.")
        ] = False,
        event_id: EventId = None,
    ) -> NewSession:
        """Begin a session for a part of the work, to be done on its own."""
        new = await self._bus.spawn_session(self._session, copy_notepad=copy_notepad, event_id=event_id)
        return {"session": new, "parent": self._session}

    async def fork_session(self, event_id: EventId = None) -> NewSession:
        """Begin a session that knows all that this one has noted by now; from then on they are independent."""
        new = await self._bus.fork_session(self._session, event_id=event_id)
        return {"session": new, "parent": self._session}

    async def begin_task(
        self, title: Annotated[str, Field(description="What is to be done.")], event_id: EventId = None
    ) -> Begun:
        """Begin a task: a stretch of the conversation that gives way to its summary once it is over."""
        return {"task": await self._bus.begin_task(self._session, title, event_id=event_id)}

    async def end_task(
        self,
        task: Annotated[str, Field(description="The id of the task.")],
        summary: Annotated[str, Field(description="What came of it.")],
        event_id: EventId = None,
    ) -> Ended:
        """End a task of this session."""
        if not task.endswith(f"@{self._session}"):
            raise NotFound(f"task: {shown(task)} is none of session {self._session}; give the id from begin_task")
        return {"text": await self._bus.end_task(task, summary, event_id=event_id)}

    async def report_result(
        self,
        result: Annotated[str, Field(description="A clean summary, for those who did not follow the work.")],
        event_id: EventId = None,
    ) -> Seen:
        """Put the result of this session onto the page of the session it was begun from. No notepad is touched."""
        return brief(await self._bus.report_result(self._session, result, event_id=event_id))
