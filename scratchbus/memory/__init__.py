"""What agents remember, as programs use it: one module for each memory, with its blocking and its asyncio facade."""
