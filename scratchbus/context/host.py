"""What contexts need of an open bus."""

from __future__ import annotations

from typing import Protocol, TypeVar

from scratchbus.engine.steps import Step
from scratchbus.readmodel.scope import Core
from scratchbus.settings import Settings

T = TypeVar("T")


class Host(Protocol):
    """A bus of a blocking program."""

    core: Core

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        ...

    def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine."""
        ...


class AsyncHost(Protocol):
    """A bus of an asyncio program."""

    core: Core

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        ...

    async def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine."""
        ...
