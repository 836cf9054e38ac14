"""Parsers of command-line arguments: `key=value`, content from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from scratchbus.errors import InvalidField, shown


def pairs(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, Any] | None:
    """Return `key=value` options as an object; a value that is not JSON is text. Raises BadParameter."""
    if not texts:
        return None
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{shown(text)} is not KEY=VALUE", context, option)
        try:
            found[key] = _json_or_text(value)
        except RecursionError:
            raise click.BadParameter(f"{shown(key)} is nested too deeply", context, option) from None
    return found


def _json_or_text(text: str) -> Any:
    import json  # late, as all that `--help` does not need

    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def trigger(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, Any] | None:
    """Return the event that a reminder waits for: `type=T`, `status=S`, `tags=A,B`."""
    found = pairs(context, option, texts)
    if found is not None and isinstance(found.get("tags"), str):
        found["tags"] = found["tags"].split(",")
    return found


TIME = "14:02, yesterday, 'yesterday 14:02', 2h, '5 minutes ago', ISO 8601"
"""The forms of a past time, for help."""

FUTURE = "14:02, 'tomorrow 9:00', 2h, '5 minutes', ISO 8601"
"""The forms of a future time, for help."""


def content_of(text: str) -> str:
    """Return a text, or standard input for ``-``. Raises InvalidField unless that is UTF-8."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidField("content", "standard input is not UTF-8 text") from None
