"""Reading what is to be archived, and dividing it into segments."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from scratchbus.archive.catalog import Shelf
from scratchbus.archive.manifest import Manifest
from scratchbus.archive.segment import Draft
from scratchbus.domain.position import Position
from scratchbus.engine.steps import ask, ask_all
from scratchbus.errors import ArchiveDamaged, LogGap
from scratchbus.eventlog.codec import RawEntry, entry_position, is_batch_end
from scratchbus.eventlog.gaps import are_erased
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.readmodel.scope import Host

_CHUNK, _LONGEST_BATCH = 1_000, 4_096  # entries read at once


def drafts(bus: Host, keys: ShardKeys, shelf: Shelf, last: Manifest | None, limit: int) -> Iterator[Draft]:
    """Yield the segments that follow the last one, up to an event; all but the last of them are full.

    They hold whole batches, and more than was asked for only if a single batch has more. Raises ArchiveDamaged, LogGap
    or EngineError.
    """
    most, draft = bus.settings.archive_segment, Draft()
    for entries in _read_ahead(_stretches(bus, keys, shelf, last, limit)):
        while entries:
            cut = 0 if draft.is_full(most) else _fitting(entries, most - len(draft.lines))
            if not cut and not draft.lines:
                cut = _first_batch(entries)
            if cut:
                draft.add(entries[:cut])
                entries = entries[cut:]
            else:
                draft.is_closed = True
                yield draft
                draft = Draft()
    if draft.lines:
        yield draft


def _stretches(bus: Host, keys: ShardKeys, shelf: Shelf, last: Manifest | None, limit: int) -> Iterator[list[RawEntry]]:
    """Yield what is not archived yet, some whole batches at a time."""
    after, count = last.chain.last.position if last else Position(0, 0), _CHUNK
    while after.seq < limit:
        found: list[RawEntry] = bus.converse(
            ask(keys.shard, "XRANGE", keys.log, f"({after.stream_id}", "+", "COUNT", count)
        )
        is_end = len(found) < count
        found = _without_gaps(bus, keys, shelf, after, found)
        cut = _fitting(found, limit - after.seq)
        if cut:
            after, count = entry_position(found[cut - 1], 0), _CHUNK
            yield found[:cut]
        elif is_end or count >= _LONGEST_BATCH:
            return  # the rest is a batch that goes beyond the limit
        else:
            count = _LONGEST_BATCH


def _without_gaps(bus: Host, keys: ShardKeys, shelf: Shelf, after: Position, entries: list[RawEntry]) -> list[RawEntry]:
    """Return what was read with an entry without fields for each that was erased. Raises ArchiveDamaged or LogGap."""
    if not entries or entry_position(entries[-1], 0).seq == after.seq + len(entries):
        return entries
    whole: list[RawEntry] = []
    seq = after.seq
    for entry in entries:
        position = entry_position(entry, 0)
        if position.seq > seq + 1:
            if not bus.converse(are_erased(keys, seq, position.seq)):
                raise _gap(bus, keys, shelf, seq, position)
            whole += [[b"%d-%d" % (position.ms, gone), []] for gone in range(seq + 1, position.seq)]
        whole.append(entry)
        seq = position.seq
    return whole


def _gap(bus: Host, keys: ShardKeys, shelf: Shelf, seq: int, position: Position) -> ArchiveDamaged | LogGap:
    """Return the error for what is missing between an event and the next one that there is."""
    (first,) = bus.converse(ask_all(keys.shard, [("XRANGE", keys.log, "-", "+", "COUNT", 1)]))
    if first and entry_position(first[0], 0) == position:
        return ArchiveDamaged(
            f"{shelf.where} ends at event {seq}, and the log of shard {keys.shard} begins at {position.seq}; set"
            " archive_url to the archive that has the events between them"
        )
    return LogGap(f"shard {keys.shard}: events {seq + 1} to {position.seq - 1} are missing; see `scratchbus verify`")


def _fitting(entries: list[RawEntry], room: int) -> int:
    """Return how many entries there are in the whole batches for which there is room."""
    return next((end for end in range(min(len(entries), room), 0, -1) if _is_end(entries[end - 1])), 0)


def _first_batch(entries: list[RawEntry]) -> int:
    """Return how many entries there are in the first batch."""
    return next(end for end, entry in enumerate(entries, 1) if _is_end(entry))


def _is_end(entry: RawEntry) -> bool:
    """Say whether an entry ends its batch; of one that was erased nobody knows."""
    return bool(entry[1]) and is_batch_end(entry)


def _read_ahead(stretches: Iterator[list[RawEntry]]) -> Iterator[list[RawEntry]]:
    """Yield them while the next one is already being read."""
    with ThreadPoolExecutor(1, "archive") as reader:
        coming = reader.submit(next, stretches, None)
        while (stretch := coming.result()) is not None:
            coming = reader.submit(next, stretches, None)
            yield stretch
