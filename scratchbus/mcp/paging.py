"""Pages of a list of observations, and the cursors that lead from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scratchbus import Observation, Position
from scratchbus.errors import InvalidField, InvalidPosition, shown
from scratchbus.mcp.answers import ObservationList, page_of
from scratchbus.mcp.searching import search

MAX_CURSOR: Final = 30


def first(found: list[Observation], limit: int, cursor_of: Callable[[Observation], str]) -> ObservationList:
    """Return the first ones, and how many more there are, with the cursor that leads to them."""
    if len(found) <= limit:
        return page_of(found)
    return page_of(found[:limit], cursor_of(found[limit - 1]), len(found) - limit)


def ranked(text: str, candidates: list[Observation], cursor: str | None) -> list[Observation]:
    """Return the observations that match the words, best first; the cursor is the id of the last one shown."""
    found = search(text, candidates)
    if cursor is not None:
        start = next((index for index, each in enumerate(found, 1) if each.id == cursor), None)
        if start is None:
            raise no_cursor(cursor)
        found = found[start:]
    return found


def cursor_of(observation: Observation) -> str:
    """Return the cursor for the active observations after this one."""
    priority, seq = rank(observation)
    return f"{-priority}.{-seq}"


def rank(observation: Observation) -> tuple[int, int]:
    """Return the sort key of an active observation: by priority, then newest first."""
    return (-observation.priority, -observation.added_seq)


def rank_of(cursor: str) -> tuple[int, int]:
    """Return the sort key in a cursor of active observations. Raises InvalidField."""
    priority, _, seq = cursor.partition(".")
    if not (priority.isdecimal() and seq.isdecimal() and len(cursor) < MAX_CURSOR):
        raise no_cursor(cursor)
    return -int(priority), -int(seq)


def position_in(cursor: str) -> Position:
    """Return the position in a cursor of a list. Raises InvalidField."""
    try:
        return Position.parse(cursor)
    except InvalidPosition:
        raise no_cursor(cursor) from None


def no_cursor(cursor: str) -> InvalidField:
    """Return the error for a cursor that is not from this tool."""
    return InvalidField(
        "cursor", f"{shown(cursor)} is not a cursor from this tool; pass the next_cursor of its last answer"
    )
