"""The events of agents' memories: notes, notepads, sessions, todo lists, tasks, scratchpads, runs, preferences.

Their subjects are words, not ULIDs: `notepad`, `session`, `todo` and `scratchpad`, whose history includes the runs, and
`note_<ms>`, `task_<ms>` and `preference_<digest of its key>`.
"""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from typing import Any, Literal

from pydantic import Field

from scratchbus.domain.event import Event
from scratchbus.domain.todo import TodoItem

NotepadOperation = Literal["append", "prepend", "find_replace", "delete"]
"""What an edit does to a notepad."""


class NotepadWritten(Event):
    """The notepad was replaced as a whole."""

    kind: Literal["notepad_written"] = "notepad_written"
    content: str


class NotepadEdited(Event):
    """A part of the notepad was edited; the notepad contained it when the event was appended.

    `content` is the text that is appended, prepended or deleted; `find` is replaced by `replace`. Only the first
    occurrence is edited, with `replace_all` every one.
    """

    kind: Literal["notepad_edited"] = "notepad_edited"
    operation: NotepadOperation
    content: str = ""
    find: str = ""
    replace: str = ""
    replace_all: bool = False


class NoteAdded(Event):
    """A note was added."""

    kind: Literal["note_added"] = "note_added"
    content: str
    tags: list[str] = Field(default_factory=list)


class NoteUpdated(Event):
    """A note got new content, new tags, or both; None means unchanged."""

    kind: Literal["note_updated"] = "note_updated"
    content: str | None = None
    tags: list[str] | None = None


class NoteDeleted(Event):
    """A note was deleted; its history stays."""

    kind: Literal["note_deleted"] = "note_deleted"


class SessionSpawned(Event):
    """Another session was started from this one: with `fork` from its whole state, with `copied` from its notepad."""

    kind: Literal["session_spawned"] = "session_spawned"
    session: str
    fork: bool = False
    copied: bool = False


class SessionStarted(Event):
    """The session was started from another one, its parent, whose `session_spawned` event is the cause."""

    kind: Literal["session_started"] = "session_started"
    parent: str
    fork: bool = False


class SessionEnded(Event):
    """The session ended: all its memories are archived at once."""

    kind: Literal["session_ended"] = "session_ended"


class TodoWritten(Event):
    """The todo list was replaced by these items; with `merge`, they were updated in it, or appended if new."""

    kind: Literal["todo_written"] = "todo_written"
    todos: list[TodoItem] = Field(default_factory=list)
    merge: bool = False


class TaskBegun(Event):
    """A task was begun in the session."""

    kind: Literal["task_begun"] = "task_begun"
    title: str


class TaskEnded(Event):
    """The task ended; the summary replaces all of its turns."""

    kind: Literal["task_ended"] = "task_ended"
    summary: str


class ScratchpadWritten(Event):
    """The scratchpad was replaced as a whole."""

    kind: Literal["scratchpad_written"] = "scratchpad_written"
    content: str


class RunEnded(Event):
    """A run of the agent ended. Each step has a name and details."""

    kind: Literal["run_ended"] = "run_ended"
    task: str
    outcome: str
    summary: str
    steps: list[dict[str, Any]] = Field(default_factory=list)


class PreferenceRemembered(Event):
    """A preference was remembered: how someone wants something done, for the first time or changed.

    `said_by` is who wants it; None stands for `by`, who wrote it down.
    """

    kind: Literal["preference_remembered"] = "preference_remembered"
    key: str
    text: str
    said_by: str | None = None


class PreferenceForgotten(Event):
    """The preference no longer holds; its history stays."""

    kind: Literal["preference_forgotten"] = "preference_forgotten"
