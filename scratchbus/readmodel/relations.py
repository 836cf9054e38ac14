"""Relations across the bus: which observations rest on which, lead to which actions, cause which events.

The relations are indexes of the projection. A reader adds the unfolded events, so that it sees every write that was
acknowledged before it began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask_all, batches
from scratchbus.errors import PositionLost
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.archive_protocol import LogArchive
from scratchbus.eventlog.below_floor import from_archive, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_checkpoint
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.projections import event_relations
from scratchbus.projections.subjects import is_remembered
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.commits import NO_COMMIT
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.queries import get, page_names

_AT_ONCE = 500
"""How many commands, or ids in a command, are sent in one round trip."""

_PAIRS = 10_000  # of a page and an id, looked up in one round trip

_TRIES = 3  # for ids that are paged in, or whose build is replaced, meanwhile


@dataclass(slots=True)
class Relations:
    """The relations of some shards, as of when they were opened or later.

    Everything up to `reached` is included, by shard; `_late` has the relations not folded by then.
    """

    log: Log
    reached: dict[int, Position] = field(default_factory=dict)
    _builds: dict[int, int] = field(default_factory=dict)
    _newer: dict[tuple[int, str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def open(self, shard: int) -> Step[None]:
        """Fold the missing events of a shard, or read them if folding is refused."""
        try:
            checkpoint, is_end = (yield from catch_up(self.log, shard)), True
        except NO_COMMIT:
            checkpoint, is_end = (yield from read_checkpoint(self.log.keys(shard))), False
        self._builds[shard], reader = checkpoint.build, LogReader(self.log, checkpoint.position)
        while not is_end:
            entries, is_end, *_ = yield from reader.read()
            for _, event in decode_items(entries, shard):
                if isinstance(event, Event):
                    for relation, start, end in event_relations.relations(event):
                        self._newer[shard, relation, start].append(end)
        self.reached[shard] = reader.at

    def leading_from(self, relation: str, starts: Iterable[str]) -> Step[dict[str, list[tuple[int, str]]]]:
        """Return where a relation leads from each of these, with the shard that has the entry."""
        found: dict[str, list[tuple[int, str]]] = {start: [] for start in starts}
        start_list = list(found)
        for shard in self._builds:
            for batch in batches(start_list, _AT_ONCE):
                rows = yield from self._folded(shard, relation, batch)
                for start, members in zip(batch, rows, strict=True):
                    folded = [text_of(member).partition("\t")[2] for member in members]
                    newer = self._newer.get((shard, relation, start), [])
                    found[start] += [(shard, end) for end in dict.fromkeys([*folded, *newer])]
        return found

    def _folded(self, shard: int, relation: str, starts: Sequence[str]) -> Step[list[list[bytes]]]:
        """Return the members of a relation that begin with each of these, all of one build of the state."""
        keys = self.log.keys(shard)
        while True:
            key = keys.page("", self._builds[shard]).relation(relation)
            *rows, now = yield from ask_all(
                shard,
                [
                    *(("ZRANGEBYLEX", key, f"[{start}\t", b"[" + start.encode() + b"\t\xff") for start in starts),
                    ("GET", checkpoint_key(keys)),
                ],
            )
            build = Checkpoint.parse(now, shard).build
            if build == self._builds[shard]:
                return list(rows)
            self._builds[shard] = build  # rebuilt meanwhile; the previous build may be gone


def open_relations(log: Log, shards: Iterable[int] | None = None) -> Step[Relations]:
    """Return the relations of these shards, or of all."""
    relations = Relations(log)
    for shard in range(log.shards) if shards is None else shards:
        yield from relations.open(shard)
    return relations


@dataclass(frozen=True, slots=True)
class Resting:
    """The dependents of an observation, direct or indirect, the nearest first; cycles end where they close.

    `beneath` has the ids that rest on each one directly, the oldest first; `pages` the page of each except the first.
    `facts` are those that rest on the first one directly, each with its page.
    """

    beneath: dict[str, list[str]]
    pages: dict[str, str]
    facts: dict[str, str] = field(default_factory=dict)


def resting_on(relations: Relations, id: str) -> Step[Resting]:
    """Return the dependents of an observation on all pages, whatever their status."""
    resting = Resting({}, {})
    level = [id]
    while level:
        found = yield from relations.leading_from("evidence", level)
        level = []
        for start, ends in found.items():
            dependents = resting.beneath[start] = []
            for end in sorted(end for _, end in ends):
                subject, _, page = end.partition("@")
                if is_remembered(subject):
                    if start == id:
                        resting.facts[subject] = page
                    continue
                dependents.append(subject)
                if subject != id and subject not in resting.pages:
                    resting.pages[subject] = page
                    level.append(subject)
    return resting


def gather(
    log: Log, pages: Mapping[str, str], freshness: Freshness, *, finds_paged_out: bool = True
) -> Step[dict[str, Observation]]:
    """Return the observations with these ids, each from its page, in this order, without those that have left it.

    Those that are paged out can be left out; see `get`.
    """
    found: dict[str, Observation] = {}
    for page, ids in ids_by_page(pages).items():
        for batch in batches(ids, _AT_ONCE):
            found |= yield from get(log, page, batch, freshness, finds_paged_out=finds_paged_out)
    return {id: found[id] for id in pages if id in found}


def ids_by_page(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids of each page, given the page of each id."""
    ids: dict[str, list[str]] = defaultdict(list)
    for id, page in pages.items():
        ids[page].append(id)
    return ids


