"""What a bus has of memories: `Bus` and `Bus` are these too."""

# Generated from memories_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Callable

from scratchbus.commands import sessions, tasks
from scratchbus.domain.memories import Session
from scratchbus.domain.observation import Observation
from scratchbus.memory.notepad import Notepad
from scratchbus.memory.notes import Notes
from scratchbus.memory.runs import Run
from scratchbus.memory.scratchpad import Scratchpad
from scratchbus.memory.todo import Todo
from scratchbus.readmodel.scope import Host


class Memories:
    """The memories of a blocking bus."""

    def notes(self: Host, session: str) -> Notes:
        """Return the notes of a session. Raises InvalidName."""
        return Notes(self, session)

    def notepad(self: Host, session: str) -> Notepad:
        """Return the notepad of a session. Raises InvalidName."""
        return Notepad(self, session)

    def session(self: Host, session: str) -> Session | None:
        """Return what is known of a session itself: its parent, its children, and whether it is over.

        None for one that has neither begun from another, nor begun one, nor ended. Raises InvalidName.
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
        """Begin a session from another one, and return its id; its notepad is empty, or as its parent's is.

        From then on both go their own ways. To call it again with the same `session` or `event_id` changes nothing
        more, and ends what was cut short. Raises SessionExists, or SessionOver for a parent that has ended.
        """
        return self.converse(sessions.begin(self.core, parent, session, False, copy_notepad, event_id))

    def fork_session(self: Host, parent: str, *, session: str | None = None, event_id: str | None = None) -> str:
        """Begin a session from another one with all that is on its notepad, and return its id; see `spawn_session`."""
        return self.converse(sessions.begin(self.core, parent, session, True, True, event_id))

    def end_session(self: Host, session: str, *, event_id: str | None = None) -> Session:
        """Archive the notes, the notepad and the todo list of a session, all at once.

        From then on they read as empty, and whoever writes gets SessionOver; `history` and `as_of` tell what they were.
        One that has ended stays as it is.
        """
        return self.converse(sessions.end(self.core, session, event_id))

    def todo(self: Host, session: str) -> Todo:
        """Return the todo list of a session. Raises InvalidName."""
        return Todo(self, session)

    def begin_task(self: Host, session: str, title: str, *, event_id: str | None = None) -> str:
        """Begin a task of a session; return its id, which is all that is needed to end it. Raises SessionOver."""
        return self.converse(tasks.begin(self.core, session, title, event_id))

    def end_task(self: Host, task: str, summary: str, *, event_id: str | None = None) -> str:
        """End a task; return the text that stands in the conversation for all that was said and done for it.

        Raises NotFound, and Conflict for one that is over.
        """
        return self.converse(tasks.end(self.core, task, summary, event_id))

    def report_result(self: Host, session: str, result: str, *, event_id: str | None = None) -> Observation:
        """Put the result of a session onto the page of its parent, as an observation; no notepad is touched.

        Raises NotFound for a session without a parent.
        """
        return self.converse(tasks.report(self.core, session, result, event_id))

    def scratchpad(self: Host, agent: str) -> Scratchpad:
        """Return the scratchpad of an agent, which only the agent itself may use. Raises InvalidName."""
        return Scratchpad(self, agent)

    def run(self: Host, agent: str, task: str, *, ask: Callable[[str], object], event_id: str | None = None) -> Run:
        """Return a run of an agent, to be used in a `with`.

        However it ends, `ask` gets a prompt for a last call of the model, whose answer becomes the scratchpad. The
        event of the run has the `event_id`, and that of the answer the same with `/scratchpad` behind it.
        """
        return Run(Scratchpad(self, agent), agent, task, ask, event_id)
