"""Retries of a write whose reply was lost: find its events in the log, or in the archive."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from pydantic_core import from_json

from scratchbus.domain.event import Event
from scratchbus.domain.page_events import Updated
from scratchbus.domain.position import Position
from scratchbus.engine.retry_limits import backoff
from scratchbus.engine.steps import Pause, Step, ask_all
from scratchbus.errors import (
    ArchiveError,
    BusClosed,
    EngineError,
    EngineLoading,
    EngineUnreachable,
    EventIdReused,
    LogError,
    LogRewound,
    ScratchbusError,
)
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import Poison, decode_entry
from scratchbus.eventlog.cursor import MAX_CLOCK_SKEW_MS
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position, index_in_batch
from scratchbus.eventlog.refusals import reused_in_part
from scratchbus.eventlog.writes import Op, Write

_DECIDED: Mapping[str, set[str]] = {
    "added": {"priority", "status_class"},
    "status_changed": {"status_class", "archive_after", "ttl", "chain", "seen_by", "followed"},
    "claimed": {"owner"},
    "erased": {"positions", "version"},
    "todo_written": {"todos", "merge"},
    "notepad_edited": {"content"},
    "context_rendered": {"observations", "tokens"},
}
"""The fields of each kind of event that do not depend on the arguments alone; those of `Event` are not compared.

Edits of memories are decided again to compare the rest (`commands/memory.py`). A context is put together again by each
retry, from the current state.
"""

_BATCHES = {Op.ADD, Op.CLEAR, Op.UPDATE, Op.CHANGE_STATUS}  # each from a single caller

_UNNAMED = {Op.ADD, Op.PICK}  # the caller does not name the observation

_INTERRUPTIONS = EngineError, LogError, ArchiveError, BusClosed
"""The errors of a search that say how to retry the write."""


def _is_wanted(entry: RawEntry, wanted: Mapping[bytes, str | None]) -> bool:
    """Return whether an entry has one of these event ids and its writer; any writer for None."""
    fields = entry_fields(entry)
    id = fields.get(b"id", b"")
    return id in wanted and (wanted[id] is None or _writer_of(fields) == wanted[id])


def is_of(entry: RawEntry, event_id: bytes, who: bytes) -> bool:
    """Return whether an entry has an event id and, unless that is empty, this writer, as JSON."""
    return _is_wanted(entry, {event_id: from_json(who) if who else None})


def _writer_of(fields: Mapping[bytes, bytes]) -> object:
    try:
        return from_json(fields[b"event"]).get("by")
    except (ValueError, LookupError, AttributeError):
        return None  # not an event


def search_log(
    log: Log, shard: int, after: str, writes: Sequence[Write], *, is_in_doubt: bool = False
) -> Step[tuple[str, list[RawEntry]]]:
    """Search the log after a stream id until it ends or has an event of these writes.

    Returns where the script continues, and the events that only the archive has. A log without that id, because another
    server took over, is read from its start. A log with it is read from the first event of that millisecond: while
    the clock of a server that took over is behind, all its events have the same one, and the id may belong to another.
    An id that is not in the archive where it would have to be is of another shard: then the log is read from that time.
    So is a log without that id if the wanted ids derive from that of an event which may be on another shard.
    Raises PositionLost if the archive cannot be read, or EngineUnreachable; neither for a write that `is_in_doubt`, for
    which the part of the log read so far may suffice.
    """
    wanted = {write.event.id.encode(): write.event.by if write.digest else None for write in writes}
    reader = LogReader(log, Position.parse(after)._replace(shard=shard), skips_lost=is_in_doubt)
    first = reader.at._replace(seq=0)
    is_derived = all(b"/" in id for id in wanted)
    probe: tuple[object, ...] | None = ("XREVRANGE", log.keys(shard).log, after, first.stream_id, "COUNT", 2)
    archived: list[RawEntry] = []
    try:
        while True:
            at = reader.at
            try:
                chunk = yield from reader.read(*([probe] if probe is not None else []))
            except LogRewound:
                if not at.seq:
                    raise
                skew = MAX_CLOCK_SKEW_MS if log.is_spread else 0
                reader.at = Position(max(0, at.ms - skew), 0, shard)
                continue
            if probe is not None:
                probe, same_ms = None, [entry[0].decode() for entry in chunk.replies[0]]
                resume_at = first if len(same_ms) > 1 else at
                if after not in same_ms:
                    earliest = first._replace(ms=max(0, first.ms - MAX_CLOCK_SKEW_MS))
                    resume_at = earliest if is_derived else reader.floor.position
                if max(resume_at, reader.floor.position) < at:
                    reader.at = max(resume_at, reader.floor.position)
                    continue
            found = [entry for entry in chunk.entries if _is_wanted(entry, wanted)]
            if chunk.is_archived:
                archived += found
            elif found:
                before = chunk.entries.index(found[0])
                return (chunk.entries[before - 1][0].decode() if before else at.stream_id), archived
            if chunk.is_end:
                break
    except (EngineUnreachable, EngineLoading):
        if not is_in_doubt:
            raise
    return reader.at.stream_id, archived


def check_same(writes: Sequence[Write], entries: Sequence[RawEntry]) -> None:
    """Compare events found under generated ids, which have no digest, with the writes that are retried.

    Raises EventIdReused for an event that these writes cannot have made.
    """
    found = {entry_fields(entry)[b"id"].decode(): entry for entry in entries}
    for write in writes:
        entry = found.get(write.event.id)
        if entry is None:
            if found and write.op in _BATCHES:
                raise reused_in_part(next(each.event.id for each in writes if each.event.id in found), write.event.id)
        elif not _may_have_made(write, entry):
            raise EventIdReused(write.event.id)
    last = found.get(writes[-1].event.id)
    if last is not None and writes[-1].op in _BATCHES:
        index, total = index_in_batch(last)
        if total - index not in {0, int(writes[-1].may_be_followed)}:
            raise EventIdReused(writes[0].event.id)


def _may_have_made(write: Write, entry: RawEntry) -> bool:
    """Return whether a write can have made an entry: whether its event has the caller's arguments."""
    event = write.event
    try:
        found = decode_entry(entry, 0)
    except Poison:
        return False
    if found.page != event.page or not (write.op in _UNNAMED or event.subject in ("", found.subject) or _is_new(event)):
        return False
    if event.type not in ("", found.type):
        return False
    if not event.kind:
        return True  # only its existence matters
    if found.kind != event.kind and not (write.op == Op.ADD and found.kind == "repeated"):
        return False
    if isinstance(event, Updated) and isinstance(found, Updated):
        return _without(event.changes, write.varying) == _without(found.changes, write.varying)
    return has_same_fields(event, found, ignored=_DECIDED.get(found.kind, set()) | write.varying)


