"""Read a page: its stored documents, overlaid with those changed by events that are not folded yet.

A read takes the log's tail in the same round trip as the documents, so it sees every write acknowledged before it
began. If few events are not folded yet, they are folded in memory; if many, the reader folds and commits them as a
projector does, or also folds them in memory if it may not write.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from scratchbus.domain.checks import check_limit
from scratchbus.domain.memories import Remembered
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.schedule import unblocked
from scratchbus.engine.steps import Call, Pause, Step, ask
from scratchbus.errors import Behind, EngineForbidden, EngineReadOnly
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, check_end, read_checkpoint
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.eventlog.stored_documents import (
    UNREADABLE,
    decode_document,
    decode_observations,
    decode_row,
    decode_stored,
)
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Document, Store
from scratchbus.projections.scratch_page import by_priority, is_active
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.catch_up import fold_once, page_in
from scratchbus.readmodel.fold import Fold, needed
from scratchbus.readmodel.overlay import Overlay, fold_ahead
from scratchbus.readmodel.page_cache import NO_FOLD, NO_READ, CachedFold, CachedRead
from scratchbus.readmodel.query_script import query_script

KeysOf = Callable[[PageKeys], Iterable[str]]
"""Returns the sorted sets that a list of a page intersects; none for all observations."""

IN_MEMORY = 200
"""The most unfolded events that a reader folds in memory; if there are more, it commits what it folds."""

_ALL = 1_000_000
_id_of = attrgetter("id")
_LOOKS = 3  # for observations that are paged in meanwhile


class Look(NamedTuple):
    """A consistent read: the engine's time (ms), the stored documents found, and the fold of the events after them.

    `overlay` has the documents changed by these events, by subject; those of a kept fold are stored observations.
    `changed` has those that changed since a kept read, whose other documents were not read again. `stored` are the
    checkpoint and the tail as the engine stores them. `ahead` is passed to the next `look` of the same read, so that it
    need not fold the same events again.
    """

    now: int
    rows: Sequence[bytes | None]
    fold: Fold
    overlay: dict[str, Any]
    is_end: bool
    below: str
    checkpoint: Checkpoint
    changed: dict[str, bytes | None] | None
    stored: tuple[str, str]
    ahead: Overlay | None = None


class PastState(Protocol):
    """A moment of the past, restored by undoing the later events of a page."""

    ms: int

    def undo(self, log: Log, page: str, tail: Position) -> Step[Mapping[str, Observation | None]]:
        """Return the earlier state of all observations with events from then to the tail; None if absent then."""


class Freshness(NamedTuple):
    """How fresh a read must be; `timeout` (seconds) bounds the wait for a projection that is far behind."""

    stale_ok: bool = False
    timeout: float = 30.0


def look(
    log: Log,
    page: str,
    freshness: Freshness,
    operation: str,
    *arguments: object,
    store: Store = "docs",
    keys_of: KeysOf | None = None,
    ahead: Overlay | None = None,
    earlier: PastState | None = None,
    keeps: bool = False,
) -> Step[Look]:
    """Run the query script, folding what is missing until little of it is left. Raises Behind.

    `store` is the hash with the documents. A look that `keeps` its fold saves the next one from repeating it.
    """
    keys, deadline = log.page(page).keys, time.monotonic() + freshness.timeout
    shard, build = keys.shard, ahead.checkpoint.build if ahead else keys.build
    while True:
        names = keys.page(page, build)
        kept = keys.folds.get(page, NO_FOLD) if keeps and ahead is None else NO_FOLD
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
            most=-1 if freshness.stale_ok else IN_MEMORY,
            folded=ahead.at.stream_id if ahead else "",
            kept_checkpoint=kept.checkpoint,
            kept_tail=kept.tail if kept.rows is not None else "",
            operation=operation,
            of_type=names.of_type,
        )
        (reply,) = yield Call(shard, (command,))
        checkpoint = Checkpoint.parse(reply[2], shard)
        if checkpoint.build != build or (ahead is not None and ahead.checkpoint != checkpoint):
            build = keys.build = checkpoint.build
            ahead = None
            continue
        if reply[2] and not reply[1]:
            yield from read_checkpoint(keys)  # which raises if the log is empty, not if only its tail is lost
        elif freshness.stale_ok:
            _check_stale(page, freshness, checkpoint, reply)
        if reply[3] == -1:
            if time.monotonic() > deadline:
                raise _behind(page, freshness)
            ahead = yield from _fold_some(log, page, store, checkpoint, ahead)
            continue
        fold = ahead.fold if ahead else Fold(shard, store=store)
        if (yield from _fold_rest(log, page, checkpoint, fold, reply, kept, stale=freshness.stale_ok)):
            break
        ahead = None
    now, tail, row, entries, is_held, _, _, documents, is_end, *below = reply
    stored = text_of(row), text_of(tail)
    if ahead:
        ahead.at = end_of(tail, shard)
    overlay: dict[str, Any] = kept.documents(set(arguments) if operation == "get" else None) if is_held else {}
    for (_, subject), document in fold.documents.items():
        overlay[subject] = document
    if keeps and entries and ahead is None and not freshness.stale_ok and not checkpoint.is_paged:
        kept.keep(keys, page, *stored, fold, is_held=bool(is_held))
    if earlier is not None:
        now = earlier.ms
        overlay |= yield from earlier.undo(log, page, end_of(tail, shard))
    place = below[0].decode() if below and documents is not None else ""
    changed = None if documents is not None else dict(zip(map(text_of, below[0][::2]), below[0][1::2], strict=True))
    return Look(now, documents or (), fold, overlay, bool(is_end), place, checkpoint, changed, stored, ahead)


def _behind(page: str, freshness: Freshness) -> Behind:
    """Return the error for a projection that stays behind."""
    return Behind(
        f"page {page!r}: the projection is still behind after {freshness.timeout:g} s; start a projector"
        " (`scratchbus up`), or read with stale_ok=True"
    )


def _check_stale(page: str, freshness: Freshness, checkpoint: Checkpoint, reply: list[Any]) -> None:
    """Check the end of the log. Raises Behind if a stale read leaves out an event older than the timeout."""
    check_end(checkpoint, reply[1], None)
    now, since = reply[0], reply[3]
    if since and now - since > freshness.timeout * 1000:
        raise Behind(
            f"page {page!r}: the projection is {(now - since) / 1000:.1f} s old, over fresh_timeout;"
            " start a projector (`scratchbus up`), or read without stale_ok"
        )


def recollect(log: Log, page: str, subjects: Sequence[str], freshness: Freshness) -> Step[dict[str, Remembered]]:
    """Return the memories of a page with these subjects, by subject, without missing ones. Raises Behind."""
    seen = yield from look(log, page, freshness, "get", *subjects, store="memory")
    found: dict[str, Document | None] = {
        subject: decode_document(subject, row)
        for subject, row in zip(subjects, seen.rows, strict=True)
        if row and page not in seen.fold.emptied
    }
    found |= {subject: late for subject, late in seen.overlay.items() if subject in subjects}
    return {subject: document for subject, document in found.items() if isinstance(document, Remembered)}


def _fold_rest(
    log: Log, page: str, checkpoint: Checkpoint, fold: Fold, reply: list[Any], kept: CachedFold, *, stale: bool
) -> Step[bool]:
    """Fold the events that the script returned; return False if documents were paged in meanwhile."""
    entries, is_held, touched, rows = reply[3:7]
    held = kept.rows if is_held and kept.rows else {}
    for subject, row in zip(touched, rows, strict=True):
        key = page, text_of(subject)
        if key not in fold.documents:
            fold.load(key, held.get(key[1], row))
    items = decode_items([] if stale else entries, fold.shard)
    if checkpoint.is_paged and (yield from page_in(log, fold, needed(item for _, item in items), checkpoint.build)):
        key_now = yield from ask(fold.shard, "GET", log.keys(fold.shard).live)
        if Checkpoint.parse(key_now, fold.shard) != checkpoint:
            return False
    for entry, item in items:
        fold.apply(entry, item)
    return True


def _fold_some(
    log: Log, page: str, store: Store, checkpoint: Checkpoint, ahead: Overlay | None
) -> Step[Overlay | None]:
    """Fold some of the missing events and commit them; if that is forbidden, return their fold for this read alone."""
    if ahead is None:
        try:
            folded, _ = yield from fold_once(log, checkpoint.position.shard, checkpoint)
        except (EngineReadOnly, EngineForbidden):
            ahead = Overlay.of(checkpoint, store)
        else:
            if folded.outcome is not Outcome.DONE:
                yield Pause(random.uniform(0.001, 0.02))  # jitter: another projector is at work
            return None
    return ahead if (yield from fold_ahead(log, page, ahead)) else None


def get(
    log: Log, page: str, ids: list[str], freshness: Freshness, earlier: PastState | None = None
) -> Step[dict[str, Observation]]:
    """Return the observations with these ids, by id, without those that are not on the page."""
    for _ in range(_LOOKS):
        seen = yield from look(log, page, freshness, "get", *ids, earlier=earlier, keeps=True)
        found: dict[str, AnyObservation] = {document.id: document for document in decode_observations(seen.rows)}
        missing = [id for id in ids if id not in found and id not in seen.overlay]
        if not (missing and seen.checkpoint.is_paged):
            break
        shard = log.shard(page)
        names = log.keys(shard).page(page, seen.checkpoint.build)
        places = yield from paged_out.locate(log, names, shard, missing)
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
    """Return the open observations that are `wanted`, by priority, then newest first; by default the active ones.

    Leaves out those blocked by an open one. Raises InvalidField unless the limit is None or a positive whole number.
    """
    if limit is not None:
        check_limit(limit)
    want, ahead = -1 if limit is None else limit, None
    keys = log.page(page).keys
    while True:
        kept: CachedRead = NO_READ if freshness.stale_ok else keys.reads.get(page, NO_READ)
        seen = yield from look(
            log, page, freshness, "active", str(want), *kept.arguments(want), ahead=ahead, earlier=earlier, keeps=True
        )
        ahead, is_readable = seen.ahead, True
        if seen.changed is None:
            rows, is_end = [*filter(None, seen.rows)], seen.is_end
        else:
            rows, is_end = kept.updated(seen.changed), kept.is_end
        try:
            found: list[AnyObservation] = [*map(decode_row, rows)]
        except UNREADABLE:
            found, is_readable = [*decode_stored(rows)], False
        is_new = seen.changed is None or seen.stored != (kept.checkpoint, kept.tail)
        by_id = dict(zip(map(_id_of, found), rows, strict=is_readable)) if is_new else {}
        if seen.changed:
            found.sort(key=by_priority)
        if is_new and is_readable and ahead is None and not freshness.stale_ok:
            CachedRead(*seen.stored, want, {each.id: by_id[each.id] for each in found}, is_end).keep(keys, page)
        late = [document for document in seen.overlay.values() if document is not None]
        if late and not is_end:  # below the last one found, others may come first
            last = max(map(by_priority, found), default=(-_ALL, 0))
            late = [document for document in late if by_priority(document) <= last]
        merged = found
        if seen.overlay:
            first = [document for document in found if document.id not in seen.overlay]
            merged = sorted([*first, *late], key=by_priority)
        read = scratch_page.settled_all(merged, seen.now)
        out = list(filter(wanted, read))
        if any(each.blocked_by for each in out):
            if not is_end:  # a blocker may rank below those found
                want = -1
                continue
            out = unblocked(out, {each.id for each in read if each.status_class == "open"}.__contains__)
        if is_end or len(out) >= want:
            return [*map(scratch_page.as_observation, out if limit is None else out[:limit])]
        want = min(_ALL, want * 4)  # many were waiting for review: ask for more of them


def count_of_open(log: Log, page: str) -> Step[int]:
    """Return the number of open observations of a page, including expired ones that were not swept yet."""
    keys = log.keys(log.shard(page))
    return int((yield from ask(keys.shard, "ZCARD", keys.open(page))))


def read_head(log: Log, page: str, id: str) -> Step[Head | None]:
    """Return the head of a subject, None if it has none."""
    keys = log.keys(log.shard(page))
    row = yield from ask(keys.shard, "HGET", keys.heads(page), id)
    return Head.parse(row) if row else None
