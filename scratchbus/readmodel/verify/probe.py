"""Consistent reads of a shard: some keys at once, with the log folded to exactly the same point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Command, packed
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import InvalidInput
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.gaps import count_all_erased, erased_between
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_numbers
from scratchbus.readmodel.gc_pause import with_gc_paused
from scratchbus.readmodel.verify.expected import ExpectedState
from scratchbus.readmodel.verify.findings import Verified
from scratchbus.readmodel.verify.read_model import ReadModel
from scratchbus.readmodel.verify.stored import StoredKeys
from scratchbus.readmodel.verify_script import probe

_CHUNK = 1_000  # entries of the log that are folded at once


class Moved(Exception):
    """The state was rebuilt meanwhile, or the log was replaced: start again."""


class Probe:
    """Reads a shard, and keeps the expected state up to date with it."""

    def __init__(self, log: Log, wanted: StoredKeys, verified: Verified, report: Callable[[int], None]) -> None:
        self.log, self.wanted, self.verified = log, wanted, verified
        self._keys = wanted.keys
        self._shard = wanted.keys.shard
        self._report = report
        self._end = START  # of the log, at the last read

    def read(self, commands: Iterable[Command]) -> Step[list[Any]]:
        """Read all this at once, and fold the log to the same point."""
        reads = packed([("GET", self._keys.floor), ("ZCARD", self._keys.erased), *commands])
        command = probe(*reads, tail=self._keys.tail, checkpoint=checkpoint_key(self._keys))
        base, tip = self.wanted.base, self.wanted.tip
        while True:
            (reply,) = yield Call(self._shard, (command,))
            tail, row, floor, erased, *replies = reply
            self.wanted.floor = Floor.parse(floor, None, self._shard).position
            end, checkpoint = stored_end(tail, self._shard), Checkpoint.parse(row, self._shard)
            if checkpoint.build != base.build or checkpoint.position < base.at or end < self._end:
                raise Moved
            self._end = end
            was_level = base.at >= checkpoint.position and tip.at >= end
            yield from self.fold(checkpoint.position, end)
            if was_level or (yield from count_all_erased(self._keys)) == erased:
                return list(replies)
            # events that were erased after the read may be missing in the fold: read again

    def fold(self, checkpoint: Position, end: Position) -> Step[None]:
        """Fold the read model up to the checkpoint, and the rest up to the end of the log; report faults of the log."""
        base, tip = self.wanted.base, self.wanted.tip
        for state, until in ((base, checkpoint), (tip, end)):
            while state.at[:2] < until[:2]:  # START has another shard
                entries = yield from self._read(state.at, until)
                if not entries:
                    break
                with_gc_paused(partial(self._apply, state, entries))
                self._report(tip.at.seq)

    def _apply(self, state: ReadModel | ExpectedState, entries: list[RawEntry]) -> None:
        """Fold entries that follow the read model, or the rest."""
        base, tip = self.wanted.base, self.wanted.tip
        items, is_level = decode_items(entries, self._shard), state.at == tip.at
        for entry, item in items:
            if is_level or item.position > tip.at:  # the read model may be behind
                tip.apply(entry, item, self.verified.add)
                self.verified.events += 1
                if isinstance(item, Erased):
                    base.forget(item)
                    self.wanted.tombstoned.update(_seqs(item.positions))
        if state is base:
            base.apply(items, tip.gaps)

    def _read(self, after: Position, end: Position) -> Step[list[RawEntry]]:
        """Read the next entries, and note which of them were erased."""
        after = after._replace(shard=self._shard)
        found = yield from LogReader(self.log, after, until=end.stream_id, chunk=_CHUNK).read()
        if found.entries:
            seqs = set(entry_numbers(found.entries)[1])
            erased = set((yield from erased_between(self._keys, after.seq, max(seqs))))
            self.wanted.erased_in_log |= erased & seqs
            self.wanted.tip.erased |= erased - seqs
        return found.entries


class ShardCheck:
    """A part of the verification of one shard, with the log, the expected state and the findings of its probe."""

    def __init__(self, probe: Probe) -> None:
        self._log, self._wanted, self._verified = probe.log, probe.wanted, probe.verified
        self._keys = probe.wanted.keys
        self._shard = probe.wanted.keys.shard
        self._read = probe.read


def _seqs(positions: Iterable[str]) -> Iterator[int]:
    """Yield the numbers of the events at these positions."""
    for text in positions:
        with suppress(InvalidInput):  # the tombstone was tampered with
            yield Position.parse(text).seq


def stored_end(tail: bytes | None, shard: int) -> Position:
    """Return the stored end of a log, START if it cannot be read."""
    try:
        return end_of(tail, shard)
    except (InvalidInput, ValueError):
        return START
