"""Consistent looks at a shard: some keys at once, with the log folded to exactly where it was then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Command, Key, lua_script, packed
from scratchbus.engine.steps import Call, Step, ask
from scratchbus.errors import InvalidInput
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.below_floor import Floor, read_floor
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_unchecked
from scratchbus.eventlog.codec import Poison, RawEntry, decode_items, entry_position
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.positions import read_many_positions
from scratchbus.projections import scratch_page
from scratchbus.readmodel.verify.expected import Say, State
from scratchbus.readmodel.verify.findings import Verified
from scratchbus.readmodel.verify.stored import StoredKeys

_CHUNK = 1_000  # entries of the log that are folded at once
_AT_ONCE = 500  # pages whose positions are read at once


@lua_script("eventlog/commands", "readmodel/verify/probe", only_reads=True)
def _probe(*commands: object, tail: Key, checkpoint: Key) -> None:
    """Run commands that read, in one consistent look."""


class Moved(Exception):
    """The state was rebuilt meanwhile, or the log was replaced: start again."""


class Probe:
    """Looks at a shard, and keeps the expected state up to date with that.

    `places` has of each page the last position that was compared; `strays` are the pages where one is wrong.
    """

    def __init__(self, log: Log, wanted: StoredKeys, verified: Verified, note: Callable[[int], None]) -> None:
        self._log = log
        self._keys = wanted.keys
        self._shard = wanted.keys.shard
        self._wanted = wanted
        self._verified = verified
        self._note = note
        self._end = START  # of the log, as the last look saw it
        self.places: dict[str, Position] = {}
        self.strays: set[str] = set()

    def look(self, commands: Iterable[Command]) -> Step[list[Any]]:
        """Read all this at once, and fold the log to exactly there."""
        reads = packed([("GET", self._keys.floor), *commands])
        command = _probe(*reads, tail=self._keys.tail, checkpoint=checkpoint_key(self._keys))
        (reply,) = yield Call(self._shard, (command,))
        tail, row, floor, *replies = reply
        self._wanted.floor = Floor.parse(floor, None, self._shard).position
        end, checkpoint = said_end(tail, self._shard), Checkpoint.parse(row, self._shard)
        base = self._wanted.base
        if checkpoint.build != self._wanted.build or checkpoint.position < base.at or end < self._end:
            raise Moved
        self._end = end
        if checkpoint.position > base.at:
            yield from self.fold_base(checkpoint.position)
        yield from self.fold(self._wanted.tip, end, _say_nothing)
        return list(replies)

    def fold(self, state: State, end: Position, say: Say) -> Step[None]:
        """Fold the log up to a position, or its end."""
        while state.at < end:
            entries = yield from self._read(state, end)
            if not entries:
                return
            for entry, item in decode_items(entries, self._shard):
                state.apply(entry, item, say)

    def fold_base(self, end: Position) -> Step[None]:
        """Fold the log up to the checkpoint, report what is wrong with it, and compare the positions of its pages."""
        base = self._wanted.base
        while base.at < end:
            entries = yield from self._read(base, end)
            if not entries:
                break
            places: dict[str, list[Position]] = defaultdict(list)
            for entry, item in decode_items(entries, self._shard):
                base.apply(entry, item, self._verified.add)
                for name, cause, effect in () if isinstance(item, Poison) else scratch_page.relations(item):
                    self._wanted.relations[name].add(f"{cause}\t{effect}")
                places[item.page].append(item.position)
            yield from self._compare_places(places)
            self._note(base.at.seq)
        self._wanted.tip = base.branch()

    def _read(self, state: State, end: Position) -> Step[list[RawEntry]]:
        """Read the next entries, and tell the state which of them were erased."""
        after = state.at._replace(shard=self._shard)
        found = yield from LogReader(self._log, after, until=end.stream_id, chunk=_CHUNK).read()
        if found.entries and not found.is_whole:
            last = entry_position(found.entries[-1], self._shard).seq
            gone = yield from ask(self._shard, "ZRANGEBYSCORE", self._keys.erased, after.seq, last)
            state.erased.update(map(int, gone))
        return found.entries

    def _compare_places(self, places: dict[str, list[Position]]) -> Step[None]:
        """Compare the positions of pages with those of the events that were just folded."""
        for some in batches(list(places), _AT_ONCE):
            wrong = yield from self._differing({page: places[page] for page in some})
            if wrong:  # unless they were cut off just now
                self._wanted.floor = (yield from read_floor(self._log, self._shard)).position
                wrong = yield from self._differing({page: places[page] for page in wrong})
            for page in wrong:
                self.strays.add(page)
                last = places[page][-1]
                self._verified.add("position", self.positions(page), f"are not those of its events, up to {last}")
        self.places |= {page: folded[-1] for page, folded in places.items()}
        if (yield from read_unchecked(self._keys)).build != self._wanted.build:
            raise Moved

    def _differing(self, places: dict[str, list[Position]]) -> Step[list[str]]:
        """Return the pages that do not have these positions next; below the floor there need not be any."""
        floor = self._wanted.floor
        above = {page: [place for place in folded if place > floor] for page, folded in places.items()}
        pages = [page for page, folded in above.items() if folded and page not in self.strays]
        wants = [(self.positions(page), max(self.places.get(page, START), floor), len(above[page])) for page in pages]
        found = yield from read_many_positions(self._shard, wants)
        return [page for page, held in zip(pages, found, strict=True) if held != above[page]]

    def positions(self, page: str) -> str:
        """Return the key of the positions of a page."""
        return PageKeys(self._keys, page, self._wanted.build).positions


def said_end(tail: bytes | None, shard: int) -> Position:
    """Return the stored end of a log, START if it cannot be read."""
    try:
        return end_of(tail, shard)
    except (InvalidInput, ValueError):
        return START


def _say_nothing(kind: str, where: str, what: str) -> None:
    """Report nothing: the same is reported when it is folded into the base."""


def batches(names: list[str], size: int) -> Iterator[list[str]]:
    """Yield so many names at a time."""
    return (names[at : at + size] for at in range(0, len(names), size))
