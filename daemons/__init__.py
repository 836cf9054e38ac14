"""The reference daemons, and a demo of them. They import public names only, as your own daemons would.

Start one with `scratchbus run NAME`, or in a checkout with `python daemons/NAME.py` or `python -m daemons.NAME`.
"""

NAMES = ("archiver", "evaluator", "executor", "expirer", "logwatch", "projector", "router")
"""The modules that are daemons; the others help them."""
