"""Compaction: warn an agent once before its conversation is compacted, and build the text it continues with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from scratchbus.context.sections import SUMMARY
from scratchbus.context.sections import notepad as notepad_section
from scratchbus.domain.checks import check_text
from scratchbus.domain.todo import TodoItem, for_injection
from scratchbus.domain.values import MAX_SAFE_INTEGER
from scratchbus.errors import InvalidField, shown

WARNING: Final = (
    "[System] Context is approaching the token limit and will be compacted after your next response. Review your"
    " session notepad and update it with any working state, findings, or progress you need to preserve. Conversation"
    " details may be summarized during compaction, but the notepad is kept in full."
)
"""The message that gives an agent one more turn before its conversation is compacted."""

_MAX_CONVERSATIONS: Final = 10_000  # conversations to remember


@dataclass(slots=True)
class Warnings:
    """The conversations warned since their last compaction, each with the tokens it had used at the warning."""

    threshold: float
    _warned: dict[str | None, float] = field(default_factory=dict)

    def should_warn(self, used: float, limit: float, session: str | None) -> bool:
        """Return whether to warn a conversation now: at the threshold, once per compaction.

        A conversation that has shrunk to less than three quarters of its tokens counts as compacted. Raises
        InvalidField.
        """
        _check("used", used, 0)
        _check("limit", limit, 1)
        if session is not None:
            check_text("session", session)
        if used * 4 < self._warned.get(session, 0) * 3:
            self.forget(session)
        if session in self._warned or used < self.threshold * limit:
            return False
        if len(self._warned) >= _MAX_CONVERSATIONS:
            with suppress(RuntimeError, StopIteration):  # other threads change it meanwhile
                self._warned.pop(next(iter(self._warned)), None)
        self._warned[session] = used
        return True

    def forget(self, session: str | None) -> None:
        """Record that a conversation was compacted."""
        self._warned.pop(session, None)


def _check(field: str, number: object, minimum: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not minimum <= number <= MAX_SAFE_INTEGER:
        raise InvalidField(field, f"{shown(number)} is not a number of tokens, from {minimum} to {MAX_SAFE_INTEGER}")


def after_compaction(system: str, summary: str, notepad: str, todos: Sequence[TodoItem]) -> str:
    """Return the text a compacted conversation continues with: system prompt, summary, full notepad, open todo items.

    Empty parts are left out, except the notepad.
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
