"""Runs of agents: when one ends, the agent is asked what it should know next time."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Self

from scratchbus.domain.digest import derived_event_id
from scratchbus.domain.runs import RunRecord, plain_text, prompt_of, record_exception, record_reply
from scratchbus.domain.runs import ScratchpadReply as Reply
from scratchbus.domain.values import check_event_id
from scratchbus.errors import InvalidField, shown
from scratchbus.memory.scratchpad_async import AsyncScratchpad
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


class AsyncRun(RunRecord):
    """A run of an agent. Get it from `AsyncBus.run`, and use it in an `async with`.

    `whoami` is the text to show the agent when it starts. Leaving the `async with` ends the run, in one of four ways:
    done, which is the default; given up with `error`; out of steps with `max_steps`; or by an exception, which
    propagates to the caller. In each case `ask` is called with a prompt for a final call of the model, and its result
    (asyncio: or that of its awaitable) becomes the scratchpad. An error there never fails the run. `steps` and
    `outcome` describe the run, as does the event `run_ended` in the history of the scratchpad. A run interrupted
    by Ctrl-C or a cancellation ends without that call.
    """

    def __init__(
        self,
        scratchpad: AsyncScratchpad,
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

    async def __aenter__(self) -> Self:
        self.whoami = await self._scratchpad.whoami()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            record_exception(self, error)
        try:
            if error is None or isinstance(error, Exception):
                record_reply(self, await self._reply())
        finally:  # an interrupt while the model answers ends the run too
            await self._record()

    async def _record(self) -> None:
        try:
            await self._scratchpad.record_run(self, event_id=self._event_id)
        except Exception as problem:
            logger.warning("a run was not recorded", agent=self.agent, reason=str(problem))

    async def _reply(self) -> Reply:
        try:
            reply = self._ask(prompt_of(self))
            # asyncio only:
            if isawaitable(reply):
                reply = await reply
            # end
        except Exception as problem:
            return Reply(error=f"{type(problem).__name__}: {plain_text(problem)}")
        return await self._scratchpad.accept_reply(reply, event_id=self._reply_id)
