"""The scratchpad of an agent."""

from __future__ import annotations

from collections.abc import Sized

from scratchbus.commands import scratchpad
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import Revised
from scratchbus.domain.runs import RunRecord, ScratchpadReply, event_fields
from scratchbus.domain.scratchpad import end_of_run_prompt, parse_reply
from scratchbus.domain.values import page_of_agent
from scratchbus.memory.page_memory_async import AsyncPageMemory, timetravel
from scratchbus.projections.scratchpad import SUBJECT
from scratchbus.readmodel.memory_history import history_of


class AsyncScratchpad(AsyncPageMemory):
    """One text that an agent keeps from one run to the next. Get it from `AsyncBus.scratchpad`.

    Only the agent itself, or a subagent that speaks under its name, may use it; others get Unauthorized. People have
    no scratchpad.
    """

    _page_of = staticmethod(page_of_agent)

    async def read(self) -> str:
        """Return its text; "" if it is empty, and for people. Raises Unauthorized."""
        return (await self.read_with_revision()).content

    async def read_with_revision(self) -> Revised:
        """Return its text, and the revision to pass to `write`. Raises Unauthorized."""
        return await self._do(scratchpad.read)

    async def write(self, content: str, *, revision: int | None = None, event_id: str | None = None) -> int:
        """Replace its text; a blank one clears it. Returns the new revision.

        With a `revision`, the text is replaced only if it is still at that revision (0: still empty). Every event of
        the scratchpad counts as a revision, including the end of a run. Raises RevisionConflict, Unauthorized,
        InvalidField, TooLarge.
        """
        return await self._do(scratchpad.write, scratchpad.WriteScratchpad, locals())

    async def whoami(self) -> str:
        """Return the text to show at the start of a run: the agent's identity and scratchpad. Raises Unauthorized."""
        return await self._do(scratchpad.show)

    async def end_of_run_prompt(self, task: str, outcome: str, summary: str, steps: int | Sized | None = None) -> str:
        """Return the prompt for the final call of a run; `steps` are the steps taken, or their number, if known."""
        return end_of_run_prompt(task, outcome, summary, steps)

    async def accept_reply(self, text: object, *, event_id: str | None = None) -> ScratchpadReply:
        """Save the model's answer to `end_of_run_prompt`; return the outcome. Never raises.

        The answer is JSON, in a code fence or bare. Text that is too long is cut; null and blank text leave the
        scratchpad as it is.
        """
        try:
            content = parse_reply(text)
            if content is not None:
                await self.write(content, event_id=event_id)
        except Exception as error:  # a task must never fail because of its notes
            return ScratchpadReply(error=str(error) or type(error).__name__)
        return ScratchpadReply(content)

    async def record_run(self, run: RunRecord, *, event_id: str | None = None) -> None:
        """Record a run that has ended in the history, as an event `run_ended`. Raises Unauthorized."""
        arguments = {"run": event_fields(run), "event_id": event_id}
        await self._do(scratchpad.write, scratchpad.RecordRun, arguments)

    async def history(self) -> list[AnyEvent]:
        """Return the writes and runs as events, oldest first. Raises Unauthorized."""
        if not scratchpad.may_see(self._bus.core, self._page):
            return []
        return await self._do(history_of, SUBJECT)

    async def as_of(self, when: timetravel.When) -> str:
        """Return the text as it was at a position or a time. Raises Unauthorized, InvalidPosition."""
        if not scratchpad.may_see(self._bus.core, self._page):
            return ""
        return scratchpad.content_of(await self._do(timetravel.remembered_as_of, SUBJECT, when))
