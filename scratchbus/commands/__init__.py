"""What can be done to the observations of a page, as conversations with the engine.

Everything given is checked before anything is sent. Each function returns what the `Page` method of its name returns.
"""
