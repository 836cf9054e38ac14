"""What is read of a page, each from one consistent look at it, or from several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scratchbus.domain.checks import check_limit
from scratchbus.domain.memories import Remembered
from scratchbus.domain.observation import Observation
from scratchbus.domain.schedule import unblocked
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.stored_documents import (
    UNREADABLE,
    decode_document,
    decode_observations,
    decode_row,
    decode_stored,
)
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Document
from scratchbus.projections.scratch_page import by_priority, is_active
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.look import Freshness, PastState, look

_ALL = 1_000_000
_LOOKS = 3  # for what is being paged in just then


def recollect(log: Log, page: str, subjects: Sequence[str], freshness: Freshness) -> Step[dict[str, Remembered]]:
    """Return what is remembered on a page under these subjects; what is not there is left out. Raises Behind."""
    seen = yield from look(log, page, freshness, "get", *subjects, store="memory")
    found: dict[str, Document | None] = {
        subject: decode_document(subject, row)
        for subject, row in zip(subjects, seen.rows, strict=True)
        if row and page not in seen.fold.emptied
    }
    found |= {subject: late for subject, late in seen.overlay.items() if subject in subjects}
    return {subject: document for subject, document in found.items() if isinstance(document, Remembered)}


def get(
    log: Log, page: str, ids: list[str], freshness: Freshness, earlier: PastState | None = None
) -> Step[dict[str, Observation]]:
    """Return the observations with these ids, by id; those that are not on the page are left out."""
    for _ in range(_LOOKS):
        seen = yield from look(log, page, freshness, "get", *ids, earlier=earlier, keeps=True)
        found: dict[str, AnyObservation] = {document.id: document for document in decode_observations(seen.rows)}
        missing = [id for id in ids if id not in found and id not in seen.overlay]
        if not (missing and seen.checkpoint.is_paged):
            break
        shard = log.shard(page)
        names = log.keys(shard).page(page, seen.checkpoint.build)
        places = yield from paged_out.locate(names, shard, missing)
        found |= {
            document.id: document for document in (yield from paged_out.rebuild(log, shard, list(places.values())))
        }
        if len(places) == len(missing) or (yield from read_checkpoint(log.keys(shard))) == seen.checkpoint:
            break  # else one of them may have been paged in meanwhile
    for id in ids:
        if id in seen.overlay:
            late = seen.overlay[id]
            if late is None:
                found.pop(id, None)
            else:
                found[id] = late
    return {id: scratch_page.settled(document, seen.now) for id, document in found.items()}


def active(
    log: Log,
    page: str,
    freshness: Freshness,
    limit: int | None,
    earlier: PastState | None = None,
    wanted: Callable[[AnyObservation], bool] = is_active,
) -> Step[list[Observation]]:
    """Return the open observations by priority, then newest first: those that do not wait for review, or all wanted.

    Leaves out what an open one blocks. Raises InvalidField unless the limit is None or a positive whole number.
    """
    if limit is not None:
        check_limit(limit)
    want, ahead = -1 if limit is None else limit, None
    while True:
        seen = yield from look(log, page, freshness, "active", str(want), ahead=ahead, earlier=earlier, keeps=True)
        ahead = seen.ahead
        try:
            found: Sequence[AnyObservation] = [*map(decode_row, filter(None, seen.rows))]
        except UNREADABLE:
            found = decode_stored(seen.rows)
        late = [document for document in seen.overlay.values() if document is not None]
        if late and not seen.is_end:  # what ranks below the last that was found may have others before it
            last = max(map(by_priority, found), default=(-_ALL, 0))
            late = [document for document in late if by_priority(document) <= last]
        merged = found
        if seen.overlay:
            first = [document for document in found if document.id not in seen.overlay]
            merged = sorted([*first, *late], key=by_priority)
        read = scratch_page.settled_all(merged, seen.now)
        out = list(filter(wanted, read))
        if any(each.blocked_by for each in out):
            if not seen.is_end:  # what blocks it may rank below what was found
                want = -1
                continue
            out = unblocked(out, {each.id for each in read if each.status_class == "open"}.__contains__)
        if seen.is_end or len(out) >= want:
            return [*map(scratch_page.whole, out if limit is None else out[:limit])]
        want = min(_ALL, want * 4)  # many were waiting for review: ask for more of them


def count_of_open(log: Log, page: str) -> Step[int]:
    """Return how many observations of a page are open, what has expired and was not swept yet among them."""
    keys = log.keys(log.shard(page))
    return int((yield from ask(keys.shard, "ZCARD", keys.open(page))))


def read_head(log: Log, page: str, id: str) -> Step[Head | None]:
    """Return what the append script knows of a subject, if it knows it."""
    keys = log.keys(log.shard(page))
    row = yield from ask(keys.shard, "HGET", keys.heads(page), id)
    return Head.parse(row) if row else None
