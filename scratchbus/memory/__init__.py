"""The memories of agents: one module for each memory, with its blocking and its asyncio facade."""
