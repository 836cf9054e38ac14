"""The archive of a log: closed ranges of events, moved to files that anyone can read and check."""
