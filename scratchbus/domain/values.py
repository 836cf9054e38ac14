"""The small values that callers give, and their checks: names, sources, durations, times, ids."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import inf
from typing import Annotated, Final

from pydantic import Field

from scratchbus.domain.times import UNITS, read_duration
from scratchbus.errors import InvalidField, InvalidId, InvalidName, InvalidSource, InvalidTTL, shown
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    import ulid

MAX_BYTES: Final = 64 * 1024
"""The most bytes of UTF-8 in content, and in context or metadata as JSON."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest number of any counter: JavaScript, Lua and every JSON parser read it exactly."""

Whole = Annotated[int, Field(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
"""A whole number in the log or in a document; a larger one makes its event or document unreadable."""

Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A confidence, from 0 to 1."""

MAX_TIMES: Final = 1_000_000_000
"""The most sightings that an observation may represent when it is added."""

NEVER: Final = "never"
"""The text of an unlimited duration."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_LAST_MS = 253_402_300_799_999  # the end of the year 9999

SESSION_PAGES = "session:"
"""The prefix of the name of a session's page; its id follows."""

AGENT_PAGES = "agent:"
"""The prefix of the name of an agent's page."""

SCOPE_PAGES = "knowledge:"
"""The prefix of the name of a scope's page."""

_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}")
_BUS = re.compile(r"[A-Za-z0-9_.@/-]{1,128}")
_PAGE = re.compile(r"[A-Za-z0-9_.@/:-]{1,128}")
_PART_OF_PAGE = re.compile(r"[A-Za-z0-9_.@/:-]{1,120}")
_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_EVENT_ID: Final = 200
_EVENT_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_EVENT_ID}}}")
_MAX_MS: Final = 100 * 365 * 86_400_000

Duration = str | int | float | timedelta
"""A length of time: ``"2h"``, ``"5 minutes"``, ``"PT1H"``, ``"never"``, a number of seconds, or a timedelta."""

Moment = datetime | str
"""A point in time: a datetime, or a text such as ``"14:02"``, ``"yesterday"``, ``"2h"``, ``"in 5 minutes"``."""


def check_source(source: object, field: str = "source") -> str:
    """Return the source if it is valid. Raises InvalidSource."""
    if not isinstance(source, str) or not _SOURCE.fullmatch(source):
        kind = "source" if field == "source" else "name"
        hint = " (pass source=, or Bus.connect(source=…))" if kind == "source" or source is None else ""
        raise InvalidSource(
            f"{field}: {shown(source)} is not a valid {kind}; use 1–128 letters, digits and _.:@/-, starting with a"
            f" letter or digit{hint}"
        )
    return str.__str__(source)  # not a subclass, such as the member of an enum


def check_page(name: object) -> str:
    """Return the page name if it is valid. Raises InvalidName."""
    if not isinstance(name, str) or not _PAGE.fullmatch(name):
        raise InvalidName(f"page: {shown(name)} is not a page name; use 1–128 letters, digits and _.@/:-")
    return name


def page_of_session(session: object) -> str:
    """Return the page that has a session's memory. Raises InvalidName."""
    return f"{SESSION_PAGES}{_check_part('session', session)}"


def page_of_agent(agent: object) -> str:
    """Return the page that has an agent's own memory. Raises InvalidName."""
    return f"{AGENT_PAGES}{_check_part('agent', agent)}"


def page_of_scope(scope: object) -> str:
    """Return the page that has the knowledge of a scope, such as a user or a project. Raises InvalidName."""
    return f"{SCOPE_PAGES}{check_scope(scope)}"


def page_of_store(store: object) -> str:
    """Return the page that has the items of a store. Raises InvalidName."""
    return f"store:{_check_part('store', store)}"


def check_scope(scope: object) -> str:
    """Return the name of a scope if it is valid. Raises InvalidName."""
    return _check_part("scope", scope, 118)


def _check_part(field: str, name: object, maximum: int = 120) -> str:
    if not isinstance(name, str) or not _PART_OF_PAGE.fullmatch(name) or len(name) > maximum:
        raise InvalidName(f"{field}: {shown(name)} is not a name; use 1–{maximum} letters, digits and _.@/:-")
    return name


def check_bus(name: object) -> str:
    """Return the bus name if it is valid. Raises InvalidName."""
    if not isinstance(name, str) or not _BUS.fullmatch(name):
        raise InvalidName(f"bus: {shown(name)} is not a bus name; use 1–128 letters, digits and _.@/-")
    return name


