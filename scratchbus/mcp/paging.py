"""Searches in lists of notes and observations, pages of such lists, and the cursors that lead to the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import scratchbus
from scratchbus import Observation, Position
from scratchbus.errors import InvalidField, InvalidPosition, shown
from scratchbus.mcp.answers import ObservationList, page_of

MAX_CURSOR: Final = 30

Item = TypeVar("Item", "scratchbus.Note", "Observation")


def search(text: str, items: Sequence[Item]) -> list[Item]:
    """Return the items that have words of a text, best match first, then those that contain it literally.

    The words match in any order and grammatical form: "build main" finds "the builds fail on main". A text without
    words matches everything; equally good matches keep the given order.
    """
    if not text.strip():
        return list(items)
    ranks = {item.id: rank for rank, item in enumerate(items)}
    matches = sorted(
        scratchbus.rank_matches(text, items), key=lambda match: (-float(f"{match.score:.6g}"), ranks[match.item.id])
    )
    found = cast(list[Item], [match.item for match in matches])
    known = {item.id for item in found}
    lower = text.lower()
    return found + [item for item in items if item.id not in known and lower in item.content.lower()]


def first(found: list[Observation], limit: int, cursor_of: Callable[[Observation], str]) -> ObservationList:
    """Return the first ones, and how many more there are, with the cursor that leads to them."""
    if len(found) <= limit:
        return page_of(found)
    return page_of(found[:limit], cursor_of(found[limit - 1]), len(found) - limit)


def after_id(cursor: str | None, found: list[Item]) -> list[Item]:
    """Return those after the one whose id the cursor is, or all without one. Raises InvalidField."""
    if cursor is None:
        return found
    for index, each in enumerate(found, 1):
        if each.id == cursor:
            return found[index:]
    raise no_cursor(cursor)


def after_rank(cursor: str | None, active: list[Observation]) -> list[Observation]:
    """Return the active observations after a cursor made by `cursor_of`, or all without one. Raises InvalidField."""
    if cursor is None:
        return active
    priority, _, seq = cursor.partition(".")
    if not (priority.isdecimal() and seq.isdecimal() and len(cursor) < MAX_CURSOR):
        raise no_cursor(cursor)
    after = -int(priority), -int(seq)
    return [each for each in active if rank(each) > after]


def cursor_of(observation: Observation) -> str:
    """Return the cursor for the active observations after this one."""
    priority, seq = rank(observation)
    return f"{-priority}.{-seq}"


def rank(observation: Observation) -> tuple[int, int]:
    """Return the sort key of an active observation: by priority, then newest first."""
    return (-observation.priority, -observation.added_seq)


def position_in(cursor: str) -> Position:
    """Return the position in a cursor of a list. Raises InvalidField."""
    try:
        return Position.parse(cursor)
    except InvalidPosition:
        raise no_cursor(cursor) from None


def no_cursor(cursor: str) -> InvalidField:
    """Return the error for a cursor that is not from this tool."""
    return InvalidField(
        "cursor",
        f"{shown(cursor)} is not a cursor from this tool, or no longer leads on;"
        " pass the next_cursor of its last answer, or start again without a cursor",
    )
