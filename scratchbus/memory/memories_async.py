"""The memories of a bus, as methods of `AsyncBus`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from scratchbus import timetravel
    from scratchbus.commands import files as file_commands
    from scratchbus.commands import sessions, tasks
    from scratchbus.domain import memories as remembered
    from scratchbus.domain import observation as observations
    from scratchbus.domain import relation_registry
    from scratchbus.memory import facts_async as knowledge
    from scratchbus.memory import files_async as scratch_files
    from scratchbus.memory import items_async as stores
    from scratchbus.memory import notepad_async as notepads
    from scratchbus.memory import notes_async as notebooks
    from scratchbus.memory import overview
    from scratchbus.memory import preferences_async as preferred
    from scratchbus.memory import runs_async as runs
    from scratchbus.memory import scratchpad_async as scratchpads
    from scratchbus.memory import texts_async as paths
    from scratchbus.memory import todo_async as todos
    from scratchbus.memory import turns_async as conversations
    from scratchbus.readmodel import relations_in_force as in_force
    from scratchbus.readmodel import scope


class AsyncMemories:
    """The memories of sessions, agents and scopes on a bus, with sessions, tasks and runs."""

    def notes(self: scope.AsyncHost, session: str) -> notebooks.AsyncNotes:
        """Return the notes of a session. Raises InvalidName."""
        return notebooks.AsyncNotes(self, session)

    def items(self: scope.AsyncHost, store: str = "default") -> stores.AsyncItems:
        """Return the items of a store: values by namespace and key. Raises InvalidName."""
        return stores.AsyncItems(self, store)

    def notepad(self: scope.AsyncHost, session: str) -> notepads.AsyncNotepad:
        """Return the notepad of a session. Raises InvalidName."""
        return notepads.AsyncNotepad(self, session)

    def preferences(self: scope.AsyncHost, of: str) -> preferred.AsyncPreferences:
        """Return the preferences of a scope: of a user such as `ada`, or a project such as `ada/shop`.

        Raises InvalidName.
        """
        return preferred.AsyncPreferences(self, of)

    def facts(self: scope.AsyncHost, scope: str) -> knowledge.AsyncFacts:
        """Return the facts of a scope, such as a user or a project, which outlive sessions. Raises InvalidName."""
        return knowledge.AsyncFacts(self, scope)

    async def session(self: scope.AsyncHost, session: str) -> remembered.Session | None:
        """Return the record of a session: its parent, its children, and whether it has ended.

        Returns None for a session without parent and children that has not ended. Raises InvalidName.
        """
        return await self.converse(sessions.get_session(self.core, session))

    async def sessions(
        self: scope.AsyncHost, names: Collection[str] | None = None, *, as_of: timetravel.When | None = None
    ) -> list[remembered.SessionInfo]:
        """Return all sessions of the bus, or those with these names, sorted by name.

        With `as_of`, a position or a time, return their past state. Raises InvalidName, InvalidPosition.
        """
        return await self.converse(overview.list_sessions(self.core, names, as_of))

    async def agents(self: scope.AsyncHost) -> list[str]:
        """Return the names of the agents that have a scratchpad."""
        return await self.converse(overview.list_agents(self.core))

    async def spawn_session(
        self: scope.AsyncHost,
        parent: str,
        *,
        session: str | None = None,
        copy_notepad: bool = False,
        event_id: str | None = None,
    ) -> str:
        """Start a session from a parent, and return its id; its notepad is empty, or a copy of its parent's.

        The two are independent from then on. Calling it again with the same `session` or `event_id` completes an
        interrupted call, and otherwise changes nothing. Any valid name can be a parent. Raises SessionExists, or
        SessionOver if the parent has ended, or the child of this name and no `event_id` marks a retry.
        """
        return await self.converse(sessions.begin(self.core, parent, session, False, copy_notepad, event_id))

    async def fork_session(
        self: scope.AsyncHost, parent: str, *, session: str | None = None, event_id: str | None = None
    ) -> str:
        """Start a session from a parent with a copy of its notepad and its conversation, and return its id.

        See `spawn_session`.
        """
        return await self.converse(sessions.begin(self.core, parent, session, True, True, event_id))

    async def end_session(self: scope.AsyncHost, session: str, *, event_id: str | None = None) -> remembered.Session:
        """End a session: archive its notes, notepad and todo list in one step.

        They read as empty from then on, and writes raise SessionOver; `history` and `as_of` still return their past.
        Ending a session again changes nothing. Any valid name can be ended, even one to which nothing was written.
        """
        return await self.converse(sessions.end(self.core, session, event_id))

    def todo(self: scope.AsyncHost, session: str) -> todos.AsyncTodo:
        """Return the todo list of a session. Raises InvalidName."""
        return todos.AsyncTodo(self, session)

    def turns(self: scope.AsyncHost, session: str) -> conversations.AsyncTurns:
        """Return the conversation of a session, to which the host appends turns. Raises InvalidName."""
        return conversations.AsyncTurns(self, session)

    def files(self: scope.AsyncHost, session: str) -> scratch_files.AsyncFiles:
        """Return the private files of a session, on the disk of this machine. Raises InvalidName."""
        return scratch_files.AsyncFiles(self, session)

    async def evict_files(self: scope.AsyncHost) -> dict[str, int]:
        """Evict private files that are too old or too large, in all sessions, including ended ones.

        Returns the number of evicted files by session. Raises FilesUnavailable.
        """
        return await self.converse(file_commands.evict_all(self.core))

    def texts(self: scope.AsyncHost, scope: str) -> paths.AsyncTexts:
        """Return the texts of a scope, such as a user or a project, by path. Raises InvalidName."""
        return paths.AsyncTexts(self, scope)

    async def begin_task(self: scope.AsyncHost, session: str, title: str, *, event_id: str | None = None) -> str:
        """Begin a task of a session; return its id, which `end_task` takes. Raises SessionOver."""
        return await self.converse(tasks.begin(self.core, session, locals()))

    async def end_task(self: scope.AsyncHost, task: str, summary: str, *, event_id: str | None = None) -> str:
        """End a task; return the text that replaces its part of the conversation.

        Raises NotFound, and Conflict if it has already ended.
        """
        return await self.converse(tasks.end(self.core, locals()))

    async def report_result(
        self: scope.AsyncHost, session: str, result: str, *, event_id: str | None = None
    ) -> observations.Observation:
        """Add the result of a session to the page of its parent, as an observation; no notepad is changed.

        Raises NotFound for a session without a parent.
        """
        return await self.converse(tasks.report(self.core, session, result, event_id))

    def scratchpad(self: scope.AsyncHost, agent: str) -> scratchpads.AsyncScratchpad:
        """Return the scratchpad of an agent; only that agent may use it. Raises InvalidName."""
        return scratchpads.AsyncScratchpad(self, agent)

    def run(
        self: scope.AsyncHost, agent: str, task: str, *, ask: Callable[[str], object], event_id: str | None = None
    ) -> runs.AsyncRun:
        """Return a run of an agent, to use in an `async with`.

        When it ends, in whatever way, `ask` is called with a prompt for a final call of the model, and the answer
        becomes the scratchpad. `event_id` becomes the id of the run's event; the answer's event gets the same id with
        `/scratchpad` appended. Raises InvalidField, InvalidId or InvalidName.
        """
        return runs.AsyncRun(scratchpads.AsyncScratchpad(self, agent), agent, task, ask, event_id)

    async def relations(self: scope.AsyncHost) -> relation_registry.RelationRegistry:
        """Return the relations that facts may use: the published ones, by default those of the file.

        Raises RelationsError.
        """
        return await self.converse(in_force.relations_now(self.core))

    @property
    def relations_version(self: scope.AsyncHost) -> int:
        """The version of the relations in use, 0 for those of the file; each push increments it."""
        return self.core.relations_version.number

    async def push_relations(
        self: scope.AsyncHost,
        relations: relation_registry.RelationRegistry | Path | str,
        *,
        expected_version: int | None = None,
        event_id: str | None = None,
    ) -> bool:
        """Publish relations, or the file at a path, to the whole bus; return whether that changed anything.

        Within seconds every process reads facts by them instead of by its own file. They decide how facts are read, not
        how they are stored. With an `expected_version`, publish only if the published ones still have that version (0:
        none were published). Raises RelationsError for a bad file, and VersionConflict.
        """
        return await self.converse(in_force.push_relations(self.core, relations, event_id, expected_version))
