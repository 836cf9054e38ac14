"""Put, read and delete the items of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from scratchbus.commands.copied_errors import copied
from scratchbus.commands.execution import Occasion, nth_suffix
from scratchbus.commands.memory_reads import fresh_memory
from scratchbus.commands.repeatable import repeatable
from scratchbus.domain.checks import check_own_event_id
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.item_events import ItemDeleted, ItemPut, ItemUsed
from scratchbus.domain.items import ItemChange, Namespace, StoreItem, check_name, check_namespace, subject_of
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_whole
from scratchbus.engine.steps import Queued, Step, batches
from scratchbus.errors import InvalidField, ScratchbusError, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.bus_log import bounded_event_id
from scratchbus.eventlog.causes import reasons
from scratchbus.eventlog.codec import encode_body, encode_fields
from scratchbus.eventlog.lag import read_clock
from scratchbus.eventlog.writes import MAX_BATCH, MAX_BODIES, Draft, Op, Write
from scratchbus.projections.item_index import FoundItem, ItemIndex, NamespaceMatch
from scratchbus.readmodel.history import history
from scratchbus.readmodel.memory_cache import CachedMemory
from scratchbus.readmodel.scope import Core

T = TypeVar("T")
_NewEvent = tuple[type[Event], str, dict[str, Any]]  # a kind of event, its subject, and its fields


class StoreItems:
    """The items of a store, including every write acknowledged before the read."""

    def __init__(self, cached: CachedMemory[ItemIndex], now_ms: float) -> None:
        self._cached = cached
        self._now_ms = now_ms

    def get(self, namespace: Sequence[str], key: str) -> StoreItem | None:
        """Return an item, or None. Raises InvalidField."""
        with self._cached.lock:
            item = self._cached.memory.get(check_namespace(namespace), check_name("key", key), self._now_ms)
        return item and _copy_of(item)

    def search(
        self,
        prefix: Sequence[str] = (),
        *,
        filter: Mapping[str, Any] | None = None,
        query: str | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> list[FoundItem]:
        """Return the items whose namespace begins with a prefix, oldest first.

        A `filter` maps fields to a value, or to an object of `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte` with the
        values to compare with. With a `query`, return items with some of its words in any grammatical form of English,
        best match first. Raises InvalidField.
        """
        path = check_namespace(prefix) if prefix else ()
        limit, offset = check_whole("limit", limit, minimum=0), check_whole("offset", offset, minimum=0)
        if filter is not None and not isinstance(filter, Mapping):
            raise InvalidField("filter", f"{shown(filter)} is not an object of fields and their values")
        if query is not None and not isinstance(query, str):
            raise InvalidField("query", f"{shown(query)} is not a text")
        with self._cached.lock:
            found = self._cached.memory.search(path, filter or {}, query or "", limit, offset, self._now_ms)
        return [FoundItem(_copy_of(item), score) for item, score in found]

    def namespaces(
        self,
        matches: Iterable[NamespaceMatch] = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Return the namespaces that match and have items, in alphabetical order; with `max_depth`, cut to it."""
        checked = [
            NamespaceMatch(match.end, check_namespace(match.path))
            for match in _all_of(NamespaceMatch, "matches", matches)
            if match.path
        ]
        depth = None if max_depth is None else check_whole("max_depth", max_depth)
        limit, offset = check_whole("limit", limit, minimum=0), check_whole("offset", offset, minimum=0)
        with self._cached.lock:
            return self._cached.memory.namespaces(checked, depth, limit, offset, self._now_ms)


def _copy_of(item: StoreItem) -> StoreItem:
    """Return an item whose value the caller may change: the item itself serves later reads."""
    copy = item.model_copy()
    copy.__dict__.update(namespace=[*item.namespace], value=_copy_of_value(item.value))
    return copy


def _copy_of_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy_of_value(each) for name, each in value.items()}
    return [_copy_of_value(each) for each in value] if isinstance(value, list) else value


def read(core: Core, page: str) -> Step[StoreItems]:
    """Return the items of a store with every acknowledged write, without those that have expired."""
    cached = yield from fresh_memory(core, core.items, page)
    return StoreItems(cached, (yield from read_clock(core.log.shard(page))) if cached.memory.has_expiring else 0)


def write(core: Core, page: str, changes: Iterable[ItemChange], event_id: str | None = None) -> Step[int]:
    """Put and delete items, in batches; return how many. Nothing is written if one of them is invalid.

    A call with an `event_id` is appended apart from those of others; a retry completes it.
    """
    check_own_event_id(event_id)
    events = [_new_event(change.checked()) for change in _all_of(ItemChange, "changes", changes)]
    return (yield from _append(core, page, "items_written", events, event_id))


def _all_of(kind: type[T], field: str, values: Iterable[T]) -> list[T]:
    """Return values of one class. Raises InvalidField for anything else."""
    if not isinstance(values, Iterable):
        raise InvalidField(field, f"{shown(values)} is not a list; pass a list of {kind.__name__}")
    found = list(values)
    for value in found:
        if not isinstance(value, kind):
            raise InvalidField(field, f"{shown(value)} is not of the class {kind.__name__}")
    return found


def use(core: Core, page: str, items: Iterable[StoreItem], event_id: str | None = None) -> Step[int]:
    """Restart the time to live of items; return the number restarted. Items that never expire are left out."""
    check_own_event_id(event_id)
    used: list[_NewEvent] = [
        (ItemUsed, item.id, {}) for item in _all_of(StoreItem, "used", items) if item.ttl is not None
    ]
    return (yield from _append(core, page, "items_used", used, event_id))


