"""Contexts: one text that shows an agent its memory and its page, within a budget of tokens."""

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


def assemble(bus: Any, **arguments: Any) -> Any:
    """Call `bus.context.assemble` with the same arguments; on an asyncio bus, await the result."""
    return bus.context.assemble(**arguments)
