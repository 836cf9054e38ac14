"""Compare the engine's data with the fold of the log, while others write.

Each step reads some members of a key, the end of the log and the checkpoint at once; the log is folded to exactly that
point before the comparison. So it does not matter what happens between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from scratchbus.domain.position import Position
from scratchbus.engine.scans import find_keys
from scratchbus.engine.steps import Fetch, Step, ask, ask_all, batches
from scratchbus.errors import ArchiveDamaged, ArchiveForeign, ArchiveUnavailable, LogRewound
from scratchbus.eventlog.archive_protocol import LogArchive
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.checkpoint import checkpoint_key, read_unchecked
from scratchbus.eventlog.gaps import erased_between, not_erased
from scratchbus.eventlog.keys import SYSTEM_PAGE, PageKeys
from scratchbus.eventlog.lag import in_ms
from scratchbus.eventlog.raw_entries import entry_id, entry_position, text_of, texts_of
from scratchbus.eventlog.retries import is_of
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.rebuild import Progress
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.verify.ends import EndsCheck
from scratchbus.readmodel.verify.findings import Verified
from scratchbus.readmodel.verify.key_names import (
    check_essential,
    check_lifetimes,
    check_other_shards,
    check_pages,
    check_types,
    is_day,
    recognise,
)
from scratchbus.readmodel.verify.marks import MarksCheck
from scratchbus.readmodel.verify.paged_out import PagedOutCheck
from scratchbus.readmodel.verify.probe import Moved, Probe, ShardCheck, stored_end
from scratchbus.readmodel.verify.stored import StoredKey, StoredKeys

_AT_ONCE = 500  # members of a key per read

_OF_BUS = ("types", "relations")  # the subjects whose last events every process needs


def verify(core: Core, progress: Progress | None = None) -> Step[Verified]:
    """Compare everything that the engine holds with the fold of the log; return the differences. Writes nothing.

    An archive is checked first, file by file.
    """
    log, verified, done, total = core.log, Verified(), Counter[tuple[int, str]](), 0
    for shard in range(log.shards):
        if not (yield from check_essential(StoredKeys(log.keys(shard)), Verified())):
            continue
        total += stored_end((yield from ask(shard, "GET", log.keys(shard).tail)), shard).seq
        if log.archive is not None:
            total += (yield from read_floor(log, shard)).position.seq

    def report_count(shard: int, part: str, count: int) -> None:
        done[shard, part] = count
        if progress is not None:
            progress(done.total(), max(total, done.total()))

    yield from check_other_shards(log, verified)
    for shard in range(log.shards):
        while True:
            found = Verified()
            try:
                report = partial(report_count, shard)
                probe = Probe(log, StoredKeys(log.keys(shard)), found, partial(report, "log"))
                check = _Shard(probe, report)
                yield from check.verify()
            except Moved:
                continue
            except (ArchiveDamaged, ArchiveForeign, ArchiveUnavailable) as problem:
                if isinstance(problem, ArchiveUnavailable) and not check.has_unreadable_file:
                    raise  # the store is down
                found.add("archive", log.keys(shard).floor, f"nothing that rests on it could be compared: {problem}")
            verified.take(found)
            break
    return verified


class _Shard(ShardCheck):
    """The verification of one shard; `has_unreadable_file` is that its archive has one that cannot be read."""

    def __init__(self, probe: Probe, report: Callable[[str, int], None]) -> None:
        super().__init__(probe)
        self.has_unreadable_file = False
        self._probe = probe
        self._report = report

    def verify(self) -> Step[None]:
        """Compare everything. Raises Moved, and the errors of reading the archive."""
        if not (yield from check_essential(self._wanted, self._verified)):
            return
        if self._log.archive is not None:
            yield from self._check_archive(self._log.archive)
        try:
            checkpoint = yield from read_unchecked(self._keys)
        except (LogRewound, ValueError) as problem:
            self._verified.add("checkpoint", checkpoint_key(self._keys), f"cannot be read: {problem}")
            return
        self._wanted.base.build = checkpoint.build
        self._wanted.floor = (yield from read_floor(self._log, self._shard)).position
        yield from self._read([])
        found = yield from find_keys(self._shard, match=f"{self._keys.tag}*")
        keys = sorted({*texts_of(found), *self._wanted.names()})
        yield from check_types(self._wanted, self._verified, keys)
        yield from check_lifetimes(self._wanted, self._verified, keys)
        for key in keys:
            if key in self._wanted.unreadable:
                continue
            stored = self._wanted.find(key)
            if stored is not None:
                yield from self._compare(stored)
            elif key.startswith(self._common.positions):
                yield from self._compare_positions(key)
            elif is_day(key.removeprefix(self._keys.tag)):
                yield from self._compare_ids(key)
            else:
                recognise(self._wanted, self._verified, key.removeprefix(self._keys.tag))
        yield from self._compare_kept()
        yield from PagedOutCheck(self._probe).run()
        yield from self._read_snapshots()
        yield from self._compare_rejected()
        yield from EndsCheck(self._probe).run()
        yield from MarksCheck(self._probe).run(keys)
        base, tip = self._wanted.base, self._wanted.tip
        self._verified.pages = len(tip.pages)
        check_pages(self._log, self._shard, tip.pages, self._verified)
        names = [PageKeys(self._keys, page, base.build) for page in tip.pages]
        self._verified.documents = sum(len(base.rows[each.docs]) + len(base.rows[each.memory]) for each in names)

    @property
    def _common(self) -> PageKeys:
        """The keys of the read model that belong to no page."""
        return PageKeys(self._keys, "", self._wanted.base.build)

    def _check_archive(self, archive: LogArchive) -> Step[None]:
        """Check that the archive is complete and unchanged, and has no erased events."""
        floor = yield from read_floor(self._log, self._shard)
        if not floor.origin:
            return  # nothing was ever written
        tail = yield from ask(self._shard, "GET", self._keys.tail)
        erased = yield from erased_between(self._keys, 1, stored_end(tail, self._shard).seq)
        is_at_work = yield from self._is_archiver_at_work()
        steps = archive.check(self._shard, floor.origin, floor.position, [] if is_at_work else erased)
        while (step := (yield Fetch(partial(next, steps, None)))) is not None:
            for fault in step.faults:
                self.has_unreadable_file |= fault.is_unreadable
                if not (fault.is_leftover and (is_at_work or (yield from self._is_archiver_at_work()))):
                    self._verified.add("archive", fault.where, fault.what)
            self._report("archive", step.events)
        yield from self._check_archive_end(archive, floor.origin)

    def _check_archive_end(self, archive: LogArchive, origin: str) -> Step[None]:
        """Check that the log had the last archived event."""
        try:
            end: Position = yield Fetch(partial(archive.last_until, self._shard, origin, 2**64))
            archived = yield Fetch(partial(archive.at, self._shard, origin, [end] if end.seq else []))
        except (ArchiveDamaged, ArchiveForeign):
            return  # found already
        found = yield from ask(self._shard, "XRANGE", self._keys.log, end.stream_id, end.stream_id)
        floor = yield from read_floor(self._log, self._shard)  # afterwards: an archiver raises it before it trims
        # after a failover to a clock that is behind, another event may have that position
        is_other = found and archived and entry_id(found[0]) != entry_id(archived[0])
        is_lost = is_other or (not found and (yield from not_erased(self._keys, [end])))
        if end.seq > floor.position.seq and is_lost:
            what = f"is beyond the log, which does not have event {end}: it was rewound, or restored from an older"
            self._verified.add("archive", archive.where, f"{what} backup; `scratchbus log-archive run` says what to do")

    def _is_archiver_at_work(self) -> Step[bool]:
        """Return whether an archiver or eraser is at work, which names its files last, and removes erased events."""
        row, now = yield from ask_all(self._shard, [("GET", self._keys.archiver), ("TIME",)])
        until = (row or b"").partition(b"|")[2].partition(b"|")[0]
        return until.isdigit() and int(until) > in_ms(now)

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _compare(self, stored: StoredKey) -> Step[None]:
        """Compare a key member by member, in both directions."""
        read, get = ("HSCAN", "HMGET") if stored.type == "hash" else ("ZSCAN", "ZMSCORE")
        seen: set[str] = set()
        at = b"0"
        while True:
            ((at, flat),) = yield from self._read([(read, stored.key, at, "COUNT", _AT_ONCE)])
            names = texts_of(flat[::2])
            seen.update(names)
            self._judge(stored, names, flat[1::2])
            if int(at) == 0:
                break
        for missing in batches([member for member in stored.members() if member not in seen], _AT_ONCE):
            (values,) = yield from self._read([(get, stored.key, *missing)])
            self._judge(stored, missing, values)

    def _judge(self, stored: StoredKey, members: Sequence[str], values: list[bytes | None]) -> None:
        for member, problem in stored.problems(members, values):
            self._verified.add(stored.kind, f"{stored.key} {member}", problem)

    def _compare_ids(self, key: str) -> Step[None]:
        """Check that the event ids chosen by callers belong to the events at their positions."""
        at = b"0"
        while True:
            at, flat = yield from ask(self._shard, "HSCAN", key, at, "COUNT", _AT_ONCE)
            positions = [stored_end(row.rpartition(b"|")[2], self._shard) for row in flat[1::2]]
            found = yield from ask_all(
                self._shard,
                [("XRANGE", self._keys.log, position.stream_id, position.stream_id) for position in positions],
            )
            absent = [position for position, entries in zip(positions, found, strict=True) if not entries]
            if absent:
                yield from self._read([])  # an archiver may have trimmed their events just now
            unarchived = [position for position in absent if not 0 < position.seq <= self._wanted.floor.seq]
            lost = yield from not_erased(self._keys, unarchived)
            for id, position, entries in zip(flat[::2], positions, found, strict=True):
                event_id, _, writer = id.partition(b" ")  # older versions stored no writer
                if position in lost or (entries and not is_of(entries[0], event_id, writer)):
                    self._verified.add("id", f"{key} {text_of(id)}", f"is not that of {position}")
            if int(at) == 0:
                return

    def _compare_positions(self, key: str) -> Step[None]:
        """Compare the positions of a page with those of its events."""
        (row,) = yield from self._read([("GET", key)])
        if self._wanted.positions_differ(key, row or b""):
            self._verified.add("position", key, "are not those of its events")

    def _compare_kept(self) -> Step[None]:
        """Compare the trimmed entries that are still needed with those of the archive."""
        key, archive = self._keys.kept, self._log.archive
        if archive is None or key in self._wanted.unreadable:
            return  # without it, the log could not be folded if anything was trimmed
        entries = yield from ask(self._shard, "XRANGE", key, "-", "+")
        floor = yield from read_floor(self._log, self._shard)
        positions = [entry_position(entry, self._shard) for entry in entries]
        archived = [position for position in positions if 0 < position.seq <= floor.position.seq]
        found = yield Fetch(partial(archive.at, self._shard, floor.origin, archived))
        for entry in entries:
            if entry not in found:
                self._verified.add("key", f"{key} {text_of(entry[0])}", "is not the event that the archive has there")
        # all of this is read at one moment, since an archiver copies such an entry before it trims it
        subjects = self._wanted.tip.peek(SYSTEM_PAGE).subjects
        lasts = {subject: subjects[subject].last for subject in _OF_BUS if subject in subjects}
        kept, *live = yield from self._read(
            [("XRANGE", key, "-", "+"), *(("XRANGE", self._keys.log, last, last) for last in lasts.values())]
        )
        for (subject, last), is_live in zip(lasts.items(), live, strict=True):
            if not is_live and subjects[subject].last == last and last.encode() not in [entry[0] for entry in kept]:
                self._verified.add("kept", f"{key} {last}", f"is missing; it has the current {subject}")

    def _read_snapshots(self) -> Step[None]:
        """Check that all snapshots can be read."""
        for page in self._wanted.tip.pages:
            names = PageKeys(self._keys, page, self._wanted.base.build)
            if names.snapshots in self._wanted.unreadable:
                continue
            for position in (yield from snapshots.stored(self._keys, names)):
                snapshot = yield from snapshots.read(self._keys, names, position)
                if snapshot is None or (yield from snapshots.load(names, snapshot)) is None:
                    yield from self._report_snapshot(names, position.stream_id)
            for position in (yield from snapshots.stored(self._keys, names, snapshots.OPEN_ENDING)):
                if (yield from snapshots.read_open(self._keys, names, position)) is None:
                    yield from self._report_snapshot(names, f"{position.stream_id}/open")

    def _report_snapshot(self, names: PageKeys, field: str) -> Step[None]:
        """Report a snapshot that cannot be read, unless an erasure or a rebuild has deleted it meanwhile."""
        if (yield from ask(self._shard, "HEXISTS", names.snapshots, field)):
            what = "cannot be read, or is of events that the log does not have"
            self._verified.add("snapshot", f"{names.snapshots} {field}", what)

    def _compare_rejected(self) -> Step[None]:
        """Check that exactly the events that cannot be folded were rejected."""
        key, stored_ids, at = self._common.rejected, set[str](), "-"
        while key not in self._wanted.unreadable:
            (entries,) = yield from self._read([("XRANGE", key, at, "+", "COUNT", _AT_ONCE)])
            stored_ids |= {entry[0].decode() for entry in entries}
            if not entries:
                break
            at = f"({entries[-1][0].decode()}"
        for id in stored_ids ^ self._wanted.base.rejected:
            what = (
                "is a sound event and was set aside" if id in stored_ids else "cannot be folded and was not set aside"
            )
            self._verified.add("rejected", f"{key} {id}", what)
