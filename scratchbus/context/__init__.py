"""What an agent is shown of all this: one text, within a budget of tokens."""

from scratchbus.context.compaction import WARNING
from scratchbus.context.tokens import TokenCounter, estimate_tokens

__all__ = ["WARNING", "TokenCounter", "estimate_tokens"]
