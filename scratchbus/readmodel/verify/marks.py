"""The comparison of what no fold of the log implies: how far readers and the archiver are, and the subscriptions.

A mark that is too low only costs work, so it is no finding; neither is one that names another event of the log, where
its reader could be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from scratchbus.domain.position import BusPosition, Position
from scratchbus.engine.steps import Fetch, Step, ask, ask_all, batches
from scratchbus.errors import ArchiveDamaged, ArchiveForeign, InvalidPosition, shown
from scratchbus.eventlog.archive_protocol import LogArchive
from scratchbus.eventlog.below_floor import Floor, read_floor
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.raw_entries import entry_position, text_of, texts_of
from scratchbus.readmodel.verify.probe import ShardCheck, stored_end

_AT_ONCE = 500  # subscriptions per read

_ARCHIVED = re.compile(r"(\d{1,15})\|(.+)", re.DOTALL)


class MarksCheck(ShardCheck):
    """Compares the marks of one shard, whose keys have these names."""

    def run(self, names: Iterable[str]) -> Step[None]:
        """Check all of them."""
        if self._keys.archived not in self._wanted.unreadable:
            yield from self._check_archived()
        yield from self._check_paging()
        yield from self._check_reminders()
        if self._shard == 0 and self._keys.subscriptions not in self._wanted.unreadable:
            yield from self._check_subscriptions(names)

    def _check_archived(self) -> Step[None]:
        """Check the record of the last archived event, which an archiver writes before it raises the floor."""
        row, floor, tail, first = yield from self._read(
            [
                ("GET", self._keys.archived),
                ("GET", self._keys.floor),
                ("GET", self._keys.tail),
                ("XRANGE", self._keys.log, "-", "+", "COUNT", 1),
            ]
        )
        if row is None:
            position = Floor.parse(floor, None, self._shard).position
            if position.seq and first and entry_position(first[0], self._shard).seq > position.seq:
                self._report_archived(f"is missing; events up to {position} are archived")
            return
        recorded = _ARCHIVED.fullmatch(text_of(row))
        if recorded is None:
            self._report_archived(f"cannot be read: {shown(row)}")
            return
        seq, end = int(recorded[1]), stored_end(tail, self._shard)
        if end.seq and seq > end.seq:
            self._report_archived(f"says that events up to {seq} are archived, and the log ends at {end}")
        elif self._log.archive is not None and self._log.archive.location(self._shard) == recorded[2]:
            yield from self._compare_end(self._log.archive, seq)

    def _compare_end(self, archive: LogArchive, seq: int) -> Step[None]:
        """Compare the number of the last archived event, read before, with the end of the archive.

        An archiver stores a segment before it records its end.
        """
        floor = yield from read_floor(self._log, self._shard)
        try:
            end: Position = yield Fetch(partial(archive.last_until, self._shard, floor.origin, 2**64))
        except (ArchiveDamaged, ArchiveForeign):
            return  # found already
        if seq > end.seq:
            what = f"{archive.location(self._shard)} {f'ends at {end}' if end.seq else 'has no events'}"
            self._report_archived(f"says that events up to {seq} are archived, and {what}")

    def _report_archived(self, what: str) -> None:
        self._verified.add("archived", self._keys.archived, what)

    def _check_paging(self) -> Step[None]:
        """Check the last event examined for paging out: an event that is folded."""
        key = self._keys.page("", self._wanted.base.build).paging
        if key in self._wanted.unreadable:
            return
        row, checkpoint = yield from self._read([("HGET", key, "cursor"), ("GET", checkpoint_key(self._keys))])
        if row is None:
            return
        try:
            cursor = Position.parse(text_of(row))._replace(shard=self._shard)
        except InvalidPosition:
            self._verified.add("paged", f"{key} cursor", f"cannot be read: {shown(row)}")
            return
        folded = Checkpoint.parse(checkpoint, self._shard).position
        if cursor > folded:
            self._verified.add("paged", f"{key} cursor", f"is {cursor}, and the state is folded up to {folded}")
        elif (yield from self._is_no_event(cursor)):
            self._verified.add("paged", f"{key} cursor", f"is {cursor}, and the log has no event there")

    def _check_reminders(self) -> Step[None]:
        """Check how far reminders and refutations were handled in this shard, as the key on shard 0 says.

        A position behind the end of the log is no finding: the expirers then read it again from its start.
        """
        key = self._log.keys(0).reminders
        (kind,) = yield from ask_all(0, [("TYPE", key)])
        if (kind.decode() if isinstance(kind, bytes) else str(kind)) != "string":
            return
        row = yield from ask(0, "GET", key)
        try:
            positions = BusPosition.parse(text_of(row or b"")).shards
        except InvalidPosition:
            positions = ()
        if row is None:
            return
        if len(positions) != self._log.shards:
            if self._shard == 0:
                self._verified.add(
                    "cursor", key, f"is {shown(row)}, which is not a position in {self._log.shards} shards"
                )
            return
        position = positions[self._shard]
        end = stored_end((yield from ask(self._shard, "GET", self._keys.tail)), self._shard)
        if position <= end and (yield from self._is_no_event(position)):
            self._verified.add("cursor", key, f"is at {position}, and the log has no event there")

    def _is_no_event(self, position: Position) -> Step[bool]:
        """Return whether the log has no event at a position, though it is neither archived nor erased."""
        stream_id = position.stream_id
        found = yield from ask(self._shard, "XRANGE", self._keys.log, stream_id, stream_id)
        if found:
            return False
        floor = yield from read_floor(self._log, self._shard)  # afterwards: an archiver raises it before it trims
        return position.seq > floor.position.seq and bool((yield from not_erased(self._keys, [position])))

    def _check_subscriptions(self, names: Iterable[str]) -> Step[None]:
        """Check that subscriptions are in the set of their names, and have a cursor; they are removed as a whole."""
        keys, known = self._keys, set(texts_of((yield from ask(0, "SMEMBERS", self._keys.subscriptions))))
        prefixes = keys.subscription(""), keys.dead(""), keys.again("")
        known |= {name.removeprefix(prefix) for name in names for prefix in prefixes if name.startswith(prefix)}
        readable = (
            name for name in sorted(known) if self._wanted.unreadable.isdisjoint(prefix + name for prefix in prefixes)
        )
        for batch in batches([*readable], _AT_ONCE):
            rows = yield from self._read(
                command
                for name in batch
                for command in (
                    ("SISMEMBER", keys.subscriptions, name),
                    ("HGET", keys.subscription(name), "cursor"),
                    ("EXISTS", keys.dead(name), keys.again(name)),
                )
            )
            for name, is_named, cursor, letters in zip(batch, rows[::3], rows[1::3], rows[2::3], strict=True):
                if not cursor and (is_named or letters):
                    what = f"has no cursor, though it {'is listed' if is_named else 'has dead letters'}"
                    self._verified.add("subscription", keys.subscription(name), what)
                elif cursor and not is_named:
                    what = "is missing, so that nothing lists it, and events that it still needs may be trimmed"
                    self._verified.add("subscription", f"{keys.subscriptions} {name}", what)
