"""Query a page: its stored documents, overlaid with those changed by events that are not folded yet.

A query takes the log's tail in the same round trip as the documents, so it sees every write acknowledged before it
began. If few events are not folded yet, they are folded in memory; if many, the reader folds and commits them as a
projector does, or also folds them in memory if it may not write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from scratchbus.domain.checks import check_limit
from scratchbus.domain.observation import Observation
from scratchbus.domain.schedule import unblocked
from scratchbus.engine.steps import Call, Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, read_checkpoint, read_unchecked
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.eventlog.stored_documents import UNREADABLE, decode_row, decode_stored, encode_document
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Store
from scratchbus.projections.scratch_page import by_priority, is_active
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.fold import Fold, needed
from scratchbus.readmodel.freshness import Freshness, behind, check_stale
from scratchbus.readmodel.local_fold import LocalFold, fold_or_commit
from scratchbus.readmodel.open_parts import ALL, PART, read_more
from scratchbus.readmodel.page_cache import MAX_BYTES, MAX_FOLDS, MAX_READS, NO_FOLD, NO_READ, CachedFold, CachedRead
from scratchbus.readmodel.paging_in import page_in
from scratchbus.readmodel.query_result import PastState, QueryResult
from scratchbus.readmodel.query_script import query_script

KeysOf = Callable[[PageKeys], Iterable[str]]
"""Returns the sorted sets that a list of a page intersects; none for all observations."""

IN_MEMORY = 200
"""The most unfolded events that a reader folds in memory; if there are more, it commits what it folds."""

_id_of = attrgetter("id")
_blockers_of = attrgetter("blocked_by")


def query_page(
    log: Log,
    page: str,
    freshness: Freshness,
    operation: str,
    *arguments: object,
    store: Store = "docs",
    keys_of: KeysOf | None = None,
    local_fold: LocalFold | None = None,
    earlier: PastState | None = None,
    caches_fold: bool = False,
) -> Step[QueryResult]:
    """Run the query script, folding what is missing until little of it is left. Raises Behind.

    `store` is the hash with the documents. A query that `caches_fold` saves the next one from repeating it.
    """
    keys, deadline = log.page(page).keys, time.monotonic() + freshness.timeout
    shard, build = keys.shard, local_fold.checkpoint.build if local_fold else keys.build
    while True:
        names = keys.page(page, build)
        cached = keys.cached_folds.get(page, NO_FOLD) if caches_fold and local_fold is None else NO_FOLD
        command = query_script(
            *arguments,
            tail=keys.tail,
            checkpoint=keys.live,
            log=keys.log,
            docs=getattr(names, store),
            heads=names.heads,
            open=names.open,
            types=names.types,
            sets=tuple(keys_of(names)) if keys_of is not None else (),
            page=page,
            max_behind=-1 if freshness.stale_ok else IN_MEMORY,
            folded=local_fold.at.stream_id if local_fold else "",
            cached_checkpoint=cached.checkpoint,
            cached_tail=cached.tail if cached.rows is not None else "",
            operation=operation,
            of_type=names.of_type,
        )
        (reply,) = yield Call(shard, (command,))
        checkpoint = Checkpoint.parse(reply[2], shard)
        if checkpoint.build != build or (local_fold is not None and local_fold.checkpoint != checkpoint):
            build = keys.build = checkpoint.build
            local_fold = None
            continue
        if freshness.stale_ok or reply[3] == -1 or not reply[1]:
            yield from _check_log(keys, page, freshness, deadline, checkpoint, reply)
        if reply[3] == -1:
            local_fold = yield from fold_or_commit(log, page, store, checkpoint, local_fold)
            continue
        fold = local_fold.fold if local_fold else Fold(shard, store=store)
        if (yield from _fold_events(log, page, checkpoint, fold, reply, cached, stale=freshness.stale_ok)):
            break
        local_fold = None
    now, tail, row, _, _, _, _, documents, is_end, *extra = reply
    stored = text_of(row), text_of(tail)
    if local_fold:
        local_fold.at = end_of(tail, shard)
    caches = caches_fold and local_fold is None and not freshness.stale_ok and not checkpoint.is_paged
    overlay = _overlay(keys, page, cached, reply, fold, arguments if operation == "get" else None, caches=caches)
    if earlier is not None:
        now = earlier.ms
        overlay |= yield from earlier.undo(log, page, end_of(tail, shard))
    below = text_of(extra[-1]) if extra else ""
    changes = extra[0] if operation == "active" else None
    changed = None if changes is None else dict(zip(map(text_of, changes[::2]), changes[1::2], strict=True))
    return QueryResult(
        now, documents or (), fold, overlay, bool(is_end), below, checkpoint, changed, stored, local_fold
    )


def _check_log(
    keys: ShardKeys, page: str, freshness: Freshness, deadline: float, checkpoint: Checkpoint, reply: list[Any]
) -> Step[None]:
    """Raise an error if the log is empty, or if the documents are, and stay, too old for this read."""
    if reply[2] and not reply[1]:
        yield from read_checkpoint(keys)  # which raises if the log is empty, not if only its tail is lost
    elif freshness.stale_ok:
        check_stale(page, freshness, checkpoint, reply)
    if reply[3] == -1 and time.monotonic() > deadline:
        raise behind(page, freshness)


def _fold_events(
    log: Log, page: str, checkpoint: Checkpoint, fold: Fold, reply: list[Any], cached: CachedFold, *, stale: bool
) -> Step[bool]:
    """Fold the events that the script returned; return False if documents were paged in meanwhile."""
    entries, extends_cached, touched, rows = reply[3:7]
    cached_rows = cached.rows if extends_cached and cached.rows else {}
    for subject, row in zip(touched, rows, strict=True):
        key = page, text_of(subject)
        if key not in fold.documents:
            fold.load(key, cached_rows.get(key[1], row))
    items = decode_items([] if stale else entries, fold.shard)
    if (
        checkpoint.is_paged
        and (yield from page_in(log, fold, needed(item for _, item in items), checkpoint.build))
        and (yield from read_unchecked(log.keys(fold.shard))) != checkpoint
    ):
        return False
    for entry, item in items:
        fold.apply(entry, item)
    return True


def _overlay(
    keys: ShardKeys,
    page: str,
    cached: CachedFold,
    reply: list[Any],
    fold: Fold,
    wanted: Collection[object] | None,
    *,
    caches: bool,
) -> dict[str, Any]:
    """Return the documents of a fold, on top of those of the cached one that are `wanted`, None for all.

    If it `caches`, the next read is given both, or only their position if this is the first read at its checkpoint.
    """
    tail, checkpoint, entries, extends_cached = reply[1:5]
    overlay: dict[str, Any] = cached.documents(wanted) if extends_cached else {}
    for (_, subject), document in fold.documents.items():
        overlay[subject] = document
    if not (caches and entries):
        return overlay
    folds, stored = keys.cached_folds, text_of(checkpoint)
    if not extends_cached and (not cached.tail or cached.checkpoint != stored):
        if len(folds) >= MAX_FOLDS:
            folds.clear()
        folds[page] = CachedFold(stored, text_of(tail))
        return overlay
    rows = dict(cached.rows) if extends_cached and cached.rows else {}
    for (_, subject), document in fold.documents.items():
        rows[subject] = None if document is None else encode_document(document)
    is_large = sum(map(len, filter(None, rows.values()))) > MAX_BYTES
    folds[page] = NO_FOLD if is_large else CachedFold(stored, text_of(tail), rows)
    return overlay


def active(
    log: Log,
    page: str,
    freshness: Freshness,
    limit: int | None,
    earlier: PastState | None = None,
    wanted: Callable[[AnyObservation], bool] = is_active,
) -> Step[list[Observation]]:
    """Return the open observations that are `wanted`, by priority, then newest first; by default the active ones.

    Leaves out those blocked by an open one. Raises InvalidField unless the limit is None or a positive whole number.
    """
    if limit is not None:
        check_limit(limit)
    count, local_fold = limit or ALL, None
    at_once = ALL if freshness.stale_ok else PART  # parts do not tell what closed between them without being folded
    keys = log.page(page).keys
    query = partial(query_page, log, page, freshness, "active", earlier=earlier, caches_fold=True)
    while True:
        asked = min(count, at_once)
        cached: CachedRead = NO_READ if freshness.stale_ok else keys.cached_reads.get(page, NO_READ)
        known = (cached.checkpoint, cached.tail, "1" if cached.is_end else "")
        if not cached.is_end and (cached.limit != asked or asked < count):
            known = "", "", ""
        result = yield from query(str(asked), *known, local_fold=local_fold)
        local_fold = result.local_fold
        is_end = result.is_end if result.changed is None else cached.is_end
        may_cache = local_fold is None and not freshness.stale_ok and (is_end or asked == count)
        found = _decode_open(keys, page, asked, result, cached, may_cache=may_cache)
        if not is_end and asked < count:
            parts = yield from read_more(query, count, result, found)
            if parts is None:
                at_once = ALL
                continue
            result, found = parts
            local_fold, is_end = result.local_fold, result.is_end
        if result.overlay:
            found = _merge(found, result.overlay, is_end=is_end)
        settled = scratch_page.settled_all(found, result.now)
        selected = list(filter(wanted, settled))
        if any(map(_blockers_of, selected)):
            if not is_end:  # a blocker may rank below those found
                count = ALL
                continue
            open_ids = {each.id for each in settled if each.status_class == "open"}
            selected = [*unblocked(selected, open_ids.__contains__)]
        if is_end or limit is None or len(selected) >= limit:
            return [*map(scratch_page.as_observation, selected if limit is None else selected[:limit])]
        count = min(ALL, count * 4)  # many were waiting for review: ask for more of them


def _decode_open(
    keys: ShardKeys, page: str, limit: int, result: QueryResult, cached: CachedRead, *, may_cache: bool
) -> list[AnyObservation]:
    """Return the stored open observations that a query found, or that have not changed since the cached read, in order.

    Caches them for the next read of the page, unless they are those cached, or too large.
    """
    changed = result.changed
    rows = [*filter(None, result.rows if changed is None else {**cached.rows, **changed}.values())]
    try:
        found: list[AnyObservation] = [*map(decode_row, rows)]
    except UNREADABLE:
        found, may_cache = [*decode_stored(rows)], False
    ids = [*map(_id_of, found)]
    if changed:
        found.sort(key=by_priority)
    if may_cache and (changed is None or result.stored != (cached.checkpoint, cached.tail)):
        if page not in keys.cached_reads and len(keys.cached_reads) >= MAX_READS:
            keys.cached_reads.clear()
        in_order = dict.fromkeys(map(_id_of, found), b"") | dict(zip(ids, rows, strict=True))
        is_end = result.is_end if changed is None else cached.is_end
        is_large = sum(map(len, rows)) > MAX_BYTES
        keys.cached_reads[page] = NO_READ if is_large else CachedRead(*result.stored, limit, in_order, is_end)
    return found


def _merge(found: list[AnyObservation], overlay: dict[str, Any], *, is_end: bool) -> list[AnyObservation]:
    """Return stored open observations with those that newer events have changed, in order."""
    by_id = dict(zip(map(_id_of, found), found, strict=True)) | overlay
    merged = sorted(filter(None, by_id.values()), key=by_priority)
    if is_end:
        return merged
    last = max(map(by_priority, found), default=(-ALL, 0))  # below it, others may come first
    return [document for document in merged if by_priority(document) <= last]
