"""The tasks of a session, and its reports to its parent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, cast

from scratchbus.commands.add_many import add_many
from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory import append_new, edit
from scratchbus.commands.memory_edit import MemoryEdit
from scratchbus.commands.sessions import get_session
from scratchbus.domain.checks import check_own_event_id
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import TaskBegun, TaskEnded
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import NewObservation
from scratchbus.domain.tasks import PREFIX, TaskId, check_text, replacement, task_id
from scratchbus.domain.values import page_of_session
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, NotFound
from scratchbus.projections.tasks import Task
from scratchbus.readmodel.scope import Core

RESULT = "session_result"
"""The tag of a session's reports to its parent."""


class BeginTask(MemoryEdit):
    """Begin a task of a session; the append script gives it its id."""

    verb, subject = "begin_task", PREFIX
    title: Annotated[str, CheckedBy(partial(check_text, "title"))]

    def decide(self, occasion: Occasion, document: Task | None) -> Event:
        """See `MemoryEdit`."""
        return occasion.event(TaskBegun, PREFIX, title=self.title)


def begin(core: Core, session: str, arguments: Mapping[str, Any]) -> Step[str]:
    """Begin a task of a session, and return its id. Raises SessionOver."""
    page, command = page_of_session(session), BeginTask.parse(arguments)
    occasion = command.on(core, page)
    event = yield from append_new(core, occasion, command.decide(occasion, None), None)
    return str(TaskId(event.subject, session))


class EndTask(MemoryEdit):
    """End a task."""

    verb = "end_task"
    task: Annotated[TaskId, CheckedBy(task_id)]
    summary: Annotated[str, CheckedBy(partial(check_text, "summary"))]

    @property
    def about(self) -> str:
        """See `MemoryEdit`."""
        return self.task.subject

    def retry_arguments(self) -> list[object]:
        """See `MemoryEdit`."""
        return [self.summary]

    def decide(self, occasion: Occasion, document: Task | None) -> Event | None:
        """See `MemoryEdit`. Raises NotFound, and Conflict if it has ended with another summary."""
        if not isinstance(document, Task):
            raise NotFound(f"there is no task {str(self.task)!r}; pass the id that begin_task returned")
        if document.summary == self.summary:
            return None
        if document.summary is not None:
            raise Conflict(f"{self.task} has ended with another summary; begin a new task")
        return occasion.event(TaskEnded, self.task.subject, summary=self.summary)


def end(core: Core, arguments: Mapping[str, Any]) -> Step[str]:
    """End a task, and return its replacement in the conversation."""
    command = EndTask.parse(arguments)
    task = cast(Task, (yield from edit(core, page_of_session(command.task.session), command)))
    return replacement(task.title, task.summary or "")


def report(core: Core, session: str, result: str, event_id: str | None) -> Step[Observation]:
    """Add the result of a session to the page of its parent. Raises NotFound if it has no parent."""
    check_own_event_id(event_id)
    record = yield from get_session(core, session)
    if record is None or record.parent is None:
        raise NotFound(
            f"session {session!r} has no parent to report to; only sessions from spawn_session or fork_session have one"
        )
    message = NewObservation(type="observation", content=result, tags=[RESULT], context={"session": session})
    (observation,) = yield from add_many(core, page_of_session(record.parent), [message], event_id)
    return observation
