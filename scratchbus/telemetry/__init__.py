"""The process's own state: counters, logs, and modules imported on first use."""
