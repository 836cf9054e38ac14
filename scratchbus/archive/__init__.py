"""The archive of a log: closed ranges of it, moved to files that anyone can read and check."""
