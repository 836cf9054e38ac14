"""Packages that are imported on first use: redis-py when it connects, or for an error, and asyncio when code awaits."""

from __future__ import annotations

from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    import asyncio

    from redis import exceptions as redis_errors

__all__ = ["asyncio", "redis_errors"]