def sweep(core: Core, page: str) -> Step[int]:
    """Delete the expired items; return how many. An item that was put or used meanwhile stays."""
    return (yield from repeatable(core, [core.log.shard(page)], _sweep(core, page)))


def _sweep(core: Core, page: str) -> Step[int]:
    cached = yield from fresh_memory(core, core.items, page)
    now = yield from read_clock(core.log.shard(page))
    with cached.lock:
        expired = cached.memory.expired(now)
    occasion = Occasion.of(core, page, None, "items_swept")
    deleted = 0
    events = [occasion.event(ItemDeleted, item.id, nth_suffix(index)) for index, item in enumerate(expired)]
    for batch in batches([*zip(events, expired, strict=True)], MAX_BATCH):
        writes = [Write(event, Op.PUT, "", item.version) for event, item in batch]
        appended = yield from append(core.log, page, writes, mode="each")
        deleted += sum(row.position.seq > 0 for row in appended.written)
    return deleted


def history_of_item(core: Core, page: str, namespace: Sequence[str], key: str) -> Step[list[AnyEvent]]:
    """Return the events about an item, oldest first. Raises PositionLost."""
    return (yield from history(core.log, page, subject_of(check_namespace(namespace), check_name("key", key))))


def _new_event(change: ItemChange) -> _NewEvent:
    subject = subject_of(change.namespace, change.key)
    if change.value is None:
        return ItemDeleted, subject, {}
    fields: dict[str, Any] = {"namespace": list(change.namespace), "key": change.key, "value": change.value}
    if change.text is not None:
        fields["text"] = change.text
    if change.ttl is not None:
        fields["ttl"] = change.ttl
    return ItemPut, subject, fields


class _Additions(NamedTuple):
    """The events that a caller wants to append, the caller and cause, and the digest of a call with its own id."""

    events: list[_NewEvent]
    common: dict[str, Any]
    digest: str = ""


class _Batch(NamedTuple):
    """Writes that are sent as one batch, and how many events belong to which jobs (by number)."""

    writes: list[Write]
    counts: dict[int, int]


def _append(core: Core, page: str, verb: str, events: list[_NewEvent], event_id: str | None) -> Step[int]:
    """Append events, without a caller's own id together with those of other waiting callers; return how many."""
    if not events:
        return 0
    job = _Additions(events, {"by": core.by, **reasons()})
    if event_id is None:
        count: int = yield Queued(core.queues, (page, StoreItems), job, partial(_append_all, core, page))
        return count
    occasion = Occasion.of(core, page, event_id, verb, [(subject, fields) for _, subject, fields in events])
    for batch in _batches([job._replace(digest=occasion.digest)], [event_id], page):
        yield from append(core.log, page, batch.writes)
    return len(events)


def _append_all(core: Core, page: str, jobs: Sequence[_Additions]) -> Step[list[int | Exception]]:
    """Append the events of jobs in order, in as few batches as possible; return each one's count, or its error.

    Each job has an event id of its own, with which its caller can retry it.
    """
    outcomes: list[int | Exception] = [0] * len(jobs)
    written: dict[int, Position] = {}
    ids: list[str] = []
    try:
        for _ in jobs:
            ids.append((yield from bounded_event_id(core.log, page)))  # noqa: PERF401  # it may fail
        for batch in _batches(jobs, ids, page):
            appended = yield from append(core.log, page, batch.writes)
            positions = appended.recalled or [row.position for row in appended.written]
            at = 0
            for number, count in batch.counts.items():
                written.setdefault(number, positions[at])
                at += count
                outcomes[number] = cast(int, outcomes[number]) + count
    except ScratchbusError as error:
        return [
            count
            if count == len(job.events)
            else copied(error, ids[number] if ids[number:] else None, written.get(number))
            for number, (count, job) in enumerate(zip(outcomes, jobs, strict=True))
        ]
    return outcomes


def _batches(jobs: Sequence[_Additions], ids: Sequence[str], page: str) -> Iterator[_Batch]:
    """Yield the writes of jobs, whose event ids derive from these; those of one job are in one batch if they fit."""
    batch, size = _Batch([], {}), 0
    for number, job in enumerate(jobs):
        writes = [_write(job, event, ids[number] + nth_suffix(at), page) for at, event in enumerate(job.events)]
        is_full = len(batch.writes) + len(writes) > MAX_BATCH or size + sum(map(_size, writes)) > MAX_BODIES
        for write in writes:
            if batch.writes and (is_full or len(batch.writes) == MAX_BATCH or size + _size(write) > MAX_BODIES):
                yield batch
                batch, size, is_full = _Batch([], {}), 0, False
            batch.writes.append(write)
            batch.counts[number] = batch.counts.get(number, 0) + 1
            size += _size(write)
    if batch.writes:
        yield batch


def _write(job: _Additions, event: _NewEvent, id: str, page: str) -> Write:
    kind, subject, fields = event
    draft = Draft(kind, id, page, subject, "", job.common | fields)
    write = Write(draft, Op.PUT, job.digest)
    write.body = encode_fields(draft.fields) or encode_body(write.event)
    return write


def _size(write: Write) -> int:
    return len(write.body)
