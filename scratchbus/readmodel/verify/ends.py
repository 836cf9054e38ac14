"""The comparison of both ends of a log, its checkpoint, and the numbers of erased events."""

from __future__ import annotations

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import shown
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key
from scratchbus.eventlog.foreign import read_foreign, up_to
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.raw_entries import entry_fields, entry_id, entry_position, text_of
from scratchbus.readmodel.verify.findings import MAX_FINDINGS
from scratchbus.readmodel.verify.probe import ShardCheck, stored_end

_AT_ONCE = 1_000  # numbers of erased events per read


class EndsCheck(ShardCheck):
    """Compares the ends of one shard's log."""

    def run(self) -> Step[None]:
        """Check the events after the checkpoint, the tail and the checkpoint itself."""
        yield from self._check_erased()
        tail, floor, row, origin, last = yield from self._read(
            [
                ("GET", self._keys.tail),
                ("GET", self._keys.floor),
                ("GET", checkpoint_key(self._keys)),
                ("GET", self._keys.origin),
                ("XREVRANGE", self._keys.log, "+", "-", "COUNT", 1),
            ]
        )
        base, tip = self._wanted.base, self._wanted.tip
        tail_position = stored_end(tail, self._shard)
        if last and (tail_position.seq or not origin) and not up_to(tail_position, last):
            yield from self._list_foreign()
            last = yield from ask(
                self._shard, "XRANGE", self._keys.log, tail_position.stream_id, tail_position.stream_id
            )
        end = last[0][0] + b"|" + entry_fields(last[0]).get(b"id", b"") if last else b""
        if (tail or b"") != end:
            self._verified.add("tail", self._keys.tail, f"is {shown(tail)}, and the log ends at {shown(end)}")
        if tip.at.seq and not origin:
            self._verified.add("tail", self._keys.origin, "is missing")
        if floor and tail_position.seq:
            yield from self._check_floor(Floor.parse(floor, origin, self._shard), tail_position)
        for seq in sorted(self._wanted.erased_in_log - self._wanted.tombstoned):
            what = "is recorded as erased, and is in the log; readers of an archive would skip it"
            self._verified.add("erased", f"{self._keys.erased} {seq}", what)
        checkpoint = Checkpoint.parse(row, self._shard)
        stored, event = (checkpoint.position.stream_id, checkpoint.event_id), (base.at.stream_id, base.event_id)
        if checkpoint.position.seq in tip.erased:
            event = stored  # its tombstone is not folded
        if row and (*stored, checkpoint.origin) != (*event, text_of(origin or b"")):
            what = f"is {shown(row)}, and the log has {base.at.stream_id}|{base.event_id} there"
            self._verified.add("checkpoint", checkpoint_key(self._keys), what)

    def _check_erased(self) -> Step[None]:
        """Check the numbers of erased events; a number may be read twice if others are added meanwhile."""
        at, key = 0, self._keys.erased
        while flat := (yield from ask(self._shard, "ZRANGE", key, at, at + _AT_ONCE - 1, "WITHSCORES")):
            for seq, score in zip(flat[::2], flat[1::2], strict=True):
                if not seq.isdigit() or float(score) != int(seq):
                    self._verified.add("erased", f"{key} {text_of(seq)}", "is not the number of an event")
            at += _AT_ONCE

    def _check_floor(self, floor: Floor, tail: Position) -> Step[None]:
        """Check that the floor is below the tail, and an event of the log if it is not trimmed yet."""
        stream_id, log = floor.position.stream_id, self._keys.log
        found, first = yield from ask_all(
            self._shard, [("XRANGE", log, stream_id, stream_id), ("XRANGE", log, "-", "+", "COUNT", 1)]
        )  # in this order: an archiver may trim in between
        is_trimmed = not first or entry_position(first[0], self._shard).seq > floor.position.seq
        problem = ""
        if floor.position.seq >= tail.seq:
            problem = f"which is not below the end of the log, {tail}"
        elif found and entry_id(found[0]) != floor.event_id:
            problem = f"and the event there is {entry_id(found[0])}"
        elif not (found or is_trimmed) and (yield from not_erased(self._keys, [floor.position])):
            problem = "and the log has no event there"
        if problem:
            self._verified.add("floor", self._keys.floor, f"is {floor.position.stream_id}|{floor.event_id}, {problem}")

    def _list_foreign(self) -> Step[None]:
        """Report the entries behind the tail."""
        for entry in (yield from read_foreign(self._log, self._shard, MAX_FINDINGS)):
            where = f"{self._keys.log} {entry.stream_id}"
            self._verified.add("foreign", where, "was added by hand behind the last event; run `scratchbus repair`")
