"""Conversations that are halted just before they write, so that a test can do something else first."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from scratchbus import Bus
from scratchbus.engine.steps import Call, Request, Step
from scratchbus.errors import ScratchbusError

T = TypeVar("T")


class Halted(Generic[T]):
    """A conversation of a bus that is halted before its first write."""

    def __init__(self, bus: Bus, conversation: Step[T]) -> None:
        self._bus = bus
        self._conversation = conversation
        self._request = conversation.send(None)
        while not (isinstance(self._request, Call) and self._request.is_write):
            try:
                reply = bus.converse(_ask(self._request))
            except ScratchbusError as error:
                self._request = conversation.throw(error)
            else:
                self._request = conversation.send(reply)

    def go_on(self) -> T:
        """Let the conversation write and finish; return its result."""
        return self._bus.converse(self._rest())

    def _rest(self) -> Step[T]:
        request = self._request
        while True:
            try:
                try:
                    reply = yield request
                except ScratchbusError as error:
                    request = self._conversation.throw(error)
                else:
                    request = self._conversation.send(reply)
            except StopIteration as done:
                result: T = done.value
                return result


def _ask(request: Request) -> Step[Any]:
    return (yield request)
