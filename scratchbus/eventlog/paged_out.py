"""The index of paged-out observations: the position of each one's last event, from which its document is folded.

Two hashes per page. `paged`: bucket of the id -> the ids in it (16 bytes each) with the `seq` of the event that added
each. `places`: range of that `seq` -> the position of each last event, and the observation's traits, by which a list
skips most of those that it does not want. About 56 bytes each, plus the engine's overhead. In `places`, `=<status>`
says that some may have this status, and `moves` is another word each time entries were paged in or left the engine.

With an archive, a page's entries leave the engine for tables once there are many (see `index_tables`).

Every change moves the checkpoint, so a reader of both knows whether its data is still valid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import MAX_ARGUMENTS, Command
from scratchbus.engine.steps import Step, ask_all, batches
from scratchbus.errors import PositionLost
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.chains import walk_chains
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.index_tables import (
    ENTRY,
    ID,
    PagedOut,
    TableName,
    bucket_of,
    bytes_of,
    entries_in,
    find_in_tables,
    ids_in,
    range_of,
    table_names,
)
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.projections.subjects import IN_PLACE

_AT_ONCE = 500


@dataclass(slots=True)
class IndexEdit:
    """Changes to the index of one page, on top of the fields they concern as they were read.

    `tables` are the tables of the page, newest first, and `in_tables` the entries found there, by id.
    """

    names: PageKeys
    buckets: dict[str, dict[bytes, int]] = field(default_factory=dict)
    ranges: dict[str, dict[int, PagedOut]] = field(default_factory=dict)
    tables: Sequence[TableName] = ()
    in_tables: dict[str, PagedOut] = field(default_factory=dict)
    _fields: dict[tuple[str, str], object] = field(default_factory=dict)
    _has_moves: bool = False

    def load(self, found: Iterable[tuple[Command, Sequence[bytes | None]]]) -> None:
        """Add fields as they are stored: `reads` with their replies."""
        for (_, key, *fields), rows in found:
            for name, row in zip(map(str, fields), rows, strict=True):
                if key == self.names.paged:
                    self.buckets[name] = ids_in(row)
                else:
                    self.ranges[name] = entries_in(row)

    def find(self, id: str) -> PagedOut | None:
        """Return the index entry of an observation, if it is paged out."""
        entry = self._in_engine(id)
        if entry is None and (entry := self.in_tables.get(id)) is not None:
            entry = self.ranges.get(range_of(entry.added), {}).get(entry.added, entry)
        return entry if entry is not None and entry.seq else None

    def _in_engine(self, id: str) -> PagedOut | None:
        added = self.buckets[bucket_of(id)].get(bytes_of(id))
        return None if added is None else self.ranges.get(range_of(added), {}).get(added)

    def add(self, document: Observation) -> None:
        """Add an observation to the index."""
        bucket, span = bucket_of(document.id), range_of(document.added_seq)
        self.buckets[bucket][bytes_of(document.id)] = document.added_seq
        self.ranges[span][document.added_seq] = PagedOut.of(document)
        self._touch(bucket, span)
        self._fields[self.names.places, f"={document.status}"] = 1

    def remove(self, id: str, entry: PagedOut) -> None:
        """Remove an observation from the index."""
        bucket, span = bucket_of(id), range_of(entry.added)
        self.buckets[bucket].pop(bytes_of(id), None)
        if any(table.spans(entry.added) for table in self.tables):
            self.ranges[span][entry.added] = entry._replace(ms=0, seq=0, traits=0)
        else:
            del self.ranges[span][entry.added]
        self._touch(bucket, span)
        self._has_moves = True

    def _touch(self, bucket: str, span: str) -> None:
        self._fields[self.names.paged, bucket] = self._fields[self.names.places, span] = None

    def commands(self) -> list[Command]:
        """Return the commands that store the changes."""
        writes: dict[tuple[str, str], list[object]] = defaultdict(list)
        for (key, name), value in self._fields.items():
            if value is None and key == self.names.paged:
                value = b"".join(ID.pack(*each) for each in sorted(self.buckets[name].items()))
            elif value is None:
                value = b"".join(ENTRY.pack(*each) for _, each in sorted(self.ranges[name].items()))
            if value:
                writes["HSET", key] += (name, value)
            else:
                writes["HDEL", key].append(name)
        commands: list[Command] = [("HSET", self.names.places, "moves", token_hex(6))] if self._has_moves else []
        for command, arguments in writes.items():
            commands += [(*command, *batch) for batch in batches(arguments, MAX_ARGUMENTS)]
        return commands


def reads(names: PageKeys, ids: Iterable[str], added: Iterable[int]) -> list[Command]:
    """Return the reads of the fields for these ids, and for observations added at these seqs."""
    commands: list[Command] = []
    for key, fields in (
        (names.paged, {bucket_of(id) for id in ids}),
        (names.places, {range_of(each) for each in added}),
    ):
        commands += [("HMGET", key, *batch) for batch in batches(sorted(fields), _AT_ONCE)]
    return commands


def read_index(log: Log, names: PageKeys, shard: int, ids: Collection[str]) -> Step[IndexEdit]:
    """Return the parts of a page's index for these ids.

    What leaves the engine meanwhile is found in its table, since the names of the tables are read last. Raises
    PositionLost if an entry may be in an archive that cannot be read.
    """
    edit = IndexEdit(names)
    buckets = reads(names, ids, ())
    edit.load(zip(buckets, (yield from ask_all(shard, buckets)), strict=True))
    found = (edit.buckets[bucket_of(id)].get(bytes_of(id)) for id in ids)
    ranges = reads(names, (), (added for added in found if added is not None))
    *rows, tables = yield from ask_all(shard, [*ranges, ("HGETALL", names.tables)])
    edit.load(zip(ranges, rows, strict=True))
    edit.tables = table_names(tables)
    missing = [id for id in ids if edit.find(id) is None] if edit.tables else []
    edit.in_tables = yield from find_in_tables(log, shard, edit.tables, missing)
    ranges = reads(names, (), (entry.added for entry in edit.in_tables.values()))
    edit.load(zip(ranges, (yield from ask_all(shard, ranges)), strict=True))
    return edit


def locate(log: Log, names: PageKeys, shard: int, ids: Collection[str]) -> Step[dict[str, PagedOut]]:
    """Return the index entries of these observations, as far as they are paged out.

    Raises PositionLost if one may be in an archive that cannot be read.
    """
    edit = yield from read_index(log, names, shard, ids)
    return {id: entry for id in ids if (entry := edit.find(id)) is not None}


def rebuild(
    log: Log, shard: int, entries: Sequence[PagedOut], known: Mapping[str, RawEntry] | None = None
) -> Step[list[Observation]]:
    """Fold the documents of paged-out observations from their events; leave out those erased meanwhile.

    `known` are entries, by stream id, that need not be read again. Raises PositionLost if events are in an archive that
    cannot be read.
    """
    try:
        chains = yield from walk_chains(log, shard, [entry.stream_id for entry in entries], known)
    except PositionLost:
        ends = [Position(entry.ms, entry.seq, shard) for entry in entries]
        remaining = set((yield from not_erased(log.keys(shard), ends)))
        if len(remaining) == len(ends):
            raise
        kept = [entry for entry, end in zip(entries, ends, strict=True) if end in remaining]
        return (yield from rebuild(log, shard, kept, known))
    documents = []
    for entry in entries:
        document: Observation | None = None
        for event in chains[entry.stream_id]:
            document, _ = IN_PLACE.fold(document, event)
        if document is not None and document.added_seq == entry.added:
            documents.append(document)
    return documents
