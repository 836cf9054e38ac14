"""The scratchpad of an agent."""

# Generated from scratchpad_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Sized

from scratchbus.commands import scratchpad
from scratchbus.commands.memory import history_of
from scratchbus.domain.events import Event
from scratchbus.domain.memories import Revised
from scratchbus.domain.run import RunRecord, ScratchpadReply, event_fields
from scratchbus.domain.scratchpad import end_of_run_prompt, parse_reply
from scratchbus.domain.values import page_of_agent
from scratchbus.projections.scratchpad import SUBJECT
from scratchbus.readmodel.scope import Host
from scratchbus.timetravel import When, remembered_as_of


class Scratchpad:
    """What an agent keeps for itself from one run to the next: one text. Get it from `Bus.scratchpad`.

    Only the agent itself has it: whoever speaks by this name, as a subagent. Anyone else gets Unauthorized; people see
    none.
    """

    def __init__(self, bus: Host, agent: str) -> None:
        self._bus = bus
        self._page = page_of_agent(agent)
        self._agent = agent

    def read(self) -> str:
        """Return what it says; "" when it is empty, and for people. Raises Unauthorized."""
        return self._bus.converse(scratchpad.read(self._bus.core, self._agent))

    def read_with_revision(self) -> Revised:
        """Return what it says, and the revision that `write` may be based on. Raises Unauthorized."""
        return self._bus.converse(scratchpad.read_revised(self._bus.core, self._agent))

    def write(self, content: str, *, revision: int | None = None, event_id: str | None = None) -> int:
        """Replace what it says; a blank text clears it. Returns its new revision.

        With a `revision`, it is replaced only if it is still at that one, or is empty for 0. Every event about it
        counts, also that of a run that is over. Raises RevisionConflict, Unauthorized, InvalidField, TooLarge.
        """
        return self._bus.converse(scratchpad.write(self._bus.core, self._agent, content, revision, event_id))

    def whoami(self) -> str:
        """Return what is shown at the start of a run: who one is, and what the scratchpad says. Raises Unauthorized."""
        return self._bus.converse(scratchpad.show(self._bus.core, self._agent))

    def end_of_run_prompt(self, task: str, outcome: str, summary: str, steps: int | Sized) -> str:
        """Return what to ask the model at the end of a run; `steps` are the steps it took, or how many."""
        return end_of_run_prompt(task, outcome, summary, steps)

    def accept_reply(self, text: object, *, event_id: str | None = None) -> ScratchpadReply:
        """Take the model's answer to that; return what became of it, and never raise.

        Its JSON may be fenced or bare. What is too long is cut, a blank text clears, and null keeps what is there.
        """
        try:
            content = parse_reply(text)
            if content is not None:
                self.write(content, event_id=event_id)
        except Exception as error:  # whatever it is, a task must not fail for its notes
            return ScratchpadReply(error=str(error) or type(error).__name__)
        return ScratchpadReply(content)

    def record_run(self, run: RunRecord, *, event_id: str | None = None) -> None:
        """Put a run that is over into its history, as an event `run_ended`. Raises Unauthorized."""
        self._bus.converse(scratchpad.record(self._bus.core, self._agent, event_fields(run), event_id))

    def history(self) -> list[Event]:
        """Return what was written and which runs there were, as events, oldest first. Raises Unauthorized."""
        if not scratchpad.may_see(self._bus.core, self._agent):
            return []
        return self._bus.converse(history_of(self._bus.core, self._page, SUBJECT))

    def as_of(self, when: When) -> str:
        """Return what it said at a position or a time. Raises Unauthorized, InvalidPosition."""
        if not scratchpad.may_see(self._bus.core, self._agent):
            return ""
        document = self._bus.converse(remembered_as_of(self._bus.core, self._page, SUBJECT, when))
        return scratchpad.content_of(document)
