"""Word search: notes and observations that match a question, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import scratchbus

if TYPE_CHECKING:
    from scratchbus import Note, Observation


Item = TypeVar("Item", "Note", "Observation")


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
