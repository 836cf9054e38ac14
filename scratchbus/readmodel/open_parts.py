"""Read many open observations in parts, so that no other client of the engine waits long."""

from __future__ import annotations

from collections.abc import Callable

from scratchbus.engine.steps import Step
from scratchbus.eventlog.stored_documents import decode_stored
from scratchbus.projections.scratch_page import by_priority
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.query_result import QueryResult

PART = 800
"""The most open observations that one call reads: with 200 touched ones, as many documents as one command gets."""

ALL = 1_000_000_000
"""More than any page has."""


def read_more(
    query: Callable[..., Step[QueryResult]], count: int, result: QueryResult, found: list[AnyObservation]
) -> Step[tuple[QueryResult, list[AnyObservation]] | None]:
    """Read up to `count` open observations after the first part; return the last part, and what is stored of all.

    `query` is "active" on the page. With each part the engine returns what has changed in those before it, so together
    they are as consistent and as fresh as the last one. Returns None if too much has changed for that.
    """
    by_id = {each.id: each for each in found}
    last, walked = max(map(by_priority, found), default=(-ALL, 0)), PART
    while not result.is_end and walked < count:
        asked = min(PART, count - walked)
        result = yield from query(str(asked), *result.stored, "1", result.below, local_fold=result.local_fold)
        if result.changed is None:
            return None
        for id in result.changed:
            by_id.pop(id, None)
        part = decode_stored(result.rows)
        for each in (*decode_stored([*result.changed.values()]), *part):
            by_id[each.id] = each
        last, walked = max(map(by_priority, part), default=last), walked + asked
    merged = sorted(by_id.values(), key=by_priority)
    return result, merged if result.is_end else [each for each in merged if by_priority(each) <= last]
