"""Packages that are imported on first use: redis-py when it connects, or for an error, and asyncio when code awaits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scratchbus.telemetry.lazy import lazy

if TYPE_CHECKING:
    import asyncio

    from redis import exceptions as redis_errors
else:
    asyncio = lazy("asyncio")
    redis_errors = lazy("redis.exceptions")

__all__ = ["asyncio", "redis_errors"]
