"""What an agent is shown of all this: one text, within a budget of tokens."""

from __future__ import annotations

from typing import Any

from scratchbus.context.assemble import Context, Surfaced
from scratchbus.context.compaction import WARNING
from scratchbus.context.contexts import Contexts
from scratchbus.context.contexts_async import AsyncContexts
from scratchbus.context.surface import Match
from scratchbus.domain.tokens import TokenCounter, estimate_tokens

__all__ = [
    "WARNING",
    "AsyncContexts",
    "Context",
    "Contexts",
    "Match",
    "Surfaced",
    "TokenCounter",
    "assemble",
    "estimate_tokens",
]


def assemble(bus: Any, **asked: Any) -> Any:
    """Return what `bus.context.assemble` does, with the same arguments; on an asyncio bus it is to be awaited."""
    return bus.context.assemble(**asked)
