"""Check whether a bus kept its promises: read everything in the engine and compare it with the log.

The state is folded again from the log's first event; all other data in the engine must follow from it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scratchbus import Bus
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.eventlog.codec import Poison, decode_entry
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.raw_entries import entry_fields, entry_position
from tests.faults.engine_state import PageState, ShardState, read_shard
from tests.faults.marks import traced
from tests.oracle.expected import dedupe_keys, head_of, index_scores, next_moment, open_scores
from tests.oracle.fold import Folded, fold

_TEXT = re.compile(r'"([\w-]+)"')

Documents = dict[str, Observation]


class Finding(NamedTuple):
    """A broken promise: the kind of breach and its evidence."""

    kind: str
    what: str


@dataclass
class Acknowledged:
    """Acknowledged writes: ids of events, and words that must occur in the body of exactly one event."""

    event_ids: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)


def check(bus: Bus, acknowledged: Acknowledged | None = None) -> list[Finding]:
    """Return all findings about a bus that nobody is using; a sound bus has none."""
    log = bus.core.log
    states = [bus.converse(read_shard(log, shard)) for shard in range(log.shards)]
    found = [finding for state in states for finding in judge(state)]
    return found + judge_acknowledged(states, acknowledged or Acknowledged())


def judge(state: ShardState) -> list[Finding]:
    """Return the findings about one shard."""
    found = [*_judge_log(state), *_judge_batches(state), *_judge_rejected(state)]
    whole = fold(state.entries, state.shard)
    end = _by_page(whole)
    folded = state.entries[: _count_folded(state)]
    reached = end if len(folded) == len(state.entries) else _by_page(fold(folded, state.shard))
    found += _judge_chains(whole)
    due: dict[str, float] = {}
    for page, held in state.pages.items():
        found += _judge_state(page, held, reached[page], state)
        found += _judge_heads(page, held, end[page], state.floor)
        found += _judge_open(page, held)
        moments = {id: next_moment(head_of(document)) for id, document in reached[page].items()}
        due |= {f"{id}@{page}": moment for id, moment in moments.items() if moment}
    return [*found, *_differences("due drift", f"shard {state.shard}", state.due, due)]


def _judge_log(state: ShardState) -> Iterable[Finding]:
    ids: Counter[str] = Counter()
    ms = seq = 0
    for entry in state.entries:
        at = entry_position(entry, state.shard)
        if at.ms < ms or at.seq <= seq:
            yield Finding("non-monotonic", f"{at} after {ms}-{seq}")
        elif at.seq != seq + 1:
            yield Finding("gap", f"{at} after {ms}-{seq}")
        ms, seq = at.ms, at.seq
        ids[entry_fields(entry)[b"id"].decode()] += 1
    for id, times in ids.items():
        if times > 1:
            yield Finding("duplicated", f"event {id} occurs {times} times")
    if state.entries:
        last = state.entries[-1]
        tail = f"{last[0].decode()}|{entry_fields(last)[b'id'].decode()}"
        if state.tail != tail:
            yield Finding("tail", f"{state.tail!r} is not {tail!r}")
        if not state.origin:
            yield Finding("tail", "the origin is missing")


def _judge_batches(state: ShardState) -> Iterable[Finding]:
    expected = (1, 0)
    for entry in state.entries:
        index, total = map(int, entry_fields(entry)[b"batch"].split(b"/"))
        if (index, total) != expected and not (index == 1 and expected[1] == 0):
            yield Finding("torn batch", f"{entry[0].decode()} is {index}/{total}, expected {expected}")
        expected = (1, 0) if index == total else (index + 1, total)
    if expected[1]:
        yield Finding("torn batch", f"the log ends, expected {expected}")


def _judge_rejected(state: ShardState) -> Iterable[Finding]:
    for entry in state.entries:
        if entry[0].decode() in state.rejected:
            try:
                decode_entry(entry, state.shard)
            except Poison:
                continue
            yield Finding("rejected", f"{entry[0].decode()} is a sound event and was rejected")


def _by_page(folded: Folded) -> dict[str, Documents]:
    pages: dict[str, Documents] = defaultdict(dict)
    for (page, id), document in folded.observations().items():
        pages[page][id] = document
    return pages


def _count_folded(state: ShardState) -> int:
    return sum(entry_position(entry, state.shard) <= state.checkpoint.position for entry in state.entries)


def _judge_chains(folded: Folded) -> Iterable[Finding]:
    for (page, subject), what in folded.broken.items():
        yield Finding("broken chain", f"{subject} on {page}: {what}")


def _judge_state(page: str, held: PageState, folded: Documents, state: ShardState) -> Iterable[Finding]:
    yield from _differences("state != fold", page, held.docs, folded)
    if missing := {document.type for document in folded.values()} - held.types:
        yield Finding("index drift", f"{page}: the types {sorted(missing)} are not listed")
    yield from _differences("index drift", page, held.indexes, index_scores(folded))
    positions = [
        entry_position(entry, state.shard)
        for entry in state.entries[: _count_folded(state)]
        if entry_fields(entry)[b"page"].decode() == page and entry_position(entry, state.shard) > state.floor
    ]
    if [position for position in held.positions if not 0 < position.seq <= state.floor.seq] != positions:
        yield Finding("index drift", f"{page}: {len(held.positions)} positions instead of {len(positions)}")
    if page not in state.names:
        yield Finding("index drift", f"{page} is not in the list of pages")


def _judge_heads(page: str, held: PageState, folded: Documents, floor: Position) -> Iterable[Finding]:
    if page == SYSTEM_PAGE:
        return  # has no observations
    live = {id: head for id, head in held.heads.items() if head.status not in ("cleared", "erased")}
    expected = {
        id: head_of(document)
        for id, document in folded.items()
        if id in live
        or document.status_class != "final"
        or document.position > floor  # otherwise an archiver dropped its head
    }
    yield from _differences("heads != fold", page, live, expected)


def _judge_open(page: str, held: PageState) -> Iterable[Finding]:
    yield from _differences("room drift", page, held.open, open_scores(held.heads))
    yield from _differences("keys drift", page, held.dedupe, dedupe_keys(held.heads))


def _differences(kind: str, where: str, held: Mapping[Any, Any], expected: Mapping[Any, Any]) -> Iterable[Finding]:
    for key in held.keys() | expected.keys():
        if held.get(key) != expected.get(key):
            yield Finding(kind, f"{where}: {key}: {held.get(key)!r} instead of {expected.get(key)!r}")


def judge_acknowledged(states: Iterable[ShardState], acknowledged: Acknowledged) -> list[Finding]:
    """Return acknowledged writes that are missing, or in the log more than once."""
    texts, ids = Counter[str](), Counter[str]()
    for state in states:
        for entry in state.entries:
            fields = entry_fields(entry)
            body = fields[b"event"].decode()
            texts.update(_TEXT.findall(body) + traced(body))
            ids[fields[b"id"].decode()] += 1
    found = [Finding("lost", f"event {id}") for id in acknowledged.event_ids if not ids[id]]
    for mark in acknowledged.marks:
        times = texts[mark]
        if times != 1:
            found.append(Finding("duplicated" if times else "lost", f"{mark} occurs {times} times"))
    return found