def find_pages(log: Log, ids: list[str]) -> Step[dict[str, str]]:
    """Return the page of each of these ids that is, or before archiving was, on any page of the bus."""
    found: dict[str, str] = {}
    shards, missing = list(range(log.shards)), ids
    for _ in range(_TRIES):
        checkpoints = dict[int, Checkpoint]()
        for shard in shards:
            checkpoints[shard] = yield from read_checkpoint(log.keys(shard))
            found |= yield from _find_on_shard(log, checkpoints[shard], missing)
        missing = [id for id in ids if id not in found]
        if not missing:
            break
        shards = []
        for shard, checkpoint in checkpoints.items():
            if may_have_hidden(checkpoint, (yield from read_checkpoint(log.keys(shard)))):
                shards.append(shard)
    return found


def may_have_hidden(before: Checkpoint, now: Checkpoint) -> bool:
    """Return whether a reader of several keys may have missed an id between these checkpoints.

    It was paged in meanwhile, or the keys of the previous build were deleted.
    """
    return now.build != before.build or (before.is_paged and now != before)


def _find_on_shard(log: Log, checkpoint: Checkpoint, ids: list[str]) -> Step[dict[str, str]]:
    shard, build, found = checkpoint.position.shard, checkpoint.build, dict[str, str]()
    keys = log.keys(shard)
    names = yield from page_names(keys)
    for missing in batches(ids, _AT_ONCE):
        for batch in batches(names, max(1, _PAIRS // len(missing))):
            rows = yield from ask_all(shard, [("HMGET", keys.heads(name), *missing) for name in batch])
            candidates = [(id, name) for name in batch for id in missing]
            stored = [("HEXISTS", keys.page(name, build).docs, id) for id, name in candidates]
            heads = [head for row in rows for head in row]
            for (id, name), *flags in zip(candidates, heads, (yield from ask_all(shard, stored)), strict=True):
                if any(flags):
                    found[id] = name
            for name in batch if checkpoint.is_paged else ():
                elsewhere = [id for id in missing if id not in found]
                found |= dict.fromkeys(
                    (yield from paged_out.locate(log, keys.page(name, build), shard, elsewhere)), name
                )
            missing = [id for id in missing if id not in found]
            if not missing:
                break
    return found


def find_archived_pages(log: Log, ids: list[str]) -> Step[dict[str, str]]:
    """Return the page of each of these ids that only the archive has. Raises PositionLost if it cannot be read."""
    found: dict[str, str] = {}
    for shard in range(log.shards):
        missing = [id for id in ids if id not in found]
        floor = (yield from read_floor(log, shard)) if missing else None
        if floor is None or not floor.position.seq:
            continue
        found |= yield from from_archive(
            log, shard, ", ".join(missing), partial(_pages_of, shard, floor.origin, missing)
        )
    return found


def may_be_archived(log: Log, id: str) -> Step[bool]:
    """Return whether the archive has an id that no page has any more; True if the archive cannot be read."""
    try:
        return bool((yield from find_archived_pages(log, [id])))
    except PositionLost:
        return True


def _pages_of(shard: int, origin: str, ids: list[str], archive: LogArchive) -> dict[str, str]:
    return archive.pages_of(shard, origin, ids)
