"""The contexts of a bus: one line per operation."""

# Generated from contexts_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scratchbus.context import assemble as assembling
from scratchbus.context.assemble import Context, ContextRequest, Surfaced
from scratchbus.context.compaction import WARNING, Warnings
from scratchbus.domain.tokens import TokenCounter, checked_counter
from scratchbus.readmodel.scope import Host


class Contexts:
    """The contexts that agents are shown. Get it from `Bus.context`.

    A budget is in tokens, counted by `counter` or, without one, estimated. It defaults to the setting `context_budget`,
    or if that is not set, to an eighth of the model's window (the setting `context_tokens`).
    """

    def __init__(self, bus: Host) -> None:
        self._bus = bus
        self._budget = bus.core.settings.default_budget
        self._warnings = Warnings(bus.core.settings.compaction_threshold)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._bus!r}>"

    def assemble(
        self,
        *,
        session: str | None = None,
        agent: str | None = None,
        page: str | None = None,
        budget: int | None = None,
        query: str | None = None,
        sections: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        scopes: Sequence[str] = (),
        counter: TokenCounter | None = None,
        record: bool = False,
        strict: bool = False,
        event_id: str | None = None,
    ) -> Context:
        """Return one text within the budget from the memories of an agent, a session, a page and scopes.

        In this order: the caller's own `sections`, the preferences of the `scopes` (for a key in several, that of the
        last scope), the agent's scratchpad (if the bus speaks as that agent), the session's notepad, its todo list, its
        conversation (summaries and the newest turns), the results reported to it, the page's open observations by
        priority, the facts of the scopes that are true now, and the session's notes: the newest or, with a `query`, the
        most relevant. `sections` and the notepad are shown in full or, if they exceed the budget, with the middle cut
        out; the other sections show whole items. The text says what was left out. With `strict`, BudgetTooSmall is
        raised instead of cutting `sections` or the notepad. With `record`, an event records the observations shown, and
        `files`: the paths of files whose text is in `sections`, each with its SHA-256. A retry with the same `event_id`
        returns the current text, and the position of the first record, which stays as it is. Raises InvalidName and
        InvalidField.
        """
        budget = self._budget if budget is None else budget
        request = ContextRequest(
            session, agent, page, budget, query, sections, checked_counter(counter), strict, scopes, files or {}
        )
        return self._bus.converse(assembling.assemble(self._bus.core, request, record, event_id))

    def surface(
        self,
        query: str,
        budget: int | None = None,
        *,
        session: str | None = None,
        page: str | None = "main",
        counter: TokenCounter | None = None,
        record: bool = False,
        event_id: str | None = None,
    ) -> Surfaced:
        """Return the notes of a session and the open observations of a page that are relevant to a query, best first.

        They are ranked by the words in content and tags (in any grammatical form of English), by priority, and by
        age. Raises InvalidName and InvalidField.
        """
        budget = self._budget if budget is None else budget
        request = ContextRequest(session, None, page, budget, query, (), checked_counter(counter))
        return self._bus.converse(assembling.surface(self._bus.core, request, record, event_id))

    def should_warn(self, used: float, limit: float, *, session: str | None = None) -> bool:
        """Return whether to send `warning` now because a conversation will soon be compacted.

        It returns True once, when the conversation has used the share `compaction_threshold` of its limit, and then not
        again until `after_compaction` is called. Raises InvalidField.
        """
        return self._warnings.should_warn(used, limit, session)

    @property
    def warning(self) -> str:
        """The message that gives an agent one more turn before its conversation is compacted."""
        return WARNING

    def after_compaction(self, session: str, *, system: str = "", summary: str = "") -> str:
        """Return the text with which a compacted conversation continues, and allow the next warning.

        It holds the system prompt, the summary, the whole notepad and the open todo items. Raises InvalidName.
        """
        self._warnings.forget(session)
        self._warnings.forget(None)
        return self._bus.converse(assembling.compacted(self._bus.core, session, system, summary))
