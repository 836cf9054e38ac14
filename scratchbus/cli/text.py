"""How the command line says things to people: short, on one line, and nothing that a terminal would obey."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

SHORT = 8
"""How many characters of an id people are shown: its last ones, which are random."""

_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60

TODO_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
"""How the statuses of a todo list are shown."""


def short(id: str) -> str:
    """Return the end of an id, as people read it."""
    return id[-SHORT:]


def span(seconds: float) -> str:
    """Return a length of time in one unit: ``now``, ``45s``, ``3m``, ``26h``, ``7d``."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 1.98 * size:
            return f"{round(seconds / size)}{unit}"
    return f"{round(seconds)}s" if seconds >= 1 else "now"


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago a moment was."""
    return span((now - then).total_seconds())


def ahead(then: datetime | None, now: datetime) -> str:
    """Return how far ahead a moment is; nothing for one that never comes."""
    return "" if then is None else span((then - now).total_seconds())


def clock(then: datetime, now: datetime) -> str:
    """Return a moment by the clock on this machine's wall, with the date when it was another day."""
    here, today = then.astimezone(), now.astimezone()
    return f"{here:%H:%M:%S}" if here.date() == today.date() else f"{here:%Y-%m-%d %H:%M}"


def one_line(text: str) -> str:
    """Return a text on one line, with a mark for each character that is not for reading."""
    return "".join(char if char.isprintable() else "�" for char in " ".join(text.split()))


def paragraphs(text: str) -> str:
    """Return a text with its line breaks, but without any other character that is not for reading."""
    lines = (line.expandtabs(4) for line in text.splitlines())
    return "\n".join("".join(char if char.isprintable() else "�" for char in line) for line in lines)


def compact(value: Any) -> str:
    """Return a JSON value on one line."""
    return one_line(json.dumps(value, ensure_ascii=False))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 event``, ``2 events``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
