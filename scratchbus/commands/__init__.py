"""The operations on observations and memories, as conversations with the engine.

All arguments are checked before anything is sent.
"""
