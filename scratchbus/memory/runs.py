"""Runs of agents: when one ends, the agent is asked what it should know next time."""

# Generated from runs_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from scratchbus.domain.digest import derived_event_id
from scratchbus.domain.runs import RunRecord, plain_text, prompt_of, record_exception, record_reply
from scratchbus.domain.runs import ScratchpadReply as Reply
from scratchbus.domain.values import check_event_id
from scratchbus.errors import InvalidField, shown
from scratchbus.memory.scratchpad import Scratchpad
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


class Run(RunRecord):
    """A run of an agent. Get it from `Bus.run`, and use it in a `with`.

    `whoami` is the text to show the agent when it starts. Leaving the `with` ends the run, in one of four ways:
    done, which is the default; given up with `error`; out of steps with `max_steps`; or by an exception, which
    propagates to the caller. In each case `ask` is called with a prompt for a final call of the model, and its result
    becomes the scratchpad. An error there never fails the run. `steps` and
    `outcome` describe the run, as does the event `run_ended` in the history of the scratchpad. A run interrupted
    by Ctrl-C or a cancellation ends without that call.
    """

    def __init__(
        self,
        scratchpad: Scratchpad,
        agent: str,
        task: str,
        ask: Callable[[str], object],
        event_id: str | None = None,
    ) -> None:
        super().__init__(agent, task)
        if not callable(ask):
            raise InvalidField("ask", f"{shown(ask)} cannot be called; pass a function that takes a prompt")
        self.whoami = ""
        self._scratchpad = scratchpad
        self._ask = ask
        self._event_id = event_id
        self._reply_id = None if event_id is None else derived_event_id(check_event_id(event_id), "scratchpad")

    def __enter__(self) -> Self:
        self.whoami = self._scratchpad.whoami()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            record_exception(self, error)
        try:
            if error is None or isinstance(error, Exception):
                record_reply(self, self._reply())
        finally:  # an interrupt while the model answers ends the run too
            self._record()

    def _record(self) -> None:
        try:
            self._scratchpad.record_run(self, event_id=self._event_id)
        except Exception as problem:
            logger.warning("a run was not recorded", agent=self.agent, reason=str(problem))

    def _reply(self) -> Reply:
        try:
            reply = self._ask(prompt_of(self))
        except Exception as problem:
            return Reply(error=f"{type(problem).__name__}: {plain_text(problem)}")
        return self._scratchpad.accept_reply(reply, event_id=self._reply_id)
