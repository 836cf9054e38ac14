"""The tasks of a session, and what it reports to its parent."""

from __future__ import annotations

from typing import cast

from scratchbus.commands.add import add_many
from scratchbus.commands.memory import Edit, edit
from scratchbus.domain.agent_events import TaskBegun, TaskEnded
from scratchbus.domain.checks import check_guards
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Remembered, Session
from scratchbus.domain.observation import NewObservation, Observation
from scratchbus.domain.tasks import PREFIX, TaskId, check_text, replacement, task_id
from scratchbus.domain.values import page_of_session
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, NotFound
from scratchbus.eventlog.append import append
from scratchbus.eventlog.because import reasons
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.tasks import Task
from scratchbus.readmodel.history import known_events
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.scope import Core

RESULT = "session_result"
"""The tag of what a session reports to its parent."""


def begin(core: Core, session: str, title: str, event_id: str | None) -> Step[str]:
    """Begin a task of a session, and return its id. Raises SessionOver."""
    page, title = page_of_session(session), check_text("title", title)
    event = TaskBegun(by=core.acting(), **reasons(), title=title)
    asked = Edit.of(page, PREFIX, event_id, "begin_task", title)
    done = yield from append(core.log, page, [asked.write(event, None)])
    if done.recalled is None:
        return str(TaskId(done.written[0].subject, session))
    (known,) = yield from known_events(core.log, done.recalled)
    return str(TaskId(known.subject, session))


def end(core: Core, task: str, summary: str, event_id: str | None) -> Step[str]:
    """End a task, and return what stands for it in the conversation. Raises NotFound, Conflict when it is over."""
    subject, session = task_id(task)
    page, summary = page_of_session(session), check_text("summary", summary)

    def make(document: Remembered | None) -> Event | None:
        if not isinstance(document, Task):
            raise NotFound(f"there is no task {task!r}; pass the id that begin_task returned")
        if document.summary == summary:
            return None
        if document.summary is not None:
            raise Conflict(f"{task} has ended with another summary; begin a new task")
        return TaskEnded(by=core.acting(), **reasons(), summary=summary)

    ended = cast(Task, (yield from edit(core, Edit.of(page, subject, event_id, "end_task", summary), make)))
    return replacement(ended.title, ended.summary or "")


def report(core: Core, session: str, result: str, event_id: str | None) -> Step[Observation]:
    """Put the result of a session onto the page of its parent. Raises NotFound when it has none."""
    page = page_of_session(session)
    check_guards(event_id)
    found = yield from recollect(core.log, page, [SESSION], core.fresh)
    known = found.get(SESSION)
    if not isinstance(known, Session) or known.parent is None:
        raise NotFound(
            f"session {session!r} has no parent to report to; only sessions from spawn_session or fork_session have one"
        )
    new = NewObservation(type="observation", content=result, tags=[RESULT], context={"session": session})
    (observation,) = yield from add_many(core, page_of_session(known.parent), [new], event_id)
    return observation
