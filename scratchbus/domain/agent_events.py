"""The events of what agents plan and do: todo lists, tasks, scratchpads, runs.

The subjects are words: `todo`, `task_<ms>` and `scratchpad`, whose history has the runs too.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from scratchbus.domain.event import Event
from scratchbus.domain.todo import TodoItem


class TodoWritten(Event):
    """The todo list became these items; with `merge`, these were changed in it, or are new at its end."""

    kind: Literal["todo_written"] = "todo_written"
    todos: list[TodoItem] = Field(default_factory=list)
    merge: bool = False


class TaskBegun(Event):
    """A task was begun in the session."""

    kind: Literal["task_begun"] = "task_begun"
    title: str


class TaskEnded(Event):
    """The task is over; the summary stands for all that was said and done for it."""

    kind: Literal["task_ended"] = "task_ended"
    summary: str


class ScratchpadWritten(Event):
    """The scratchpad was replaced as a whole."""

    kind: Literal["scratchpad_written"] = "scratchpad_written"
    content: str


class RunEnded(Event):
    """A run of the agent is over. Each step has its name and its details."""

    kind: Literal["run_ended"] = "run_ended"
    task: str
    outcome: str
    summary: str
    steps: list[dict[str, Any]] = Field(default_factory=list)
