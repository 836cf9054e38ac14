"""Fold a page in memory beyond the checkpoint, for readers that may not commit."""

from __future__ import annotations

from dataclasses import dataclass

from scratchbus.domain.position import Position
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Pause, Step, ask_all
from scratchbus.errors import LogGap
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, checkpoint_key
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import CHUNK, LogReader
from scratchbus.eventlog.raw_entries import entry_fields, entry_position
from scratchbus.projections.projection import Store
from scratchbus.projections.subjects import projection_of
from scratchbus.readmodel.catch_up import fold_once, load_documents
from scratchbus.readmodel.commits import NO_COMMIT
from scratchbus.readmodel.fold import Fold, needed


@dataclass(slots=True)
class LocalFold:
    """The part of one page that a reader has folded by itself, and its position.

    It extends the documents of a checkpoint, and is invalid once the checkpoint has moved.
    """

    checkpoint: Checkpoint
    at: Position
    fold: Fold

    @classmethod
    def of(cls, checkpoint: Checkpoint, store: Store) -> LocalFold:
        """Begin at a checkpoint, with the documents of one store."""
        return cls(checkpoint, checkpoint.position, Fold(checkpoint.position.shard, store=store, is_shown=True))


def fold_or_commit(
    log: Log, page: str, store: Store, checkpoint: Checkpoint, local_fold: LocalFold | None
) -> Step[LocalFold | None]:
    """Fold some of the missing events and commit them; if that is refused, return their fold for this read alone.

    Raises LogGap if the log has lost its last events.
    """
    if local_fold is None:
        try:
            folded, now = yield from fold_once(log, checkpoint.position.shard, checkpoint)
        except NO_COMMIT:
            local_fold = LocalFold.of(checkpoint, store)
        else:
            if folded.outcome is not Outcome.DONE:
                yield Pause(JITTER.uniform(0.001, 0.02))  # jitter: another projector is at work
            elif now.position == checkpoint.position:
                yield from _check_tail(log.keys(now.position.shard), now.position)
            return None
    return local_fold if (yield from _fold_more(log, page, local_fold)) else None


def _check_tail(keys: ShardKeys, at: Position) -> Step[None]:
    """Raise LogGap if the log has no events after a position, and its tail is behind that."""
    tail, later = yield from ask_all(
        keys.shard, [("GET", keys.tail), ("XRANGE", keys.log, f"({at.stream_id}", "+", "COUNT", 1)]
    )
    if not later and (end := end_of(tail, keys.shard)) > at:
        raise LogGap(
            f"shard {keys.shard}: the log has lost its last events, from behind {at} to the tail, {end}; restore the"
            " engine from a backup, or add an observation: pages can then be read without the lost events"
        )


def _fold_more(log: Log, page: str, local_fold: LocalFold) -> Step[bool]:
    """Fold the page's events among the next thousand of the log; return whether the checkpoint is still the same."""
    shard, fold, name = local_fold.at.shard, local_fold.fold, page.encode()
    keys = log.keys(shard)
    entries = (yield from LogReader(log, local_fold.at, chunk=CHUNK).read()).entries
    if not entries:
        yield Pause(0.02)  # entries are missing at the end of the log; they may be on their way from a primary
        return True
    items = decode_items([entry for entry in entries if entry_fields(entry).get(b"page") == name], shard)
    subjects = needed(item for _, item in items if projection_of(item.subject).store == fold.store).get(page, [])
    new = [subject for subject in subjects if (page, subject) not in fold.documents]
    key = checkpoint_key(keys)
    if not (yield from load_documents(log, fold, {page: new} if new else {}, local_fold.checkpoint, key)):
        return False
    for entry, item in items:
        fold.apply(entry, item)
    local_fold.at = entry_position(entries[-1], shard)
    return True
