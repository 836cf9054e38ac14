"""Checks of the events of what agents remember, plan and do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scratchbus.archive.importing.limits import MOST_NOTEPAD, check_same, check_text
from scratchbus.domain.checks import MAX_EVIDENCE, check_content, check_label, check_object, check_tags
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import (
    NoteAdded,
    NotepadEdited,
    NotepadWritten,
    NoteUpdated,
    RunEnded,
    ScratchpadWritten,
    SessionSpawned,
    SessionStarted,
    TaskBegun,
    TaskEnded,
    TodoWritten,
)
from scratchbus.domain.run import MOST_STEPS
from scratchbus.domain.scratchpad import check_content as check_scratchpad
from scratchbus.domain.todo import MAX_CONTENT, MAX_ITEMS
from scratchbus.domain.values import MAX_BYTES, page_of_session
from scratchbus.errors import InvalidField


def _check_edit(event: NotepadEdited) -> None:
    for field in ("content", "find", "replace"):
        check_text(field, event.__dict__[field], MOST_NOTEPAD)


def _check_note(event: NoteAdded | NoteUpdated) -> None:
    if event.content is not None:
        check_content(event.content, 4 * MAX_BYTES)  # its limit is in characters
    if event.tags is not None:
        check_same("tags", event.tags, check_tags(event.tags, MAX_EVIDENCE))


def _check_todo(event: TodoWritten) -> None:
    if len(event.todos) > MAX_ITEMS:
        raise InvalidField("todos", f"has {len(event.todos):,} items, the limit is {MAX_ITEMS}")
    for item in event.todos:
        check_label("todos", item.id)
        check_text("todos", item.content, MAX_CONTENT)


def _check_run(event: RunEnded) -> None:
    for field in ("task", "outcome", "summary"):
        check_text(field, event.__dict__[field], MAX_BYTES)
    if len(event.steps) > MOST_STEPS:
        raise InvalidField("steps", f"has {len(event.steps):,} entries, the limit is {MOST_STEPS}")
    for step in event.steps:
        check_same("steps", step, check_object("steps", step))


CHECKS: dict[type[Event], Callable[[Any], object]] = {
    NotepadWritten: lambda event: check_text("content", event.content, MOST_NOTEPAD),
    NotepadEdited: _check_edit,
    NoteAdded: _check_note,
    NoteUpdated: _check_note,
    SessionSpawned: lambda event: page_of_session(event.session),
    SessionStarted: lambda event: page_of_session(event.parent),
    TodoWritten: _check_todo,
    TaskBegun: lambda event: check_content(event.title, MAX_BYTES, "title"),
    TaskEnded: lambda event: check_content(event.summary, MAX_BYTES, "summary"),
    ScratchpadWritten: lambda event: check_same("content", event.content, check_scratchpad(event.content)),
    RunEnded: _check_run,
}
"""What each kind of event says."""
