"""Waiting for a condition, with a deadline."""

from tests.waiting import eventually as until

__all__ = ["until"]
