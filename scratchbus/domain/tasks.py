"""Tasks: stretches of a session's conversation that give way to a summary once they are over."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from scratchbus.domain.checks import check_content
from scratchbus.domain.values import MAX_BYTES
from scratchbus.errors import InvalidField, InvalidId, shown

PREFIX: Final = "task_"
"""How the subject of a task begins; the millisecond comes behind it."""

_ID: Final = re.compile(r"(task_\d{1,15})@(.+)")


class TaskId(NamedTuple):
    """The id of a task, ``task_<ms>@<session>``: whoever has it can end the task."""

    subject: str
    session: str

    def __str__(self) -> str:
        return f"{self.subject}@{self.session}"


def task_id(text: object) -> TaskId:
    """Return an id of a task in its parts. Raises InvalidId."""
    if isinstance(text, str) and (parts := _ID.fullmatch(text)):
        return TaskId(parts[1], parts[2])
    raise InvalidId(f"task: {shown(text)} is not the id of a task; give the one that begin_task returned")


def check_text(field: str, text: object) -> str:
    """Return the title or the summary of a task. Raises InvalidField, TooLarge."""
    if isinstance(text, str) and not text.strip():
        raise InvalidField(field, "is empty; say it in a sentence")
    return check_content(text, MAX_BYTES, field)


def replacement(title: str, summary: str) -> str:
    """Return what stands in the conversation for all that was said and done for a task."""
    return f"[Task ended: {title} — this summary stands for all of its steps]\n{summary}"