def _without(changes: Mapping[str, object], names: Set[str]) -> dict[str, object]:
    return {name: value for name, value in changes.items() if name not in names}


def has_same_fields(event: Event, found: Event, ignored: Set[str] = frozenset()) -> bool:
    """Return whether two events have the same fields, except those of all events and those in `ignored`."""
    names = type(found).model_fields.keys() - Event.model_fields.keys() - ignored
    return all(getattr(found, name) == getattr(event, name) for name in names)


def _is_new(event: Event) -> bool:
    """Return whether the append script gives the subject of an event its id."""
    return event.subject.endswith("_")


def positions_of(writes: Sequence[Write], entries: Sequence[RawEntry], shard: int) -> list[Position]:
    """Return the positions of these writes' events, in the order of the writes."""
    found = {entry_fields(entry)[b"id"].decode(): entry_position(entry, shard) for entry in entries}
    return [found[write.event.id] for write in writes if write.event.id in found]


def search_retried(log: Log, shard: int, after: str, writes: Sequence[Write]) -> Step[tuple[str, list[Position]]]:
    """Look for writes that may have been sent before, under ids made when the log ended with `after`.

    Returns after which id the script continues, and the events' positions in the archive, if any. Raises EventIdReused.
    """
    with _in_doubt(writes):
        scan, archived = yield from search_log(log, shard, after, writes)
    check_same(writes, archived)
    return scan, positions_of(writes, archived, shard)


def search_lost(
    log: Log, shard: int, after: str, writes: Sequence[Write], cause: Exception, started: float, attempt: int
) -> Step[str]:
    """Wait a moment, look for the events in the log, and return after which id the script continues.

    Raises EngineUnreachable once that has taken too long, BusClosed if the bus was closed meanwhile.
    """
    with _in_doubt(writes):
        if time.monotonic() > started + log.patience:
            raise EngineUnreachable(str(cause)) from None
        yield Pause(backoff(attempt))
        scan, _ = yield from search_log(log, shard, after, writes, is_in_doubt=True)
    return scan


@contextmanager
def _in_doubt(writes: Sequence[Write]) -> Iterator[None]:
    """Note in the errors raised inside that these writes may have been written."""
    try:
        yield
    except _INTERRUPTIONS as error:
        annotate(error, writes[0].event.id, is_in_doubt=True)
        raise error from None


def annotate(error: ScratchbusError, event_id: str, *, is_in_doubt: bool) -> None:
    """Note in an error the event's id, and whether the event may have been written."""
    error.event_id = event_id
    if is_in_doubt:
        error.in_doubt()


def check_recalled(log: Log, shard: int, writes: Sequence[Write], positions: Sequence[Position]) -> Step[None]:
    """Compare events that the script found under generated ids with the retried writes. Raises EventIdReused."""
    key = log.keys(shard).log
    with _in_doubt(writes):
        found = yield from ask_all(shard, [("XRANGE", key, each.stream_id, each.stream_id) for each in positions])
    check_same(writes, [entry for entries in found for entry in entries])
