"""Tasks: parts of a session's conversation that a summary replaces when they end."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from scratchbus.domain.checks import check_content
from scratchbus.domain.values import MAX_BYTES
from scratchbus.errors import InvalidField, InvalidId, shown

PREFIX: Final = "task_"
"""The prefix of a task's subject; the millisecond follows."""

_ID: Final = re.compile(r"(task_[0-9]{1,15})@(.+)")


class TaskId(NamedTuple):
    """The id of a task, ``task_<ms>@<session>``; it is all that is needed to end the task."""

    subject: str
    session: str

    def __str__(self) -> str:
        return f"{self.subject}@{self.session}"


def task_id(text: object) -> TaskId:
    """Split a task id into its parts. Raises InvalidId."""
    if isinstance(text, str) and (parts := _ID.fullmatch(text)):
        return TaskId(parts[1], parts[2])
    raise InvalidId(f"task: {shown(text)} is not the id of a task; pass the one that begin_task returned")


def check_text(field: str, text: object) -> str:
    """Return the title or the summary of a task. Raises InvalidField, TooLarge."""
    if isinstance(text, str) and not text.strip():
        raise InvalidField(field, "is empty; write a sentence")
    return check_content(text, MAX_BYTES, field)


def replacement(title: str, summary: str) -> str:
    """Return the text that replaces a task's part of the conversation."""
    return f"[Task ended: {title} — this summary replaces its steps]\n{summary}"