def check_event_id(event_id: object) -> str:
    """Return the caller's event id if it is valid. Raises InvalidId."""
    if not isinstance(event_id, str) or not _EVENT_ID.fullmatch(event_id):
        raise InvalidId(
            f"event_id: {shown(event_id)} is not an event id; use 1–200 printable ASCII characters without spaces"
        )
    return event_id


def is_type_name(name: object) -> bool:
    """Return whether this is a valid name of a type, status or lifecycle."""
    return isinstance(name, str) and _TYPE.fullmatch(name) is not None


def check_id(id: object, field: str = "id") -> str:
    """Return the observation id if it is a ULID. Raises InvalidId."""
    if isinstance(id, str):
        try:
            return str(ulid.ULID.from_str(id))
        except ValueError:
            pass
    raise InvalidId(f"{field}: {shown(id)} is not an observation id; ids are ULIDs of 26 characters")


def check_memory_id(noun: str, id: object, field: str = "id", *other_nouns: str) -> str:
    """Return the id of a memory: a noun such as `note`, `_` and a number. Raises InvalidId."""
    nouns = "|".join((noun, *other_nouns))
    if not isinstance(id, str) or not re.fullmatch(rf"(?:{nouns})_[0-9]{{1,16}}", id):
        raise InvalidId(f"{field}: {shown(id)} is not the id of a {noun}; {noun} ids look like {noun}_1795256156929")
    return id


def delay_ms(value: object, field: str) -> int:
    """Return a delay in milliseconds, which may be 0. Raises InvalidTTL, for ``"never"`` too."""
    ms = None
    with suppress(InvalidTTL):
        ms = duration_ms(value, field, minimum=0)
    if ms is None:
        problem = f"{field}: {shown(value)} is not a time to wait"
        raise InvalidTTL(f'{problem}; use 0, a number of seconds, or a duration such as "500ms" or "2m"')
    return ms


def duration_ms(value: object, field: str = "ttl", *, minimum: int = 1) -> int | None:
    """Return a duration in milliseconds, None for ``"never"``. Raises InvalidTTL if it is shorter than `minimum` ms."""
    ms = duration_of(value, field, minimum=minimum)
    return None if isinstance(ms, str) else ms


def duration_seconds(value: object, field: str) -> float:
    """Return a duration in seconds, infinite for ``"never"``. Raises InvalidTTL."""
    ms = duration_ms(value, field)
    return inf if ms is None else ms / 1000


def duration_of(value: object, field: str = "ttl", *, minimum: int = 1) -> int | str:
    """Return a duration in milliseconds, or ``"never"``. Raises InvalidTTL if it is shorter than `minimum` ms."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text == NEVER:
            return NEVER
        parsed = read_duration(text)
        if parsed is None:
            raise _no_duration(value, field)
        ms = parsed
    elif isinstance(value, timedelta):
        ms = value / timedelta(milliseconds=1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        ms = value * 1000
    else:
        raise _no_duration(value, field)
    if not minimum <= ms <= _MAX_MS:
        raise _no_duration(value, field)
    return round(ms)


def _no_duration(value: object, field: str) -> InvalidTTL:
    return InvalidTTL(
        f"{field}: {shown(value)} is not a valid duration here; use a positive number of seconds,"
        ' "90s", "2h", "1h30m", "7d", or "never"'
    )


def duration_text(ms: int | None) -> str:
    """Return a duration as people write it: ``1h30m``, ``250ms``, ``never``."""
    if ms is None:
        return NEVER
    parts = []
    for unit in ("w", "d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def check_whole(field: str, value: object, minimum: int = 1, maximum: int = MAX_SAFE_INTEGER, advice: str = "") -> int:
    """Return a whole number within these bounds. Raises InvalidField, for True and False too."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidField(
            field,
            f"{shown(value)} is not a whole number from {minimum} to {maximum}" + (f"; {advice}" if advice else ""),
        )
    return int(value)


def check_confidence(value: object) -> float:
    """Return the confidence as a float from 0 to 1. Raises InvalidField, for NaN too."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise InvalidField("confidence", f"{shown(value)} is not a number from 0 to 1")


@lru_cache(maxsize=256)  # events of a batch have the same time
def moment(ms: int) -> datetime:
    """Return the UTC time of a millisecond count since the epoch, exactly."""
    return _EPOCH + ms * _MS


def time_of_position(ms: int) -> datetime:
    """Return the UTC time of a position's milliseconds; times after the year 9999 become its last millisecond."""
    return moment(min(ms, _LAST_MS))


def millis(at: datetime) -> int:
    """Return a time as milliseconds since the epoch; a naive time counts as UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - _EPOCH) // _MS
