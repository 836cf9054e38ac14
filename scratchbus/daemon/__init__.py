"""What a process needs around its work: serving, signals, logging, metrics."""
