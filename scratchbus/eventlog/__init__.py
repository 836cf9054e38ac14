"""The event log: keys, codec, guarded appends, the reader and its tail."""
