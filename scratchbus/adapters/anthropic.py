"""The memory tool as classes for the tool runner of Anthropic's SDK: `pip install scratchbus[anthropic]`."""

from __future__ import annotations

from typing import Any

try:
    from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types.beta import BetaCacheControlEphemeralParam
except ImportError as problem:
    raise ImportError(f"ScratchbusMemoryTool needs: pip install 'scratchbus[anthropic]' ({problem})") from None

import scratchbus
from scratchbus.adapters.memory_answers import Answer
from scratchbus.adapters.memory_tool import MemoryTool
from scratchbus.adapters.memory_tool_async import AsyncMemoryTool


class ScratchbusMemoryTool(BetaAbstractMemoryTool):
    """The memory tool over the texts of a scope; give it to `client.beta.messages.tool_runner(tools=[…])`."""

    def __init__(
        self, bus: scratchbus.Bus, scope: str, *, cache_control: BetaCacheControlEphemeralParam | None = None
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(bus, scope)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._tool!r}>"

    def call(self, input: object) -> str:
        """Run a command, and return the text of the result. Raises the SDK's ToolError."""
        return _text_of(self._tool.answer(input))

    def execute(self, command: Any) -> str:
        """Run a command that the SDK has parsed."""
        return self.call(command.model_dump(exclude_none=True))

    view = create = str_replace = insert = delete = rename = execute


class AsyncScratchbusMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same for asyncio."""

    def __init__(
        self, bus: scratchbus.AsyncBus, scope: str, *, cache_control: BetaCacheControlEphemeralParam | None = None
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = AsyncMemoryTool(bus, scope)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._tool!r}>"

    async def call(self, input: object) -> str:
        """Run a command, and return the text of the result. Raises the SDK's ToolError."""
        return _text_of(await self._tool.answer(input))

    async def execute(self, command: Any) -> str:
        """Run a command that the SDK has parsed."""
        return await self.call(command.model_dump(exclude_none=True))

    view = create = str_replace = insert = delete = rename = execute


def _text_of(answer: Answer) -> str:
    if answer.is_error:
        raise ToolError(answer.text)
    return answer.text
