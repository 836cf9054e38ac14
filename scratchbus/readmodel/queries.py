"""Reading a page: what is folded, with what is not folded yet laid over it.

A read takes the log's tail in the same round trip as what it asks for, so it sees every write acknowledged before it
began. When few events are not folded yet, they are folded in memory; when many, the reader folds and commits as a
projector does, or in memory all the same where it may not write.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from scratchbus.domain.checks import check_limit
from scratchbus.domain.memories import Remembered
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.schedule import unblocked
from scratchbus.engine.scripts import Key, Keys, lua_script
from scratchbus.engine.steps import Call, Pause, Step, ask
from scratchbus.errors import Behind, EngineForbidden, EngineReadOnly
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, check_end, read_checkpoint
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import LUA, Head
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
from scratchbus.readmodel.kept_folds import MOST_PAGES, NOTHING, KeptFold, Rows
from scratchbus.readmodel.kept_reads import MOST_BYTES, MOST_READS, NO_READ, KeptRead
from scratchbus.readmodel.overlay import Overlay, fold_ahead


@lua_script("eventlog/clock", "eventlog/entries", "readmodel/query", only_reads=True, constants=LUA)
def _query(
    *arguments: object,
    tail: Key,
    checkpoint: Key,
    log: Key,
    docs: Key,
    heads: Key,
    open: Key,
    types: Key,
    sets: Keys,
    page: str,
    most: int,
    folded: str,
    kept_checkpoint: str,
    kept_tail: str,
    operation: str,
    of_type: str,
) -> None:
    """Look at a page, and at up to `most` events behind the stream id `folded`, or behind the checkpoint when it is "".

    On top of `kept_checkpoint` the events up to `kept_tail`, unless it is "", need not be returned.

    The operations and their arguments: "get", ids; "active", how many (-1: all), and the `state` of a kept read, whose
    documents need not be returned; "list", at least how many, below which seq ("" from the newest), statuses (",a,b,"
    or ""), and a text that the document must contain ("" any). `open` is the sorted set that "active" walks, `sets` are
    those that "list" intersects; without any it walks those of all `types`, whose names begin with `of_type`.
    """


KeysOf = Callable[[PageKeys], Iterable[str]]
"""Returns the sorted sets of a page that a list walks; none for all observations."""

IN_MEMORY = 200
"""With more unfolded events than this, a reader commits what it folds."""

_ALL = 1_000_000
_LOOKS = 3  # for what is being paged in just then


class Look(NamedTuple):
    """One consistent look: the time of the engine, the stored documents that were found, and those since folded again.

    `overlay` has the documents, by subject, that events came for since. `state` is the checkpoint and the tail, as the
    engine stores them. `ahead` is given to the next look of the same read, so that it need not fold the same again.
    """

    now: int
    rows: Sequence[bytes | None]
    fold: Fold
    overlay: dict[str, Any]
    is_end: bool
    below: str
    checkpoint: Checkpoint
    state: str
    ahead: Overlay | None = None


class PastState(Protocol):
    """A moment of the past, told by what has become of a page since."""

    ms: int

    def undo(self, log: Log, page: str, tail: Position) -> Step[Mapping[str, Observation | None]]:
        """Return, as they were, all that had events since then, up to this end of the log; None for what was not."""


class Freshness(NamedTuple):
    """How fresh a read has to be; `timeout` (seconds) bounds the wait for a projection that is far behind."""

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
    had: KeptRead = NO_READ,
) -> Step[Look]:
    """Ask the query script once, or again after folding what is missing; as it was `earlier`, if so. Raises Behind.

    `store` is the hash of the page that has the documents. One that `keeps` what it folds need not fold it again; what
    it kept before is then in the overlay in the form in which it is stored. `had` are documents that it kept.
    """
    keys = log.page(page).keys
    shard, most = keys.shard, -1 if freshness.stale_ok else IN_MEMORY
    build, deadline = ahead.checkpoint.build if ahead else keys.build, time.monotonic() + freshness.timeout
    while True:
        names = keys.page(page, build)
        kept = keys.folds.get(page, NOTHING) if keeps and ahead is None else NOTHING
        command = _query(
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
            most=most,
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
            check_end(checkpoint, reply[1], None)
        if reply[3] != -1:
            fold = ahead.fold if ahead else Fold(shard, store=store)
            is_held = bool(reply[4])
            rows = kept.rows if is_held and kept.rows else {}
            if (yield from _fold_rest(log, page, checkpoint, fold, reply, rows, stale=freshness.stale_ok)):
                break
            ahead = None
            continue
        if time.monotonic() > deadline:
            raise Behind(
                f"page {page!r}: the projection is still behind after {freshness.timeout:g} s; start a projector"
                " (`scratchbus up`), or read with stale_ok=True"
            )
        ahead = yield from _fold_some(log, page, store, checkpoint, ahead)
    if freshness.stale_ok:
        _check_age(page, freshness, reply)
    now, tail, row, entries, _, _, _, documents, is_end, *below = reply
    if documents is None:
        documents, is_end = had.rows, had.is_end
    if ahead:
        ahead.at = end_of(tail, shard)
    asked = set(arguments) if operation == "get" else None
    overlay: dict[str, Any] = dict(kept.documents(asked)) if is_held else {}
    overlay |= {subject: document for (_, subject), document in fold.documents.items()}
    if keeps and entries and ahead is None and not freshness.stale_ok and not checkpoint.is_paged:
        folded = text_of(row)
        if is_held or (kept.tail and kept.checkpoint == folded):
            kept.keep(keys, page, text_of(tail), fold, is_held=is_held)
        else:
            if len(keys.folds) >= MOST_PAGES:
                keys.folds.clear()
            keys.folds[page] = KeptFold(folded, text_of(tail))
    if earlier is not None:
        now = earlier.ms
        overlay |= yield from earlier.undo(log, page, end_of(tail, shard))
    place, state = below[0].decode() if below else "", f"{text_of(row)} {text_of(tail)}"
    return Look(now, documents, fold, overlay, bool(is_end), place, checkpoint, state, ahead)


def _check_age(page: str, freshness: Freshness, reply: list[Any]) -> None:
    """Raise Behind for a stale read that leaves out an event from before the time that it may be behind."""
    now, since = reply[0], reply[3]
    if since and now - since > freshness.timeout * 1000:
        raise Behind(
            f"page {page!r}: the projection is {(now - since) / 1000:.1f} s old, over fresh_timeout;"
            " start a projector (`scratchbus up`), or read without stale_ok"
        )


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


def _fold_rest(
    log: Log, page: str, checkpoint: Checkpoint, fold: Fold, reply: list[Any], kept: Rows, *, stale: bool
) -> Step[bool]:
    """Fold what a look found behind the checkpoint, or behind what is kept.

    Return whether it holds, or something was paged in meanwhile.
    """
    entries, touched, rows = [] if stale else reply[3], reply[5], reply[6]
    for subject, row in zip(touched, rows, strict=True):
        key = page, text_of(subject)
        if key not in fold.documents:
            fold.load(key, kept.get(key[1], row))
    items = decode_items(entries, fold.shard)
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
    """Fold some of what is missing: for all, or where that is forbidden for this read alone, which is returned."""
    if ahead is None:
        try:
            folded, _ = yield from fold_once(log, checkpoint.position.shard, checkpoint)
        except (EngineReadOnly, EngineForbidden):
            ahead = Overlay.of(checkpoint, store)
        else:
            if folded.outcome is not Outcome.DONE:
                yield Pause(random.uniform(0.001, 0.02))  # jitter: another projector is at it
            return None
    return ahead if (yield from fold_ahead(log, page, ahead)) else None


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
    reads = log.page(page).keys.reads
    while True:
        kept: KeptRead = reads.get(page, NO_READ)
        arguments = str(want), kept.state if kept.limit == want and not freshness.stale_ok else ""
        seen = yield from look(
            log, page, freshness, "active", *arguments, ahead=ahead, earlier=earlier, keeps=True, had=kept
        )
        ahead = seen.ahead
        if ahead is None and not freshness.stale_ok:
            is_large = sum(map(len, filter(None, seen.rows))) > MOST_BYTES
            if page not in reads and len(reads) >= MOST_READS:
                reads.clear()
            reads[page] = NO_READ if is_large else KeptRead(seen.state, want, seen.rows, seen.is_end)
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
