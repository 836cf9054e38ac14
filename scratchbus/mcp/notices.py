"""Notices in answers: reminders that a scratchbus harness would give; other agents get them this way."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

UNSAVED_LIMIT: Final = 60_000
"""The characters of answers after which an agent that has saved nothing is reminded to: about 15,000 tokens."""

COMPACTION: Final = (
    "You have read much since you last wrote something down. If your context is compacted, only what you keep here"
    " survives: review your session notepad and add the state of your work, your findings and your progress."
)
END_OF_RUN: Final = (
    "Every item of your todo list is done. Before you finish, update your scratchpad with what will help your future"
    " self: lessons, findings, follow-ups, preferences of the user."
)

_WRITES: Final = frozenset({"write_notepad", "update_notepad", "add_note", "scratch_note", "update_note"})


class Notices:
    """Decides which answers of a connection carry a notice: each is given once per occasion."""

    def __init__(self) -> None:
        self._unsaved = 0

    def read(self, characters: int) -> None:
        """Count the characters the agent was given to read."""
        self._unsaved += characters

    def after(
        self, tool: str, arguments: Mapping[str, Any], answer: Mapping[str, Any], tools: Container[str]
    ) -> str | None:
        """Return the notice that goes with an answer, if any."""
        if tool in _WRITES:
            self._unsaved = 0
        if tool == "todo" and arguments.get("todos") and "update_scratchpad" in tools:
            counts = answer["summary"]
            if counts["total"] and not counts["pending"] + counts["in_progress"]:
                return END_OF_RUN
        if self._unsaved >= UNSAVED_LIMIT and "update_notepad" in tools:
            self._unsaved = 0
            return COMPACTION
        return None
