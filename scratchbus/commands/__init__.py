"""The operations on the observations of a page, as conversations with the engine.

All arguments are checked before anything is sent. Each function returns the same as the `Page` method of its name.
"""
