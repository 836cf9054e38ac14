"""The conversation of a session."""

# Generated from turns_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.commands import turns as operations
from scratchbus.domain.conversations import Turn
from scratchbus.domain.values import page_of_session
from scratchbus.memory.page_memory import Events, PageMemory, timetravel

TurnList = list[Turn]  # see `Events`


class Turns(PageMemory):
    """The conversation of a session, to which the host appends turns. Get it from `Bus.turns`.

    A write takes `event_id`, an id the caller chooses to make a retry safe: the retry returns the turn. It raises
    InvalidField, InvalidId or TooLarge for bad arguments, and SessionOver once the session has ended; then nothing has
    changed. Every read sees all writes acknowledged before it began. `page.erase` erases a turn by its id.
    """

    _page_of = staticmethod(page_of_session)

    def append(
        self,
        role: str,
        content: str,
        *,
        tokens: int | None = None,
        task: str | None = None,
        event_id: str | None = None,
    ) -> Turn:
        """Append a turn of up to `max_turn` characters.

        The role is a word, such as `user`, `assistant` or `tool`. `tokens` is the length of the turn, if known. The
        turn belongs to `task`, an id from `begin_task`; by default, to each task that is open. Raises NotFound for a
        task that was never begun.
        """
        return self._do(operations.add, locals())

    def list(
        self, *, after: str | None = None, limit: int | None = None, at: timetravel.When | None = None
    ) -> TurnList:
        """Return the original turns, oldest first: all, or those after the turn with this id.

        With `at`, a position or a time, return the turns up to then. Raises InvalidPosition.
        """
        if at is None:
            return self._do(operations.original_turns, after, limit)
        operations.check_slice(after, limit)
        return (self._do(timetravel.conversation_as_of, at)).original_turns(after, limit)

    def shown(self) -> TurnList:
        """Return the turns that an agent is shown, with summaries in place of the turns they replace.

        A summary is a turn with the role `summary`, and `replaces` has the ids of the turns it replaces. It comes from
        `compact`, or from a task that has ended and has the id of that task.
        """
        return self._do(operations.shown_turns)

    def compact(
        self,
        summary: str,
        *,
        turns: Sequence[str] | None = None,
        tokens: int | None = None,
        event_id: str | None = None,
    ) -> Turn:
        """Replace the turns with these ids, by default all that `shown` returns, with a summary; return the summary.

        The ids may include summaries and ended tasks. The turns stay in `list` and in the history. Raises NotFound for
        an unknown id.
        """
        return self._do(operations.compact, locals())

    def history(self) -> Events:
        """Return the turns and compactions as events, oldest first, also after the session has ended.

        Raises PositionLost if some of them have left the log.
        """
        return self._do(operations.history_of_turns)

    def as_of(self, when: timetravel.When) -> TurnList:
        """Return the turns shown at a position or a time. Raises InvalidPosition."""
        return (self._do(timetravel.conversation_as_of, when)).shown()
