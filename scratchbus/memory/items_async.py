"""The items of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from scratchbus.commands import items
from scratchbus.commands.items import StoreItems
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.items import ItemChange, StoreItem, ttl_ms
from scratchbus.domain.values import page_of_store
from scratchbus.memory.page_memory_async import AsyncPageMemory


class AsyncItems(AsyncPageMemory):
    """Values by namespace and key that outlive sessions. Get them from `AsyncBus.items`.

    A namespace is 1 to 32 labels, a value a JSON object of at most 64 KiB. The last write of a key wins. Writes raise
    InvalidField and TooLarge before anything is written. Every read sees all writes acknowledged before it began.
    """

    _page_of = staticmethod(page_of_store)

    async def read(self) -> StoreItems:
        """Return the current items, to get and search any number of them."""
        return await self._do(items.read)

    async def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        ttl: int | str | timedelta | None = None,
        event_id: str | None = None,
    ) -> None:
        """Put a value. With a `ttl` it expires that long after its last use.

        A number is in milliseconds, as in `ItemChange`, not in seconds as elsewhere; "2h" or a timedelta is clearer.
        Raises InvalidTTL for a text that is no duration.
        """
        await self.write([ItemChange(namespace, key, value, ttl=ttl_ms(ttl))], event_id=event_id)

    async def delete(self, namespace: Sequence[str], key: str, *, event_id: str | None = None) -> None:
        """Delete an item, if it is there; its history stays."""
        await self.write([ItemChange(namespace, key, None)], event_id=event_id)

    async def write(self, changes: Iterable[ItemChange], *, event_id: str | None = None) -> int:
        """Put and delete items, up to 1,000 in a batch; return how many. A retry with an `event_id` completes it."""
        return await self._do(items.write, changes, event_id)

    async def use(self, used: Iterable[StoreItem], *, event_id: str | None = None) -> int:
        """Restart the time to live of items; return how many. Items that never expire are left out."""
        return await self._do(items.use, used, event_id)

    async def sweep(self) -> int:
        """Delete expired items, which reads already leave out; return how many. After an error, call it again."""
        return await self._do(items.sweep)

    async def history(self, namespace: Sequence[str], key: str) -> list[AnyEvent]:
        """Return the events of an item, oldest first, also of a deleted one. Raises PositionLost."""
        return await self._do(items.history_of_item, namespace, key)
