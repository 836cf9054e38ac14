"""Values as people write them on the command line: `key=value`, lengths of time and moments, content from a pipe."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import click

from scratchbus.errors import shown


def pairs(context: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, Any] | None:
    """Return `key=value` options as an object: values that are JSON are read as JSON, others are text."""
    if not given:
        return None
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{shown(text)} is not KEY=VALUE", context, option)
        found[key] = _json_or_text(value)
    return found


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def trigger(context: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, Any] | None:
    """Return what a reminder waits for: `type=T`, `status=S`, `tags=A,B`."""
    found = pairs(context, option, given)
    if found is not None and isinstance(found.get("tags"), str):
        found["tags"] = found["tags"].split(",")
    return found


TIMES = "14:02, yesterday 14:02, 10m or 10m ago, or ISO 8601 as 2026-01-31T12:00:00Z"
"""The times of the past that are understood, as errors and help say it."""

_CLOCK = re.compile(r"(?:(today|yesterday)(?: at)? +)?([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")


def past_moment(field: str, text: str) -> datetime:
    """Return a moment of the past: a length of time ago, a time by the clock here, ISO 8601. Raises InvalidField.

    A time without a day is the last one that there was; one in ISO 8601 without a zone counts as UTC.
    """
    from scratchbus.errors import InvalidField

    plain = " ".join(text.split())
    if match := _CLOCK.fullmatch(plain.lower()):
        return _by_the_clock(datetime.now().astimezone(), *match.groups())
    try:
        return moment(field, plain.removesuffix(" ago"), back=True)
    except InvalidField:
        raise InvalidField(field, f"{shown(text)} is not a time; write {TIMES}") from None


def _by_the_clock(now: datetime, day: str | None, hour: str, minute: str, second: str | None) -> datetime:
    date = now.date() - timedelta(days=day == "yesterday")
    then = datetime.combine(date, time(int(hour), int(minute), int(second or 0))).astimezone()
    if day is None and then > now:
        then = datetime.combine(date - timedelta(days=1), then.time()).astimezone()
    return then.astimezone(UTC)


def when(field: str, text: str) -> datetime | str:
    """Return a moment of the past, or the text of a position if it is one. Raises InvalidPosition."""
    from scratchbus.domain.position import Position
    from scratchbus.errors import InvalidField, InvalidPosition

    try:
        return past_moment(field, text)
    except InvalidField:
        pass
    try:
        Position.parse(text.partition(",")[0])
    except InvalidPosition:
        problem = f"{shown(text)} is not a position, a time or `now`; write {TIMES}, or a `position` from `tail --json`"
        raise InvalidPosition(f"{field}: {problem}") from None
    return text


def moment(field: str, text: str, *, back: bool = False) -> datetime:
    """Return a moment: ISO 8601, or a length of time from now, `back` into the past. Raises InvalidField."""
    from scratchbus.domain.checks import as_time
    from scratchbus.domain.values import duration_ms
    from scratchbus.errors import InvalidField, InvalidTTL

    try:
        ms = None if text.isdecimal() else duration_ms(text)
    except InvalidTTL:
        ms = None
    if ms is not None:
        away = timedelta(milliseconds=ms)
        return datetime.now(UTC) + (-away if back else away)
    try:
        return as_time(field, text)
    except InvalidField:
        problem = (
            f"{shown(text)} is not a time; write ISO 8601, as 2026-01-31T12:00:00Z, or a length of time, as 90s or 2h"
        )
        raise InvalidField(field, problem) from None


def content_of(text: str) -> str:
    """Return the content given: the text, or what comes through the pipe when it is ``-``. Raises InvalidField."""
    from scratchbus.errors import InvalidField

    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidField("content", "what came through the pipe is not UTF-8 text") from None
