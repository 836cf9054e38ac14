"""Trimming archived events from a log, but none that a reader of the log still has to read."""

from __future__ import annotations

from contextlib import suppress

from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.lines import is_kind, position_of, restore
from scratchbus.archive.manifest import Manifest
from scratchbus.domain.position import BusPosition
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.lag import end_of, in_ms
from scratchbus.eventlog.layouts import DAY_MS
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, entry_position, is_batch_end
from scratchbus.eventlog.subscription_state import read_cursors
from scratchbus.eventlog.trim import AT_ONCE, Archiving, FloorLost
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.readmodel.scope import Host
from scratchbus.telemetry.counters import counts

_TRIES = 3  # to trim, when the floor is lost

_LASTING = (
    b'status_changed"', b'cleared"', b'linked"', b'due"', b'types_changed"', b'relations_changed"', b'note_deleted"',
)  # fmt: skip
"""The kinds of events after which a subject may not change any more."""

_ENDED = (b'session_ended"',)


class Trimmer:
    """Trims one shard's log, at most up to the event number `limit`; later ones are kept live."""

    def __init__(self, bus: Host, catalog: SegmentCatalog, lease: Archiving, origin: str, limit: int, now: int) -> None:
        self._bus, self._catalog, self._lease = bus, catalog, lease
        self._origin, self._limit, self._now = origin, limit, now
        self._keys, self._shard = lease.keys, lease.keys.shard

    def trim(self, last: Manifest) -> int:
        """Raise the floor as far as the archive and all readers allow, trim to it, and return how many events went.

        First it records where the archive ends. If a failover loses the floor meanwhile, it is raised again as far as
        the remaining log allows.

        Raises ArchiveBusy, LogRewound, and the errors of reading the archive.
        """
        self._bus.converse(self._lease.record(last.chain.last.seq, self._catalog.where))
        for _ in range(_TRIES - 1):
            with suppress(FloorLost):
                return self._trim(last)
        return self._trim(last)

    def _trim(self, last: Manifest) -> int:
        log = self._bus.core.log
        floor = self._bus.converse(read_floor(log, self._shard)).position
        seq = min(self._limit, last.chain.last.seq, self._bus.converse(self._last_read()))
        end = self._batch_end(seq, floor.seq)
        if end is not None:
            position = entry_position(end, self._shard)
            if self._bus.converse(self._lease.raise_floor(self._origin, position, entry_id(end))):
                floor = position
        (first,) = self._bus.converse(ask_all(self._shard, [("XRANGE", self._keys.log, "-", "+", "COUNT", 1)]))
        start = entry_position(first[0], self._shard) if first else floor
        if not first or start.seq > floor.seq:
            return 0
        count, seq = 0, start.seq
        while seq <= floor.seq:
            manifest = self._catalog.manifest_with(seq)
            end_seq = min(manifest.chain.last.seq, floor.seq)
            count += self._clear(manifest, seq, end_seq)
            seq = end_seq + 1
        self._bus.converse(self._forget_ids(start.ms // DAY_MS, floor.ms // DAY_MS))
        return count

    def _last_read(self) -> Step[int]:
        """Return the number of the last event that all readers have read and that is not the last of the log.

        These positions only grow, so trimming need not check them again, except for the checkpoint, which it checks.
        """
        keys = self._keys
        checkpoint = yield from read_checkpoint(keys)
        tail, until, build, time = yield from ask_all(
            self._shard,
            [("GET", keys.tail), ("HGET", keys.rebuilding, "until"), ("HGET", keys.rebuilding, "build"), ("TIME",)],
        )
        seqs = [checkpoint.position.seq, end_of(tail, self._shard).seq - 1]
        # Without both numbers, no rebuild is running, or its record is damaged and it starts again.
        rebuild = [int(each) for each in (until, build) if each and each.isdigit()]
        if len(rebuild) == 2 and rebuild[0] > in_ms(time):
            seqs.append((yield from read_checkpoint(keys, rebuild[1])).position.seq)
        log = self._bus.core.log
        cursor = yield from ask(0, "GET", log.keys(0).reminders)
        seqs += [BusPosition.parse(cursor.decode()).shards[self._shard].seq] if cursor else []
        for positions in (yield from read_cursors(log)).values():
            seqs += [position.seq for position in positions if position.shard == self._shard]
        return min(seqs)

    def _batch_end(self, seq: int, floor: int) -> RawEntry | None:
        """Return the last entry at or before an event that ends a batch; None if there is none above the floor."""
        while seq > floor:
            manifest = self._catalog.manifest_with(seq)
            first, lines = self._catalog.block(manifest, seq)
            entry = restore(lines[seq - first])
            if entry is not None and is_batch_end(entry):
                return entry
            seq -= 1
        return None

    def _clear(self, manifest: Manifest, start_seq: int, end_seq: int) -> int:
        """Remove events of a segment, all below the floor, from the indexes, the heads and, last, the log."""
        lines, index, first = self._catalog.lines(manifest), self._catalog.index(manifest), manifest.chain.first.seq
        self._bus.converse(self._lease.cut([page for page, seqs in index.pages.items() if seqs[0] <= end_seq]))
        for page, lasts in index.subjects.items():
            lasting = {
                subject: _stream_id(lines[seq - first])
                for subject, seq in lasts.items()
                if start_seq <= seq <= end_seq and is_kind(lines[seq - first], _LASTING)
            }
            for stream_id in lasting.values() if page == SYSTEM_PAGE else ():
                self._bus.converse(self._lease.copy(stream_id))
            self._bus.converse(self._lease.drop_heads(page, list(lasting)))
            session_end = lasts.get(SESSION, 0)
            if start_seq <= session_end <= end_seq and is_kind(lines[session_end - first], _ENDED):
                self._bus.converse(self._lease.drop_remembered(page, session_end))
        count = 0
        for seq in (*range(start_seq + AT_ONCE - 1, end_seq, AT_ONCE), end_seq):
            count += self._bus.converse(self._lease.trim(_stream_id(lines[seq - first])))
        counts.trimmed += count
        return count

    def _forget_ids(self, first: int, last: int) -> Step[None]:
        """Delete the callers' event ids of these days, unless they must still be kept."""
        days = range(first, min(last + 1, self._now // DAY_MS - self._bus.core.log.id_days))
        for at in range(days.start, days.stop, 1_000):
            names = [f"{self._keys.ids}{day}" for day in days if at <= day < at + 1_000]
            yield from ask(self._shard, "DEL", *names)


def _stream_id(line: bytes) -> str:
    ms, seq = position_of(line)
    return f"{ms}-{seq}"
