"""Values as people write them on the command line: `key=value`, lengths of time and moments, content from a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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
