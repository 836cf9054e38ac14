"""Count the observations of a page by its indexes and their heads, without transferring documents."""

from __future__ import annotations

from typing import Final

from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.stored_documents import decode_stored
from scratchbus.projections.filters import Filter
from scratchbus.projections.scratch_page import settled_all
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.open_parts import ALL
from scratchbus.readmodel.page_query import query_page

_COUNTABLE = frozenset(("type", "status", "owner", "tags"))
"""The filters that indexes and heads decide."""

_NOT_GIVEN: Final = (None, False)


def count_matches(
    log: Log, page: str, freshness: Freshness, wanted: Filter, limit: int | None, below: int | None
) -> Step[int | None]:
    """Return how many observations `search` finds; None if only their documents tell.

    That is the case with other filters, on a page with paged-out observations, and for a reader that may not commit.
    """
    if not _COUNTABLE.issuperset(name for name, value in wanted if value not in _NOT_GIVEN):
        return None
    statuses = "" if wanted.status is None else f",{','.join(wanted.status)},"
    total, bound, ceiling = 0, "" if below is None else str(below), below

    def keys_of(names: PageKeys) -> list[str]:
        return [names.index(*index) for index in wanted.indexes()]

    while limit is None or total < limit:
        enough = str(ALL if limit is None else limit - total)
        result = yield from query_page(log, page, freshness, "count", enough, bound, statuses, "", keys_of=keys_of)
        if result.checkpoint.is_paged or result.local_fold is not None:
            return None
        floor = int(float(result.below)) if result.below and not result.is_end else 0
        newer = [
            each
            for each in result.overlay.values()
            if each is not None and each.added_seq >= floor and (ceiling is None or each.added_seq < ceiling)
        ]
        stored = [each for each in decode_stored(result.rows) if each.id not in result.overlay]
        total += result.counted + sum(map(wanted.matches, settled_all([*stored, *newer], result.now)))
        if result.is_end:
            break
        bound, ceiling = result.below, floor
    return total if limit is None else min(total, limit)
