"""The expected read model: the result of the projector's own fold, kept in dictionaries."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Command
from scratchbus.errors import InvalidInput
from scratchbus.eventlog.checkpoint import Checkpoint
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.positions import WIDTH, pack
from scratchbus.eventlog.raw_entries import RawEntry, entry_id
from scratchbus.eventlog.stored_documents import read_document
from scratchbus.projections.subjects import projection_of
from scratchbus.readmodel.fold import Fold, needed
from scratchbus.readmodel.state_commands import commands


def offset_of(packed: bytearray, ms: int, seq: int) -> int:
    """Return the offset of the first packed position that is not before this one."""
    starts = range(0, len(packed), WIDTH)
    return WIDTH * bisect_left(starts, pack((ms, seq)), key=lambda at: bytes(packed[at : at + WIDTH]))


class ReadModel:
    """One build of a shard's read model, folded up to `at`, the event `event_id`.

    `rows` has the members of each hash and sorted set with their values or scores, by key; `positions` the packed
    positions of each page, by key; `rejected` the stream ids of the events that could not be folded. `erased_types` are
    types, each with its page's key of types, that may have no observations left. `unfolded` has, by page and subject,
    the seqs of tombstones behind `at`: until they are folded, the engine may have what the erased events led to, or
    not. `erased_ends` are the ends of relations that erased events recorded.
    """

    def __init__(self, keys: ShardKeys) -> None:
        self.build = 0
        self.at: Position = START
        self.event_id = ""
        self.rows: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.positions: defaultdict[str, bytearray] = defaultdict(bytearray)
        self.rejected: set[str] = set()
        self.erased_types: set[tuple[str, str]] = set()
        self.erased_ends: set[str] = set()
        self.unfolded: dict[tuple[str, str], int] = {}
        self._keys = keys

    def apply(self, items: Sequence[tuple[RawEntry, Event | Poison]], gaps: Mapping[str, int]) -> None:
        """Fold the next entries; `gaps` maps entries to how many events are missing before them."""
        fold = Fold(self._keys.shard)
        for page, subjects in needed(item for _, item in items).items():
            for subject in subjects:
                fold.load((page, subject), self._row(page, subject))
        for entry, item in items:
            fold.apply(entry, item)
            stream_id = item.position.stream_id
            if stream_id in gaps:
                fold.gaps[stream_id] = gaps[stream_id]
        for command in commands(self._keys, fold, Checkpoint(build=self.build)):
            self._run(command)
        self.at, self.event_id = items[-1][1].position, entry_id(items[-1][0])
        self.unfolded = {subject: seq for subject, seq in self.unfolded.items() if seq > self.at.seq}

    def forget(self, tombstone: Erased) -> None:
        """Drop the data that the append script drops with erased events when it writes their tombstone."""
        names = self._keys.page(tombstone.page, self.build)
        self.unfolded[tombstone.page, tombstone.subject] = tombstone.seq
        self.erased_ends |= {f"{tombstone.subject}@{tombstone.page}", *tombstone.positions}
        self.erased_types.add((names.types, tombstone.type))
        page_positions = self.positions[names.positions]
        for stream_id in tombstone.positions:
            self.rejected.discard(stream_id)
            with suppress(InvalidInput):  # the tombstone was tampered with
                ms, seq, _ = Position.parse(stream_id)
                at = offset_of(page_positions, ms, seq)
                if page_positions[at : at + WIDTH] == pack((ms, seq)):
                    del page_positions[at : at + WIDTH]

    def observation(self, page: str, id: str) -> Observation | None:
        """Return an observation on a page."""
        row = self._row(page, id)
        found = read_document(id, row) if row is not None else None
        return found if isinstance(found, Observation) else None

    def _row(self, page: str, subject: str) -> bytes | None:
        rows = self.rows.get(getattr(self._keys.page(page, self.build), projection_of(subject).store))
        return rows.get(subject) if rows else None

    def _run(self, command: Command) -> None:
        """Apply a command to the dictionaries as the engine would."""
        verb, key, arguments = str(command[0]), str(command[1]), command[2:]
        match verb:
            case "HSET":
                self.rows[key].update(zip(map(str, arguments[::2]), arguments[1::2], strict=True))
            case "ZADD":
                self.rows[key].update(zip(map(str, arguments[1::2]), arguments[::2], strict=True))
            case "HDEL" | "ZREM":
                for member in arguments:
                    self.rows[key].pop(str(member), None)
            case "UNLIST":
                if not self.rows[str(arguments[1])]:
                    self.rows[key].pop(str(arguments[0]), None)
            case "DEL":
                self.rows[key].clear()
            case "APPEND":
                self.positions[key] += arguments[0]
            case "XADD":
                self.rejected.add(arguments[0].decode())
            case _:
                raise NotImplementedError(f"{verb} in the commands of a fold")
