"""Putting, reading and deleting the items of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from scratchbus.commands.cached import fresh
from scratchbus.commands.execution import Occasion
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.item_events import ItemDeleted, ItemPut, ItemUsed
from scratchbus.domain.items import ItemChange, Namespace, StoreItem, check_name, check_namespace, subject_of
from scratchbus.domain.values import check_whole
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import InvalidField, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.because import reasons
from scratchbus.eventlog.bus_log import fresh_id
from scratchbus.eventlog.codec import encode_body, encode_fields
from scratchbus.eventlog.writes import MAX_BATCH, MAX_BATCH_BYTES, Draft, Op, Write
from scratchbus.projections.item_index import FoundItem, ItemIndex, NamespaceMatch
from scratchbus.readmodel.history import history
from scratchbus.readmodel.memory_cache import CachedMemory
from scratchbus.readmodel.scope import Core

_Said = tuple[type[Event], str, dict[str, Any]]  # a kind of event, its subject, and its fields
_MOST_BYTES: Final = MAX_BATCH_BYTES - 1024 * 1024  # of bodies; ids and the like come to less than the rest


class StoreItems:
    """The items of a store as they were when it was read; every write acknowledged before is in them."""

    def __init__(self, held: CachedMemory[ItemIndex], now_ms: float) -> None:
        self._held = held
        self._now_ms = now_ms

    def get(self, namespace: Sequence[str], key: str) -> StoreItem | None:
        """Return an item, or None. Raises InvalidField."""
        with self._held.lock:
            return self._held.memory.get(check_namespace(namespace), check_name("key", key), self._now_ms)

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

        A `filter` gives the value of fields, or an object of `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte` with what to
        compare them with. With a `query`, those with some of its words in any grammatical form of English, best match
        first. Raises InvalidField.
        """
        below = check_namespace(prefix) if prefix else ()
        limit, offset = check_whole("limit", limit, least=0), check_whole("offset", offset, least=0)
        if filter is not None and not isinstance(filter, Mapping):
            raise InvalidField("filter", f"{shown(filter)} is not an object of fields and their values")
        if query is not None and not isinstance(query, str):
            raise InvalidField("query", f"{shown(query)} is not a text")
        with self._held.lock:
            return self._held.memory.search(below, filter or {}, query or "", limit, offset, self._now_ms)

    def namespaces(
        self,
        matches: Iterable[NamespaceMatch] = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Return the namespaces that match and have items, in alphabetical order; with `max_depth`, cut to it."""
        wanted = [NamespaceMatch(match.end, check_namespace(match.path)) for match in matches if match.path]
        depth = None if max_depth is None else check_whole("max_depth", max_depth)
        limit, offset = check_whole("limit", limit, least=0), check_whole("offset", offset, least=0)
        with self._held.lock:
            return self._held.memory.namespaces(wanted, depth, limit, offset, self._now_ms)


def read(core: Core, page: str) -> Step[StoreItems]:
    """Return the items of a store with every acknowledged write, without those that have expired."""
    held = yield from fresh(core, core.items, page)
    return StoreItems(held, (yield from _now(core, page)) if held.memory.has_mortals else 0)


def write(core: Core, page: str, changes: Iterable[ItemChange]) -> Step[int]:
    """Put and delete items, some in each batch; return how many. Nothing is written when one of them is invalid."""
    wanted = [change.checked() for change in changes]
    return (yield from _append(core, page, map(_said, wanted)))


def use(core: Core, page: str, items: Iterable[StoreItem]) -> Step[int]:
    """Begin the time to live of items again; return of how many. Those that never expire are left out."""
    used: list[_Said] = [(ItemUsed, item.id, {}) for item in items if item.ttl is not None]
    return (yield from _append(core, page, used))


def sweep(core: Core, page: str) -> Step[int]:
    """Delete the items that have expired; return how many. One that was put or used meanwhile stays."""
    held = yield from fresh(core, core.items, page)
    now = yield from _now(core, page)
    with held.lock:
        expired = held.memory.expired(now)
    occasion = Occasion.of(core, page, None, "items_swept")
    done = 0
    for at in range(0, len(expired), MAX_BATCH):
        some = expired[at : at + MAX_BATCH]
        writes = [
            Write(occasion.event(ItemDeleted, item.id, _behind(at + n)), Op.PUT, "", item.version)
            for n, item in enumerate(some)
        ]
        appended = yield from append(core.log, page, writes, mode="each")
        done += sum(row.position.seq > 0 for row in appended.written)
    return done


def history_of_item(core: Core, page: str, namespace: Sequence[str], key: str) -> Step[list[AnyEvent]]:
    """Return the events about an item, oldest first. Raises PositionLost."""
    return (yield from history(core.log, page, subject_of(check_namespace(namespace), check_name("key", key))))


def _now(core: Core, page: str) -> Step[float]:
    """Return the time of the engine, in milliseconds."""
    seconds, micros = yield from ask(core.log.shard(page), "TIME")
    return int(seconds) * 1000 + int(micros) / 1000


def _behind(number: int) -> str:
    return f"/{number}" if number else ""


def _said(change: ItemChange) -> _Said:
    subject = subject_of(change.namespace, change.key)
    if change.value is None:
        return ItemDeleted, subject, {}
    fields: dict[str, Any] = {"namespace": list(change.namespace), "key": change.key, "value": change.value}
    if change.text is not None:
        fields["text"] = change.text
    if change.ttl is not None:
        fields["ttl"] = change.ttl
    return ItemPut, subject, fields


def _append(core: Core, page: str, said: Iterable[_Said]) -> Step[int]:
    """Append events, some in each batch; return how many."""
    id = yield from fresh_id(core.log, page)
    why = {"by": core.by, **reasons()}
    batch: list[Write] = []
    size = count = 0
    for number, (kind, subject, fields) in enumerate(said):
        draft = Draft(kind, id + _behind(number), page, subject, "", why | fields)
        one = Write(draft, Op.PUT, "")
        one.body = encode_fields(draft.fields) or encode_body(one.event)
        if batch and (len(batch) == MAX_BATCH or size + len(one.body) > _MOST_BYTES):
            yield from append(core.log, page, batch)
            batch, size = [], 0
        batch.append(one)
        size, count = size + len(one.body), count + 1
    if batch:
        yield from append(core.log, page, batch)
    return count
