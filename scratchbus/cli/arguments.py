"""Parsers of command-line arguments: `key=value`, durations, times, positions, content from a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import click

import scratchbus
from scratchbus.errors import InvalidField, InvalidPosition, InvalidTTL, shown


def pairs(context: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, Any] | None:
    """Return `key=value` options as an object; a value that is not JSON is text. Raises BadParameter."""
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
    import json  # late, as all that `--help` does not need

    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def trigger(context: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, Any] | None:
    """Return the event that a reminder waits for: `type=T`, `status=S`, `tags=A,B`."""
    found = pairs(context, option, given)
    if found is not None and isinstance(found.get("tags"), str):
        found["tags"] = found["tags"].split(",")
    return found


TIMES = "14:02, yesterday 14:02, 10m or 10m ago, or ISO 8601 as 2026-01-31T12:00:00Z"
"""The forms of a time in the past, for errors."""

_CLOCK = r"(?:(today|yesterday)(?: at)? +)?([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?"


def past_moment(field: str, text: str) -> datetime:
    """Return a time in the past: a duration ago, a local clock time, or ISO 8601. Raises InvalidField.

    A clock time without a day is the most recent one. ISO 8601 without a zone is UTC.
    """
    plain = " ".join(text.split())
    if match := re.fullmatch(_CLOCK, plain.lower()):
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


def time_or_position(field: str, text: str) -> datetime | str:
    """Return a time in the past, or the text of a position unchanged. Raises InvalidPosition."""
    try:
        return past_moment(field, text)
    except InvalidField:
        pass
    try:
        scratchbus.Position.parse(text.partition(",")[0])
    except InvalidPosition:
        problem = f"{shown(text)} is not a position, a time or `now`; write {TIMES}, or a `position` from `tail --json`"
        raise InvalidPosition(f"{field}: {problem}") from None
    return text


def moment(field: str, text: str, *, back: bool = False) -> datetime:
    """Return a time: ISO 8601 (UTC without a zone), or a duration from now, or ago if `back`. Raises InvalidField."""
    try:
        ms = None if text.isdecimal() else scratchbus.duration_ms(text)
    except InvalidTTL:
        ms = None
    if ms is not None:
        away = timedelta(milliseconds=ms)
        return datetime.now(UTC) + (-away if back else away)
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{shown(text)} is not a time; write ISO 8601, as 2026-01-31T12:00:00Z, or a duration, as 90s or 2h"
        raise InvalidField(field, problem) from None
    return then if then.tzinfo else then.replace(tzinfo=UTC)


def content_of(text: str) -> str:
    """Return a text, or standard input for ``-``. Raises InvalidField unless that is UTF-8."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidField("content", "standard input is not UTF-8 text") from None
