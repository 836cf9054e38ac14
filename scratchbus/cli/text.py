"""Short texts for people: ages, durations, ids, counts, and any text on one line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import scratchbus
from scratchbus.cli.output import Cell

SHORT = 8
"""The length of the end of an id that people are shown; the end is random."""

_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60

TODO_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
"""The marks of the statuses of todo items."""

STATUS_STYLES = {"pending_review": "yellow", "resolved": "green", "archived": "dim"}
"""The colours of statuses; the others have none."""


def short(id: str) -> str:
    """Return the end of an id, which people read and type."""
    return id[-SHORT:]


def id_cell(id: str) -> Cell:
    """Return an id: whole in a pipe; on a terminal its end, unless it is a word, like a note's id."""
    return Cell(id, "bold", None if id[:1] > "Z" else short(id))


def type_style(priority: int) -> str:
    """Return the colour of a type by its priority: the more urgent, the warmer."""
    for min_priority, style in ((80, "bold red"), (60, "yellow"), (40, "cyan")):
        if priority >= min_priority:
            return style
    return "blue"


def span(seconds: float) -> str:
    """Return a duration in one unit: ``now``, ``45s``, ``3m``, ``26h``, ``7d``."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 1.98 * size:
            return f"{round(seconds / size)}{unit}"
    return f"{round(seconds)}s" if seconds >= 1 else "now"


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago a time was."""
    return span((now - then).total_seconds())


def ahead(then: datetime | None, now: datetime) -> str:
    """Return how long it is until a time; nothing for None."""
    return "" if then is None else span((then - now).total_seconds())


def clock(then: datetime, now: datetime) -> str:
    """Return a time in the local time zone, with its date if that is not today's."""
    local, today = then.astimezone(), now.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"


def one_line(text: str) -> str:
    """Return a text on one line, with a mark for each character that a terminal would obey or hide."""
    return scratchbus.visible(" ".join(text.split()))


def compact(value: Any) -> str:
    """Return a JSON value on one line."""
    import json  # late, as all that `--help` does not need

    return one_line(json.dumps(value, ensure_ascii=False))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 event``, ``2 events``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
