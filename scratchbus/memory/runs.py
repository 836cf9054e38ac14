"""Runs of agents: however one ends, the agent is asked what its future self should know."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Self

from scratchbus.domain.run import RunRecord, prompt_of, record_exception, record_reply
from scratchbus.domain.run import ScratchpadReply as Reply
from scratchbus.domain.values import check_event_id
from scratchbus.memory.scratchpad import AsyncScratchpad, Scratchpad
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


class Run(RunRecord):
    """A run of an agent; get it from `Bus.run`, and use it in a `with`.

    `whoami` is what the agent is shown at its start. When the `with` is left the run is over, in one of four ways:
    done, also when nothing else was said; given up with `error`; out of steps with `max_steps`; or by an exception,
    which goes on to the caller. Each time `ask` is called with a prompt, for a last call of the model, and its answer
    becomes the scratchpad; nothing that goes wrong there fails the task. `steps` and `outcome` tell it all, and so does
    the event `run_ended` in the history of the scratchpad. A Ctrl-C ends a run without a question.
    """

    def __init__(
        self, scratchpad: Scratchpad, agent: str, task: str, ask: Callable[[str], object], event_id: str | None = None
    ) -> None:
        super().__init__(agent, task)
        self.whoami = ""
        self._scratchpad = scratchpad
        self._ask = ask
        self._event_id = event_id
        self._reply_id = None if event_id is None else check_event_id(f"{check_event_id(event_id)}/scratchpad")

    def __enter__(self) -> Self:
        self.whoami = self._scratchpad.whoami()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            record_exception(self, error)
        if error is None or isinstance(error, Exception):
            record_reply(self, self._reply())
        try:
            self._scratchpad.record_run(self, event_id=self._event_id)
        except Exception as problem:
            logger.warning("a run was not recorded", agent=self.agent, reason=str(problem))

    def _reply(self) -> Reply:
        try:
            answer = self._ask(prompt_of(self))
        except Exception as problem:
            return Reply(error=f"{type(problem).__name__}: {problem}")
        return self._scratchpad.accept_reply(answer, event_id=self._reply_id)


class AsyncRun(RunRecord):
    """A run of an agent; get it from `AsyncBus.run`, and use it in an `async with`.

    What `Run` says holds here too; `ask` may be awaitable. A task that is cancelled ends a run without a question.
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
        self.whoami = ""
        self._scratchpad = scratchpad
        self._ask = ask
        self._event_id = event_id
        self._reply_id = None if event_id is None else check_event_id(f"{check_event_id(event_id)}/scratchpad")

    async def __aenter__(self) -> Self:
        self.whoami = await self._scratchpad.whoami()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            record_exception(self, error)
        if error is None or isinstance(error, Exception):
            record_reply(self, await self._reply())
        try:
            await self._scratchpad.record_run(self, event_id=self._event_id)
        except Exception as problem:
            logger.warning("a run was not recorded", agent=self.agent, reason=str(problem))

    async def _reply(self) -> Reply:
        try:
            answer = self._ask(prompt_of(self))
            if isawaitable(answer):
                answer = await answer
        except Exception as problem:
            return Reply(error=f"{type(problem).__name__}: {problem}")
        return await self._scratchpad.accept_reply(answer, event_id=self._reply_id)
