"""Looking at a shard: some keys at once, with the log folded to just where it was then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scratchbus.domain.position import START, Position
from scratchbus.errors import InvalidInput
from scratchbus.folding import decode_all
from scratchbus.log import positions
from scratchbus.log.codec import Poison, RawEntry, entry_position
from scratchbus.log.commit import Checkpoint, checkpoint_key
from scratchbus.log.keys import PageKeys
from scratchbus.log.lag import end_of
from scratchbus.log.steps import Call, Script, Step, ask, ask_all
from scratchbus.verification.findings import Verified
from scratchbus.verification.holdings import Holdings
from scratchbus.verification.state import Say, State

_PROBE = Script("probe", only_reads=True)
_CHUNK = 1_000  # entries of the log that are folded at once
_AT_ONCE = 500  # pages whose positions are read at once


class Moved(Exception):
    """The state was built anew meanwhile, or the log was replaced: it has to be compared anew."""


class Looker:
    """Looks at a shard, and keeps what it has to hold up with that.

    `places` counts of each page how many positions were compared; `strays` are the pages where these are wrong.
    """

    def __init__(self, wanted: Holdings, verified: Verified, note: Callable[[int], None]) -> None:
        self._keys = wanted.keys
        self._shard = wanted.keys.shard
        self._wanted = wanted
        self._verified = verified
        self._note = note
        self._end = START  # of the log, as the last look saw it
        self.places: dict[str, int] = {}
        self.strays: set[str] = set()

    def look(self, commands: Iterable[tuple[Any, ...]]) -> Step[list[Any]]:
        """Read all this at once, and fold the log to just there."""
        arguments = [part for command in commands for part in (len(command), *command)]
        names = (self._keys.tail, checkpoint_key(self._keys))
        (reply,) = yield Call(self._shard, (_PROBE.command(names, arguments),))
        tail, row, *replies = reply
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
        """Fold the log up to a position, as far as it has that."""
        while state.at < end:
            entries = yield from self._read(state, end)
            if not entries:
                return
            for entry, item in decode_all(entries, self._shard):
                state.apply(entry, item, say)

    def fold_base(self, end: Position) -> Step[None]:
        """Fold the log up to the checkpoint, say what is wrong with it, and compare the positions of its pages."""
        base = self._wanted.base
        while base.at < end:
            entries = yield from self._read(base, end)
            if not entries:
                break
            places: dict[str, list[int]] = defaultdict(list)
            for entry, item in decode_all(entries, self._shard):
                base.apply(entry, item, self._verified.add)
                page = item.envelope["page"] if isinstance(item, Poison) else item.page
                places[page] += item.position[:2]
            yield from self._compare_places(places)
            self._note(base.at.seq)
        self._wanted.tip = base.branch()

    def _read(self, state: State, end: Position) -> Step[list[RawEntry]]:
        """Read what comes next, and tell the state what was erased of it."""
        after = state.at
        found: list[RawEntry] = yield from ask(
            self._shard, "XRANGE", self._keys.log, f"({after.stream_id}", end.stream_id, "COUNT", _CHUNK
        )
        if found and (last := entry_position(found[-1], self._shard).seq) != after.seq + len(found):
            gone = yield from ask(self._shard, "ZRANGEBYSCORE", self._keys.erased, after.seq, last)
            state.erased.update(map(int, gone))
        return found

    def _compare_places(self, places: dict[str, list[int]]) -> Step[None]:
        """Compare the positions of pages with those of the events that were just folded."""
        names = list(places)
        for some in batches(names, _AT_ONCE):
            commands: list[tuple[Any, ...]] = []
            for page in some:
                first = self.places.get(page, 0) * positions.WIDTH
                width = len(places[page]) // 2 * positions.WIDTH
                commands.append(("GETRANGE", self.positions(page), first, first + width - 1))
            *rows, row = yield from ask_all(self._shard, [*commands, ("GET", checkpoint_key(self._keys))])
            if Checkpoint.parse(row, self._shard).build != self._wanted.build:
                raise Moved
            for page, held in zip(some, rows, strict=True):
                if held != positions.pack(places[page]) and page not in self.strays:
                    self.strays.add(page)
                    what = f"are not those of its events, up to {places[page][-2]}-{places[page][-1]}"
                    self._verified.add("position", self.positions(page), what)
                self.places[page] = self.places.get(page, 0) + len(places[page]) // 2

    def positions(self, page: str) -> str:
        """Return where the positions of a page are kept."""
        return PageKeys(self._keys, page, self._wanted.build).positions


def said_end(tail: bytes | None, shard: int) -> Position:
    """Return where a log is said to end; the start when that cannot be read."""
    try:
        return end_of(tail, shard)
    except (InvalidInput, ValueError):
        return START


def _say_nothing(kind: str, where: str, what: str) -> None:
    """Take what is said when the same is folded into the base."""


def batches(names: list[str], size: int) -> Iterator[list[str]]:
    """Yield so many names at a time."""
    return (names[at : at + size] for at in range(0, len(names), size))
