"""What a bus has of memories: `Bus` and `AsyncBus` are these too."""

from __future__ import annotations

from collections.abc import Callable

from scratchbus.commands import sessions, tasks
from scratchbus.domain.memories import Session
from scratchbus.domain.observation import Observation
from scratchbus.memory.notepad_async import AsyncNotepad
from scratchbus.memory.notes_async import AsyncNotes
from scratchbus.memory.runs_async import AsyncRun
from scratchbus.memory.scratchpad_async import AsyncScratchpad
from scratchbus.memory.todo_async import AsyncTodo
from scratchbus.readmodel.scope import AsyncHost


class AsyncMemories:
    """The memories of an asyncio bus."""

    def notes(self: AsyncHost, session: str) -> AsyncNotes:
        """Return the notes of a session. Raises InvalidName."""
        return AsyncNotes(self, session)

    def notepad(self: AsyncHost, session: str) -> AsyncNotepad:
        """Return the notepad of a session. Raises InvalidName."""
        return AsyncNotepad(self, session)

    async def session(self: AsyncHost, session: str) -> Session | None:
        """Return what is known of a session itself: its parent, its children, and whether it is over.

        None for one that has neither begun from another, nor begun one, nor ended. Raises InvalidName.
        """
        return await self.converse(sessions.get_session(self.core, session))

    async def spawn_session(
        self: AsyncHost,
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
        return await self.converse(sessions.begin(self.core, parent, session, False, copy_notepad, event_id))

    async def fork_session(
        self: AsyncHost, parent: str, *, session: str | None = None, event_id: str | None = None
    ) -> str:
        """Begin a session from another one with all that is on its notepad, and return its id; see `spawn_session`."""
        return await self.converse(sessions.begin(self.core, parent, session, True, True, event_id))

    async def end_session(self: AsyncHost, session: str, *, event_id: str | None = None) -> Session:
        """Archive the notes, the notepad and the todo list of a session, all at once.

        From then on they read as empty, and whoever writes gets SessionOver; `history` and `as_of` tell what they were.
        One that has ended stays as it is.
        """
        return await self.converse(sessions.end(self.core, session, event_id))

    def todo(self: AsyncHost, session: str) -> AsyncTodo:
        """Return the todo list of a session. Raises InvalidName."""
        return AsyncTodo(self, session)

    async def begin_task(self: AsyncHost, session: str, title: str, *, event_id: str | None = None) -> str:
        """Begin a task of a session; return its id, which is all that is needed to end it. Raises SessionOver."""
        return await self.converse(tasks.begin(self.core, session, title, event_id))

    async def end_task(self: AsyncHost, task: str, summary: str, *, event_id: str | None = None) -> str:
        """End a task; return the text that stands in the conversation for all that was said and done for it.

        Raises NotFound, and Conflict for one that is over.
        """
        return await self.converse(tasks.end(self.core, task, summary, event_id))

    async def report_result(self: AsyncHost, session: str, result: str, *, event_id: str | None = None) -> Observation:
        """Put the result of a session onto the page of its parent, as an observation; no notepad is touched.

        Raises NotFound for a session without a parent.
        """
        return await self.converse(tasks.report(self.core, session, result, event_id))

    def scratchpad(self: AsyncHost, agent: str) -> AsyncScratchpad:
        """Return the scratchpad of an agent, which only the agent itself may use. Raises InvalidName."""
        return AsyncScratchpad(self, agent)

    def run(
        self: AsyncHost, agent: str, task: str, *, ask: Callable[[str], object], event_id: str | None = None
    ) -> AsyncRun:
        """Return a run of an agent, to be used in a `with`.

        However it ends, `ask` gets a prompt for a last call of the model, whose answer becomes the scratchpad. The
        event of the run has the `event_id`, and that of the answer the same with `/scratchpad` behind it.
        """
        return AsyncRun(AsyncScratchpad(self, agent), agent, task, ask, event_id)
