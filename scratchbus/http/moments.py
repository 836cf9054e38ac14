"""Reads of another moment: `?at=` and `?without_source=`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from pydantic import StringConstraints

from scratchbus import AsyncBus, AsyncPage, AsyncPastPage
from scratchbus.http import patterns
from scratchbus.http.parameters import Absent

_AT = "A time (ISO 8601) or a position: return the state at that moment."
_WITHOUT = "Sources whose observations, and all that followed from them, are left out."


@dataclass(frozen=True)
class ReadMoment:
    """The moment that a read is about; now unless `at` says another."""

    at: str | None = None
    without_source: Sequence[str] = ()

    async def page(self, bus: AsyncBus, name: str) -> AsyncPage | AsyncPastPage:
        """Return the current or a past page. Raises InvalidPosition, PositionLost."""
        is_now = self.at is None and not self.without_source
        return bus.page(name) if is_now else await self.past(bus, name)

    async def past(self, bus: AsyncBus, name: str) -> AsyncPastPage:
        """Return a past page, also if the moment is now."""
        when = self.at if self.at is not None else await bus.position()
        return await bus.page(name).as_of(when, self.without_source)


AnyMoment = Annotated[str, StringConstraints(pattern=patterns.MOMENT)]
When = Annotated[AnyMoment | Absent, Query(description=_AT, examples=["2026-11-22T22:20:36Z", "1795386035607-1"])]
Silent = Annotated[
    list[Annotated[str, StringConstraints(pattern=patterns.SOURCE)]], Query(description=_WITHOUT, examples=[["rules"]])
]


async def _moment(at: When = None, without_source: Silent = []) -> ReadMoment:  # noqa: B006 - FastAPI copies it
    return ReadMoment(at, without_source)


At = Annotated[ReadMoment, Depends(_moment)]
