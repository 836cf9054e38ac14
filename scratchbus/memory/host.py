"""What a memory needs of an open bus."""

from __future__ import annotations

from typing import Protocol, TypeVar

from scratchbus.engine.steps import Step
from scratchbus.readmodel.scope import Core

T = TypeVar("T")


class Host(Protocol):
    """A bus of a blocking program."""

    core: Core

    def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine."""
        ...


class AsyncHost(Protocol):
    """A bus of an asyncio program."""

    core: Core

    async def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine."""
        ...
