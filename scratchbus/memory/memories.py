"""The memories of a bus, as methods of `Bus`."""

# Generated from memories_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scratchbus.domain.memories import Session
from scratchbus.domain.observation import Observation
from scratchbus.readmodel.scope import Host
from scratchbus.telemetry.late import late

if TYPE_CHECKING:
    from scratchbus.commands import sessions, tasks
    from scratchbus.memory import notepad as notepads
    from scratchbus.memory import notes as notebooks
    from scratchbus.memory import runs as runs
    from scratchbus.memory import scratchpad as scratchpads
    from scratchbus.memory import todo as todos
else:
    notebooks = late("scratchbus.memory.notes")
    notepads = late("scratchbus.memory.notepad")
    runs = late("scratchbus.memory.runs")
    scratchpads = late("scratchbus.memory.scratchpad")
    sessions = late("scratchbus.commands.sessions")
    tasks = late("scratchbus.commands.tasks")
    todos = late("scratchbus.memory.todo")


class Memories:
    """The memories of a bus: notes, notepads, todo lists, scratchpads, sessions, tasks and runs."""

    def notes(self: Host, session: str) -> notebooks.Notes:
        """Return the notes of a session. Raises InvalidName."""
        return notebooks.Notes(self, session)

    def notepad(self: Host, session: str) -> notepads.Notepad:
        """Return the notepad of a session. Raises InvalidName."""
        return notepads.Notepad(self, session)

    def session(self: Host, session: str) -> Session | None:
        """Return the record of a session: its parent, its children, and whether it has ended.

        None for a session that has no parent and no children and has not ended. Raises InvalidName.
        """
        return self.converse(sessions.get_session(self.core, session))

    def spawn_session(
        self: Host,
        parent: str,
        *,
        session: str | None = None,
        copy_notepad: bool = False,
        event_id: str | None = None,
    ) -> str:
        """Start a session from a parent, and return its id; its notepad is empty, or a copy of its parent's.

        The two are independent from then on. Calling it again with the same `session` or `event_id` completes a call
        that was interrupted, and otherwise changes nothing. Raises SessionExists, or SessionOver when the parent has
        ended.
        """
        return self.converse(sessions.begin(self.core, parent, session, False, copy_notepad, event_id))

    def fork_session(self: Host, parent: str, *, session: str | None = None, event_id: str | None = None) -> str:
        """Start a session from a parent with a copy of its notepad, and return its id; see `spawn_session`."""
        return self.converse(sessions.begin(self.core, parent, session, True, True, event_id))

    def end_session(self: Host, session: str, *, event_id: str | None = None) -> Session:
        """End a session: archive its notes, notepad and todo list in one step.

        They read as empty from then on, and writes raise SessionOver; `history` and `as_of` still return what they
        were. Ending a session again changes nothing.
        """
        return self.converse(sessions.end(self.core, session, event_id))

    def todo(self: Host, session: str) -> todos.Todo:
        """Return the todo list of a session. Raises InvalidName."""
        return todos.Todo(self, session)

    def begin_task(self: Host, session: str, title: str, *, event_id: str | None = None) -> str:
        """Begin a task of a session; return its id, which `end_task` takes. Raises SessionOver."""
        return self.converse(tasks.begin(self.core, session, locals()))

    def end_task(self: Host, task: str, summary: str, *, event_id: str | None = None) -> str:
        """End a task; return the text that replaces everything said and done for it in the conversation.

        Raises NotFound, and Conflict when it has ended.
        """
        return self.converse(tasks.end(self.core, locals()))

    def report_result(self: Host, session: str, result: str, *, event_id: str | None = None) -> Observation:
        """Add the result of a session to the page of its parent, as an observation; no notepad is changed.

        Raises NotFound for a session without a parent.
        """
        return self.converse(tasks.report(self.core, session, result, event_id))

    def scratchpad(self: Host, agent: str) -> scratchpads.Scratchpad:
        """Return the scratchpad of an agent, which only that agent may use. Raises InvalidName."""
        return scratchpads.Scratchpad(self, agent)

    def run(
        self: Host, agent: str, task: str, *, ask: Callable[[str], object], event_id: str | None = None
    ) -> runs.Run:
        """Return a run of an agent, to use in a `with`.

        When it ends, in whatever way, `ask` is called with a prompt for one last call of the model, and the answer
        becomes the scratchpad. `event_id` becomes the id of the event of the run; the event of the answer gets the
        same with `/scratchpad` appended.
        """
        return runs.Run(scratchpads.Scratchpad(self, agent), agent, task, ask, event_id)
