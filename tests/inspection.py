"""Inspect the raw data of a bus: log, documents, heads and indexes, and check that they agree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from scratchbus import Bus, Event, Observation
from scratchbus.archive.archiver import Archived, archive_bus
from scratchbus.domain.document import Remembered
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Call, Step, ask, ask_all
from scratchbus.eventlog import index_tables
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, checkpoint_key
from scratchbus.eventlog.codec import decode_entry
from scratchbus.eventlog.index_tables import PagedOut, entries_in, id_text, ids_in
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position
from scratchbus.eventlog.stored_documents import read_document
from scratchbus.projections import event_relations, scratch_page, subjects
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.readmodel.scope import Host
from tests import clock
from tests.oracle.expected import dedupe_keys, head_of, index_scores, next_moment, open_scores
from tests.oracle.fold import fold
from tests.waiting import eventually

Documents = dict[tuple[str, str], Observation]

_INDEX = re.compile(r"\}:p\d+:(type|tag|owner|waiting):")


class _Replies(dict[tuple[Any, ...], Any]):
    """The replies of a bus's engine by command, cached while nothing changes.

    All keys of the bus are read in three round trips; any other command is sent once. Many tests spend most of their
    time on these checks.
    """

    def __init__(self, bus: Host) -> None:
        self.logs = dict[int, list[RawEntry]]()
        self._bus = bus
        self._keys = frozenset(map(bytes.decode, self["KEYS", f"{{{bus.core.log.bus}:*"]))
        kinds = self._ask_all(("TYPE", key) for key in self._keys)
        self._ask_all(_WHOLE[kind](key) for (_, key), kind in kinds.items())

    def _ask_all(self, commands: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
        asked = list(commands)
        replies = dict(zip(asked, self._bus.converse(ask_all(0, asked)), strict=True)) if asked else {}
        self.update(replies)
        return replies

    def __missing__(self, command: tuple[Any, ...]) -> Any:
        verb, key, *_ = command
        if verb in _NOTHING and key not in self._keys:
            self[command] = _NOTHING[verb]
        else:
            self[command] = self._bus.converse(ask(0, *command))
        return self[command]


_WHOLE: dict[bytes, Callable[[str], tuple[Any, ...]]] = {
    b"string": lambda key: ("GET", key),
    b"hash": lambda key: ("HGETALL", key),
    b"zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
    b"stream": lambda key: ("XRANGE", key, "(0-0", "+"),
    b"list": lambda key: ("LRANGE", key, 0, -1),
    b"set": lambda key: ("SMEMBERS", key),
}
"""The command that reads a whole key, by type."""

_NOTHING: dict[str, Any] = {"GET": None, "HGETALL": [], "ZRANGE": [], "XRANGE": []}
"""The replies of these commands for a missing key."""

_replies: _Replies | None = None
"""The cached replies; None while things may change."""


def send(bus: Host, *command: Any) -> Any:
    """Send one bare command to the engine of a bus."""
    return bus.converse(ask(0, *command)) if _replies is None else _replies[command]


@contextmanager
def _nothing_changes(bus: Host) -> Iterator[None]:
    """Read each key once and cache the replies."""
    global _replies
    _replies = _Replies(bus)
    try:
        yield
    finally:
        _replies = None


def round_trips(bus: Host, conversation: Step[object]) -> int:
    """Return how many round trips a conversation that only reads takes."""
    asked, reply = 0, None
    while True:
        try:
            call = cast(Call, conversation.send(reply))
        except StopIteration:
            return asked
        reply = [send(bus, *command) for command in call.commands]
        asked += 1


def keys_of(bus: Host, page: str = "main") -> ShardKeys:
    """Return the keys of the shard that a page is on."""
    return bus.core.log.keys(bus.core.log.shard(page))


def entries(bus: Bus, shard: int) -> list[RawEntry]:
    """Return the raw log of a shard, including its archived events."""
    if _replies is None:
        return _read_log(bus, shard)
    if shard not in _replies.logs:
        _replies.logs[shard] = _read_log(bus, shard)
    return _replies.logs[shard]


def _read_log(bus: Bus, shard: int) -> list[RawEntry]:
    floor = _floor(bus, shard)
    erased = {int(seq) for seq in send(bus, "ZRANGE", bus.core.log.keys(shard).erased, 0, -1)}
    at, archived = Position(0, 0, shard), list[RawEntry]()
    while at < floor.position:
        chunk = bus.core.log.archive.after(shard, floor.origin, at, floor.position, 10_000)
        archived += [entry for entry in chunk.entries if entry_position(entry, shard).seq not in erased]  # in a cache
        at = chunk.at
    return archived + list(send(bus, "XRANGE", bus.core.log.keys(shard).log, f"({floor.position.stream_id}", "+"))


def all_events(bus: Bus) -> list[Event]:
    """Return every event of every shard, each log in its order."""
    return [decode_entry(entry, shard) for shard in range(bus.core.log.shards) for entry in entries(bus, shard)]


def log_length(bus: Bus) -> int:
    """Return the number of events in all logs of the bus."""
    return sum(send(bus, "XLEN", bus.core.log.keys(shard).log) for shard in range(bus.core.log.shards))


def raw_append(bus: Bus, page: str = "main", **fields: Any) -> str:
    """Append an entry with the next seq, without the append script; return its stream id."""
    keys = keys_of(bus, page)
    tail = send(bus, "GET", keys.tail)
    ms, seq = (int(part) for part in tail.partition(b"|")[0].split(b"-")) if tail else (1, 0)
    id = f"{ms}-{seq + 1}"
    entry = {"id": f"raw{seq}", "page": page, "subject": "", "kind": "", "type": "", "batch": "1/1"} | fields
    flat = [part for field in entry.items() for part in field]
    commands = (("XADD", keys.log, id, *flat), ("SET", keys.tail, f"{id}|raw{seq}"))
    bus.converse(_call(keys.shard, *commands))
    return id


def _call(shard: int, *commands: tuple[Any, ...]) -> Step[list[Any]]:
    replies = yield Call(shard, commands, is_write=True)
    return list(replies)


def now_ms(bus: Host) -> int:
    """Return the engine's time in milliseconds."""
    seconds, microseconds = send(bus, "TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def await_tick(bus: Host) -> None:
    """Wait for the next millisecond; a test's clock does not advance by itself."""
    now = now_ms(bus)
    eventually(lambda: clock.is_turned or now_ms(bus) > now)


def settle(bus: Host) -> None:
    """Wait until all events are some milliseconds old; a test's clock does not advance by itself."""
    tails = [bus.converse(ask(shard, "GET", bus.core.log.keys(shard).tail)) for shard in range(bus.core.log.shards)]
    last = max(int(tail.partition(b"-")[0]) for tail in tails if tail)
    eventually(lambda: clock.is_turned or now_ms(bus) > last + 1)


def archive(bus: Host, **how: Any) -> list[Archived]:
    """Run an archiver once all events are old enough."""
    settle(bus)
    return archive_bus(bus, **how)


def mostly_archived(connect: Callable[..., Bus], directory: Path) -> Bus:
    """Return a bus with 30 events on its page's shard, of which the first 24 are in an archive alone."""
    bus = connect(archive_url=str(directory), retain="1ms", retain_events=6, archive_segment=8)
    for number in range(30):
        bus.page().add("observation", f"{number}")
    archive(bus)
    return bus


def project(bus: Host) -> None:
    """Fold all events, as a projector does."""
    for shard in range(bus.core.log.shards):
        keys = bus.core.log.keys(shard)
        if bus.converse(ask(shard, "EXISTS", keys.tail, checkpoint_key(keys))):
            eventually(partial(_fold, bus, shard))


def _fold(bus: Host, shard: int) -> bool:
    folded, _ = bus.converse(fold_once(bus.core.log, shard))
    return folded.is_all and folded.outcome is Outcome.DONE


def remembered(bus: Bus) -> dict[tuple[str, str], Remembered]:
    """Return the stored documents of memories."""
    return {
        (page, subject): cast(Remembered, read_document(subject, row.encode()))
        for keys, page in _pages(bus)
        for subject, row in _hash(bus, PageKeys(keys, page, _build(bus, keys)).memory).items()
    }


def folded(bus: Bus) -> Documents:
    """Return the observations that the log folds to from its first event."""
    return _fold_log(bus)[0]


def _fold_log(bus: Bus) -> tuple[Documents, dict[tuple[str, str], Remembered]]:
    """Return the observations and memories that the log folds to; fail if the log is damaged."""
    observations, memories = Documents(), dict[tuple[str, str], Remembered]()
    for shard in range(bus.core.log.shards):
        found = fold(entries(bus, shard), shard)
        assert not found.broken, "an event does not follow from the one before it"
        assert not found.poison, "an entry is not an event"
        observations |= found.observations()
        memories |= found.memories()
    return observations, memories


def documents(bus: Bus) -> Documents:
    """Return the stored documents of observations."""
    state: Documents = {}
    for keys, page in _pages(bus):
        for id, row in _hash(bus, PageKeys(keys, page, _build(bus, keys)).docs).items():
            state[page, id] = cast(Observation, read_document(id, row.encode()))
    return state


def paged_out(bus: Bus) -> dict[tuple[str, str], PagedOut]:
    """Return the index entries of paged-out observations."""
    found: dict[tuple[str, str], PagedOut] = {}
    for keys, page in _pages(bus):
        names = PageKeys(keys, page, _build(bus, keys))
        places: dict[int, PagedOut] = {}
        for name, row in _pairs(bus, names.places):
            places |= entries_in(row) if name.isdigit() else {}
        ids = {id: at for _, row in _pairs(bus, names.paged) for id, at in ids_in(row).items()}
        there = sorted(at for at, place in places.items() if place.seq)
        assert sorted(ids.values()) == there, "the two halves of the index of paged-out observations differ"
        for table_name in index_tables.table_names(send(bus, "HGETALL", names.tables)):  # newest first
            table = bus.converse(index_tables.load_table(bus.core.log, keys.shard, table_name))
            places = {place.added: place for place in table.entries(0, 1 << 62)} | places
            ids = {id: table.find(id) or 0 for id in table.ids()} | ids
        found |= {(page, id_text(id)): places[at] for id, at in ids.items() if places[at].seq}
    return found


def _pairs(bus: Bus, key: str) -> list[tuple[bytes, bytes]]:
    flat = send(bus, "HGETALL", key)
    return list(zip(flat[::2], flat[1::2], strict=True))


def heads(bus: Bus) -> dict[tuple[str, str], Head]:
    """Return the head of every subject."""
    return {
        (page, subject): Head.parse(row.encode())
        for keys, page in _pages(bus)
        for subject, row in _hash(bus, keys.heads(page)).items()
    }


def forget(bus: Bus) -> None:
    """Delete every key of a bus."""
    keys = send(bus, "KEYS", f"{{{bus.core.log.bus}:*")
    if keys:
        send(bus, "DEL", *keys)


def assert_sound(bus: Bus) -> None:
    """Check that log, documents, heads and indexes agree, and that the log is complete and in order."""
    project(bus)
    with _nothing_changes(bus):
        for shard in range(bus.core.log.shards):
            _assert_ordered(bus, bus.core.log.keys(shard))
        state, memories = _fold_log(bus)
        gone = paged_out(bus)
        assert {key: PagedOut.of(state[key]) for key in gone} == gone, (
            "a paged-out observation is not the fold of the log"
        )
        assert all(scratch_page.may_be_paged_out(state[key]) for key in gone), (
            "an observation that is not final is paged out"
        )
        _assert_heads(bus, state)
        state = {key: document for key, document in state.items() if key not in gone}
        assert documents(bus) == state, "the stored documents are not the fold of the log"
        assert remembered(bus) == memories, "the stored memories are not the fold of the log"
        _assert_versions(bus)
        _assert_open_and_keys(bus)
        _assert_due(bus)
        _assert_indexes(bus, state)
        _assert_relations(bus)


def _pages(bus: Bus) -> Iterator[tuple[ShardKeys, str]]:
    for shard in range(bus.core.log.shards):
        keys = bus.core.log.keys(shard)
        for page in _hash(bus, keys.pages):
            yield keys, page


def _floor(bus: Bus, shard: int) -> Floor:
    keys = bus.core.log.keys(shard)
    return Floor.parse(send(bus, "GET", keys.floor), send(bus, "GET", keys.origin), shard)


def _build(bus: Bus, keys: ShardKeys) -> int:
    return Checkpoint.parse(send(bus, "GET", checkpoint_key(keys)), keys.shard).build


def _hash(bus: Bus, key: str) -> dict[str, str]:
    flat = [part.decode() for part in send(bus, "HGETALL", key)]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _scores(bus: Bus, key: str) -> dict[str, int]:
    flat = [part.decode() for part in send(bus, "ZRANGE", key, 0, -1, "WITHSCORES")]
    return {member: int(float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)}


def _assert_ordered(bus: Bus, keys: ShardKeys) -> None:
    log = entries(bus, keys.shard)
    positions = [entry_position(entry, keys.shard) for entry in log]
    erased = set(map(int, _scores(bus, keys.erased)))
    seqs = sorted({position.seq for position in positions} | erased)
    assert seqs == list(range(1, len(log) + len(erased) + 1)), "seq has a gap"
    assert all(a.ms <= b.ms for a, b in pairwise(positions)), "the time of the log went back"
    left = 0
    for entry, position in zip(log, positions, strict=True):
        fields = entry_fields(entry)
        index, total = (int(part) for part in fields[b"batch"].split(b"/"))
        if position.seq - 1 not in erased:
            assert index == (1 if left == 0 else total - left + 1), "a batch is torn"
        left = total - index
    assert left == 0, "the last batch is torn"  # no log ends with an erased event
    tail = send(bus, "GET", keys.tail)
    if log:
        assert tail == log[-1][0] + b"|" + entry_fields(log[-1])[b"id"]
    else:
        assert tail is None


def _assert_heads(bus: Bus, state: Documents) -> None:
    found = heads(bus)
    known = {
        key
        for key, head in found.items()
        if head.status not in ("cleared", "erased") and key[0] != "_bus" and not subjects.is_remembered(key[1])
    }
    dropped = {key for key, document in state.items() if document.status_class == "final"}
    assert known | dropped == state.keys(), "heads and documents are of different observations"
    for key in known:
        assert found[key] == head_of(state[key])


def _assert_versions(bus: Bus) -> None:
    found = heads(bus)
    for key, document in remembered(bus).items():
        head = found[key]
        assert (head.version, head.position) == (document.version, document.position.stream_id)


def _assert_open_and_keys(bus: Bus) -> None:
    by_page: dict[str, dict[str, Head]] = defaultdict(dict)
    for (page, subject), head in heads(bus).items():
        by_page[page][subject] = head
    for keys, page in _pages(bus):
        assert _scores(bus, keys.open(page)) == open_scores(by_page[page]), "the open set differs from the heads"
        assert _hash(bus, keys.dedupe(page)) == dedupe_keys(by_page[page]), "the dedupe keys differ from the heads"


def _assert_due(bus: Bus) -> None:
    expected: dict[int, dict[str, int]] = defaultdict(dict)
    for (page, subject), head in heads(bus).items():
        if moment := next_moment(head):
            expected[bus.core.log.shard(page)][f"{subject}@{page}"] = moment
    for shard in range(bus.core.log.shards):
        keys = bus.core.log.keys(shard)
        due = PageKeys(keys, "", _build(bus, keys)).due
        assert _scores(bus, due) == expected[shard], "the due set differs from the heads"


def _assert_indexes(bus: Bus, state: Documents) -> None:
    by_page: dict[str, dict[str, Observation]] = defaultdict(dict)
    for (page, id), document in state.items():
        by_page[page][id] = document
    expected: dict[str, dict[str, float]] = {}
    for page, its in by_page.items():
        keys = keys_of(bus, page)
        names = PageKeys(keys, page, _build(bus, keys))
        assert {one.type for one in its.values()} == _hash(bus, names.types).keys(), (
            "the list of types differs from the documents"
        )
        expected |= {names.index(*index): scores for index, scores in index_scores(its).items()}
    for key, scores in expected.items():
        assert _scores(bus, key) == scores, f"the index {key} differs from the documents"
    assert _index_keys(bus) == expected.keys(), "there are extra or missing indexes"


def _assert_relations(bus: Bus) -> None:
    for shard in range(bus.core.log.shards):
        keys = bus.core.log.keys(shard)
        names = PageKeys(keys, "", _build(bus, keys))
        expected: dict[str, set[str]] = {name: set() for name in event_relations.RELATIONS}
        for event in (decode_entry(entry, shard) for entry in entries(bus, shard)):
            for relation, start, end in event_relations.relations(event):
                expected[relation].add(f"{start}\t{end}")
        for relation, members in expected.items():
            assert _scores(bus, names.relation(relation)) == dict.fromkeys(members, 0), (
                f"the relation {relation} differs from the log"
            )


def _index_keys(bus: Bus) -> set[str]:
    found = send(bus, "KEYS", f"{{{bus.core.log.bus}:*")
    return {key for key in map(bytes.decode, found) if _INDEX.search(key)}


def outdate(bus: Bus) -> None:
    """Expire the lease of the archiver, or of an erasure in the archive."""
    lease = keys_of(bus).archiver
    token, _, who = send(bus, "GET", lease).split(b"|")
    send(bus, "SET", lease, b"|".join((token, b"1", who)))


def copies_of(bus: Bus) -> dict[bytes, bytes]:
    """Return copies of all keys of the shard."""
    return {key: send(bus, "DUMP", key) for key in send(bus, "KEYS", f"{keys_of(bus).tag}*")}


def restore(bus: Bus, copies: dict[bytes, bytes]) -> None:
    """Set the shard back, as a failover to a replica that lags behind does."""
    for key in send(bus, "KEYS", f"{keys_of(bus).tag}*"):
        send(bus, "DEL", key)
    for key, copy in copies.items():
        send(bus, "RESTORE", key, 0, copy)
