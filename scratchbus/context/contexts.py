"""Contexts as programs use them: one line per operation."""

# Generated from contexts_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.context import assemble as assembling
from scratchbus.context.assemble import Asked, Context, Surfaced
from scratchbus.context.compaction import WARNING, Warnings
from scratchbus.context.tokens import TokenCounter, estimate_tokens
from scratchbus.readmodel.scope import Host


class Contexts:
    """What agents are shown, by a blocking program. Get it from `Bus.context`.

    A budget is in tokens, as `counter` counts them, else by estimate; left out, it is the setting `context_budget`.
    """

    def __init__(self, bus: Host) -> None:
        self._bus = bus
        self._warnings = Warnings(bus.settings.compaction_threshold)

    def assemble(
        self,
        *,
        session: str | None = None,
        agent: str | None = None,
        page: str | None = None,
        budget: int | None = None,
        query: str | None = None,
        sections: Sequence[str] = (),
        counter: TokenCounter | None = None,
        record: bool = False,
        event_id: str | None = None,
    ) -> Context:
        """Return one text within the budget: what is there of an agent, a session and a page.

        In this order: the caller's own `sections`, the agent's scratchpad (if it is who speaks), the session's notepad,
        what is to be done, what was reported to the session, the page's open observations by priority, and the
        session's notes: the newest, or with a `query` those that bear on it. The first and the notepad are never cut;
        of the rest there are whole items, and it says how many were left out. With `record` it is recorded which
        observations were in it. Raises BudgetTooSmall, InvalidName and InvalidField.
        """
        asked = self._asked(session, agent, page, budget, query, sections, counter)
        return self._bus.converse(assembling.assemble(self._bus.core, asked, record, event_id))

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
        """Return what bears on a question, of a session's notes and a page's open observations, the best first.

        It is ranked by words in content and tags, in any of their grammatical forms in English, by priority, and by
        age. Raises InvalidName and InvalidField.
        """
        asked = self._asked(session, None, page, budget, query, (), counter)
        return self._bus.converse(assembling.surface(self._bus.core, asked, record, event_id))

    def should_warn(self, used: float, limit: float, *, session: str | None = None) -> bool:
        """Say whether to send `warning` now: a conversation has used so much of its limit that it will be compacted.

        That is true once at the setting `compaction_threshold`, until `after_compaction`. Raises InvalidField.
        """
        return self._warnings.should_warn(used, limit, session)

    @property
    def warning(self) -> str:
        """The message that gives an agent one more turn before its conversation is compacted."""
        return WARNING

    def after_compaction(self, session: str, *, system: str = "", summary: str = "") -> str:
        """Return what a conversation goes on with once it was compacted; it may be warned anew from then on.

        That is the system prompt, the summary, the full notepad and what is to be done. Raises InvalidName.
        """
        self._warnings.forget(session)
        self._warnings.forget(None)
        return self._bus.converse(assembling.compacted(self._bus.core, session, system, summary))

    def _asked(
        self,
        session: str | None,
        agent: str | None,
        page: str | None,
        budget: int | None,
        query: str | None,
        sections: Sequence[str],
        counter: TokenCounter | None,
    ) -> Asked:
        budget = self._bus.settings.context_budget if budget is None else budget
        return Asked(session, agent, page, budget, query, sections, counter or estimate_tokens)
