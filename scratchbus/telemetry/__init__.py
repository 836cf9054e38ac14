"""Counters and logs of this process."""
