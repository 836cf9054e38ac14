"""A store for LangGraph on the bus: durable, shared by processes, with history, and searched by words.

It needs the extra `langgraph`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )
except ImportError as problem:
    raise ImportError(f"ScratchbusStore needs: pip install 'scratchbus[langgraph]' ({problem})") from None

from scratchbus import AsyncBus, Bus, FoundItem, ItemChange, NamespaceMatch, StoreItem, StoreItems
from scratchbus.errors import EngineForbidden, EngineFull, EngineReadOnly, InvalidField, shown

_PER_MINUTE: Final = 60_000  # LangGraph counts times to live in minutes, the bus in milliseconds
_NO_WRITE: Final = (EngineForbidden, EngineFull, EngineReadOnly)  # reads work all the same


class ScratchbusStore(BaseStore):
    """A LangGraph store whose items are on a bus.

    With a `Bus` it serves both the blocking methods and, in a thread, the asynchronous ones; with an `AsyncBus` the
    asynchronous ones only. Stores of different names do not see each other's items.

    - `search(query=…)` finds words in the texts of values, in any grammatical form of English, best match first. The
      argument `index` of `put` selects the fields to search; False leaves the item out of such searches.
    - A filter compares with `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte`; values that cannot be compared do not match.
    - Items with a `ttl` are left out of reads once they have expired; `sweep_ttl` deletes them. A read restarts
      its time to live unless `refresh_ttl` or the `refresh_on_read` of `ttl` says otherwise, or the engine takes no
      writes, such as from the role `reader`.
    - In a batch, reads see the state before its writes, and the last write of a key wins.
    """

    supports_ttl = True

    def __init__(self, bus: Bus | AsyncBus, *, name: str = "default", ttl: TTLConfig | None = None) -> None:
        """Take an open bus; it stays open. Raises InvalidField for anything else, and InvalidName."""
        super().__init__()
        if not isinstance(bus, Bus | AsyncBus):
            raise InvalidField("bus", f"{shown(bus)} is neither a Bus nor an AsyncBus; pass one of them")
        self.ttl_config = ttl
        self._blocking = bus.items(name) if isinstance(bus, Bus) else None
        self._async = bus.items(name) if isinstance(bus, AsyncBus) else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._blocking or self._async!r}>"

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations; return a result for each. Raises InvalidNamespaceError, InvalidField, EngineError."""
        if self._blocking is None:
            raise TypeError("this store has an AsyncBus; await its asynchronous methods, or make it with a Bus")
        plan = _Plan(ops)
        items = self._blocking.read() if plan.reads else None
        results, read_items = plan.answered(items)
        if read_items:  # first: an error after the write would not say that it was done
            with suppress(*_NO_WRITE):
                self._blocking.use(read_items)
        if plan.changes:
            self._blocking.write(plan.changes)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do the same as `batch`."""
        if self._async is None:
            return await asyncio.to_thread(self.batch, list(ops))
        plan = _Plan(ops)
        items = await self._async.read() if plan.reads else None
        results, read_items = plan.answered(items)
        if read_items:  # first: an error after the write would not say that it was done
            with suppress(*_NO_WRITE):
                await self._async.use(read_items)
        if plan.changes:
            await self._async.write(plan.changes)
        return results

    def sweep_ttl(self) -> int:
        """Delete the items that have expired; return how many."""
        if self._blocking is None:
            raise TypeError("this store has an AsyncBus; await asweep_ttl(), or make it with a Bus")
        return self._blocking.sweep()

    async def asweep_ttl(self) -> int:
        """Do the same as `sweep_ttl`."""
        return await asyncio.to_thread(self.sweep_ttl) if self._async is None else await self._async.sweep()


class _Plan:
    """The operations of a batch: the reads, by their index, and the changes."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._count = 0
        self.reads: list[tuple[int, GetOp | SearchOp | ListNamespacesOp]] = []
        puts: dict[tuple[tuple[str, ...], str], ItemChange] = {}
        for index, op in enumerate(ops):
            self._count = index + 1
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                puts[op.namespace, str(op.key)] = _change(op)
            elif isinstance(op, GetOp | SearchOp | ListNamespacesOp):
                self.reads.append((index, op))
            else:
                raise InvalidField("ops", f"{shown(op)} is not an operation of a store")
        self.changes = list(puts.values())

    def answered(self, items: StoreItems | None) -> tuple[list[Result], list[StoreItem]]:
        """Return the results, and the items whose time to live restarts."""
        results: list[Result] = [None] * self._count
        read_items: dict[str, StoreItem] = {}
        for index, op in self.reads:
            assert items is not None  # noqa: S101  # it was read for these
            if isinstance(op, ListNamespacesOp):
                results[index] = _namespaces(items, op)
                continue
            found = _found(items, op)
            if op.refresh_ttl:
                read_items |= {each.item.id: each.item for each in found if each.item.ttl is not None}
            if isinstance(op, SearchOp):
                results[index] = [_search_item(each) for each in found]
            elif found:
                results[index] = _item(found[0].item)
        written = {(change.namespace, change.key) for change in self.changes}
        return results, [item for item in read_items.values() if (tuple(item.namespace), item.key) not in written]


def _found(items: StoreItems, op: GetOp | SearchOp) -> list[FoundItem]:
    if isinstance(op, GetOp):
        item = items.get(op.namespace, str(op.key)) if op.namespace else None
        return [] if item is None else [FoundItem(item)]
    return items.search(op.namespace_prefix, filter=op.filter, query=op.query, limit=op.limit, offset=op.offset)


def _namespaces(items: StoreItems, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    matches = [NamespaceMatch(each.match_type, each.path) for each in op.match_conditions or ()]
    return items.namespaces(matches, max_depth=op.max_depth, limit=op.limit, offset=op.offset)


def _change(op: PutOp) -> ItemChange:
    if op.value is None:
        return ItemChange(op.namespace, str(op.key), None)
    return ItemChange(op.namespace, str(op.key), op.value, _text(op.value, op.index), _milliseconds(op.ttl))


def _milliseconds(ttl: object) -> int | None:
    """Return a time to live, which LangGraph has in minutes. Raises InvalidField."""
    if ttl is None:
        return None
    ms = ttl * _PER_MINUTE if isinstance(ttl, int | float) and not isinstance(ttl, bool) else math.nan
    if not 0 < ms < math.inf:
        raise InvalidField("ttl", f"{shown(ttl)} is not a positive number of minutes; use None for no limit")
    return math.ceil(ms)


def _text(value: Mapping[str, Any], index: Sequence[str] | bool | None) -> str | None:
    """Return the searchable text of a value: the texts at these paths; None for all paths, "" for none."""
    if index is None or index is True:
        return None
    paths = index if isinstance(index, Sequence) else ()
    return "\n".join(text for path in paths for text in get_text_at_path(value, tokenize_path(path)))


def _item(item: StoreItem) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=tuple(item.namespace),
        created_at=item.since,
        updated_at=item.put_at,
    )


def _search_item(found: FoundItem) -> SearchItem:
    item = found.item
    return SearchItem(tuple(item.namespace), item.key, item.value, item.since, item.put_at, found.score)
