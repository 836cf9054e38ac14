"""Dividing the events that are not archived yet into segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.manifest import Manifest
from scratchbus.archive.segment import SegmentBuilder
from scratchbus.domain.position import START, Position, event_range
from scratchbus.engine.steps import ask
from scratchbus.errors import ArchiveDamaged, LogGap
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.gaps import are_erased
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_position, is_batch_end
from scratchbus.readmodel.scope import Host


def segment_builders(
    bus: Host, catalog: SegmentCatalog, last: Manifest | None, shard: int, limit: int
) -> Iterator[SegmentBuilder]:
    """Yield the segments that follow the last one, up to the event number `limit`; all but the last are full.

    They contain whole batches, and exceed `archive_segment` events only if a single batch does. Raises ArchiveDamaged,
    LogGap or EngineError.
    """
    most_events, unarchived = bus.core.settings.archive_segment, _unarchived(bus, catalog, last, shard, limit)
    builder = SegmentBuilder()
    for entries in unarchived:
        while entries:
            count = 0 if builder.is_full(most_events) else _whole_batches(entries, most_events - len(builder.lines))
            if not count and not builder.lines:
                count = next(end for end, entry in enumerate(entries, 1) if _is_end(entry))
            if count:
                builder.add(entries[:count])
                entries = entries[count:]
            else:
                builder.is_closed = True
                yield builder
                builder = SegmentBuilder()
    if builder.lines:
        yield builder


def _unarchived(
    bus: Host, catalog: SegmentCatalog, last: Manifest | None, shard: int, limit: int
) -> Iterator[list[RawEntry]]:
    """Yield the events that are not archived yet, in lists of whole batches."""
    at = last.chain.last.position if last else START
    floor = bus.converse(read_floor(bus.core.log, shard)).position
    if at.seq < floor.seq:
        raise _lacks_events(catalog, shard, at.seq, floor.seq + 1)
    reader = LogReader(bus.core.log, at._replace(shard=shard))
    while reader.at.seq < limit:
        before = reader.at.seq
        entries, is_end, *_ = bus.converse(reader.read())
        if not is_end and reader.at.seq < limit:
            bus.converse(reader.read_ahead())
        allowed = entries[: bisect_right(entries, limit, key=_seq)]
        if count := _whole_batches(allowed, len(allowed)):
            yield _without_gaps(bus, catalog, shard, before, entries[:count])
        if count < len(entries) or not entries:
            return


def _without_gaps(
    bus: Host, catalog: SegmentCatalog, shard: int, before: int, entries: list[RawEntry]
) -> list[RawEntry]:
    """Return the entries, with one without fields for each erased event. Raises ArchiveDamaged or LogGap."""
    if _seq(entries[-1]) == before + len(entries):
        return entries
    complete: list[RawEntry] = []
    seq = before
    for entry in entries:
        position = entry_position(entry, 0)
        if position.seq > seq + 1:
            if not bus.converse(are_erased(bus.core.log.keys(shard), seq, position.seq)):
                raise _gap(bus, catalog, shard, seq, position)
            complete += [[b"%d-%d" % (position.ms, missing), []] for missing in range(seq + 1, position.seq)]
        complete.append(entry)
        seq = position.seq
    return complete


def _gap(bus: Host, catalog: SegmentCatalog, shard: int, seq: int, position: Position) -> ArchiveDamaged | LogGap:
    """Return the error for events that are missing between two others."""
    first = bus.converse(ask(shard, "XRANGE", bus.core.log.keys(shard).log, "-", "+", "COUNT", 1))
    if first and entry_position(first[0], 0) == position:
        return _lacks_events(catalog, shard, seq, position.seq)
    return LogGap(f"shard {shard}: the log has lost {event_range(seq + 1, position.seq - 1)}; see `scratchbus verify`")


def _lacks_events(catalog: SegmentCatalog, shard: int, end: int, start: int) -> ArchiveDamaged:
    advice = "set archive_url to the archive that has the events"
    if end:
        found, advice = f"ends at event {end}", f"{advice} between them"
    else:
        found, advice = "has no segments", f"if it is on a disk of its own, mount that; else {advice} before"
    return ArchiveDamaged(f"{catalog.where} {found}, and the log of shard {shard} begins at {start}; {advice}")


def _seq(entry: RawEntry) -> int:
    return entry_position(entry, 0).seq


def _whole_batches(entries: list[RawEntry], limit: int) -> int:
    """Return how many of the first `limit` entries form whole batches."""
    return next((end for end in range(min(len(entries), limit), 0, -1) if _is_end(entries[end - 1])), 0)


def _is_end(entry: RawEntry) -> bool:
    """Return whether an entry is known to end its batch; False for an erased one."""
    return bool(entry[1]) and is_batch_end(entry)
