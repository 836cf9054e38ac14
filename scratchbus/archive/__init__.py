"""The archive of a log: closed ranges of events, in files that can be read and verified without the engine."""
