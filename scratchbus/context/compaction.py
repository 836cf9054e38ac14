"""Compaction: an agent is warned once before its conversation is compacted, and gets back what it must not lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from scratchbus.context.sections import SUMMARY
from scratchbus.context.sections import notepad as notepad_section
from scratchbus.domain.checks import check_text
from scratchbus.domain.todo import TodoItem, for_injection
from scratchbus.domain.values import LARGEST
from scratchbus.errors import InvalidField, shown

WARNING: Final = (
    "[System] This conversation is coming close to its token limit: once you have answered, it is compacted. Go"
    " through your session notepad now, and add to it what you will still need: the state of your work, what you have"
    " found, how far you have come. Of the conversation perhaps only a summary remains; what is on the notepad stays in"
    " full."
)
"""The message that gives an agent one more turn before its conversation is compacted."""

_MOST: Final = 10_000  # conversations that are remembered


@dataclass(slots=True)
class Warnings:
    """Which conversations have been warned since they were compacted last, each with how much it had used then."""

    threshold: float
    _warned: dict[str | None, float] = field(default_factory=dict)

    def should_warn(self, used: float, limit: float, session: str | None) -> bool:
        """Say whether a conversation is to be warned now: at the threshold, once until it is compacted.

        One that has come down to three quarters of what it had is taken for compacted. Raises InvalidField.
        """
        _check("used", used, 0)
        _check("limit", limit, 1)
        if session is not None:
            check_text("session", session)
        if used * 4 < self._warned.get(session, 0) * 3:
            self.forget(session)
        if session in self._warned or used < self.threshold * limit:
            return False
        if len(self._warned) >= _MOST:
            del self._warned[next(iter(self._warned))]
        self._warned[session] = used
        return True

    def forget(self, session: str | None) -> None:
        """Take note that a conversation was compacted."""
        self._warned.pop(session, None)


def _check(field: str, number: object, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= LARGEST:
        raise InvalidField(field, f"{shown(number)} is not a number of tokens, from {least} to {LARGEST}")


def after_compaction(system: str, summary: str, notepad: str, todos: Sequence[TodoItem]) -> str:
    """Return what a compacted conversation goes on with: system prompt, summary, the full notepad, what is to be done.

    What is empty is left out, but for the notepad.
    """
    check_text("system", system)
    check_text("summary", summary)
    blocks = [
        system,
        f"{SUMMARY}\n{summary}" if summary else "",
        notepad_section(notepad).head,
        for_injection(todos) or "",
    ]
    return "\n\n".join(filter(None, blocks))
