"""Where scratchbus meets the world: the command line and what else speaks for it."""
