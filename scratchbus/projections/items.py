"""The items of a store: each is a document of its own."""

from __future__ import annotations

from typing import Any

from scratchbus.domain.event import Event
from scratchbus.domain.item_events import ItemDeleted, ItemPut, ItemUsed
from scratchbus.domain.items import StoreItem
from scratchbus.domain.page_events import Erased
from scratchbus.projections.memory_document import create_document, update_document, upsert_document


def evolve(item: StoreItem | None, event: Event) -> StoreItem | None:
    """Return an item after an event. One that was deleted or erased keeps its version, and may be put again."""
    if isinstance(event, ItemPut):
        since = event.ms if item is None or item.deleted else item.since_ms
        content = {"namespace": event.namespace, "key": event.key, "value": event.value, "text": event.text}
        times = {
            "since_ms": since,
            "put_ms": event.ms,
            "ttl": event.ttl,
            "expires_ms": event.ttl and event.ms + event.ttl,
        }
        return upsert_document(StoreItem, item, event, **{"id": event.subject, **content, **times, "deleted": False})
    if isinstance(event, ItemUsed) and item is not None:
        return update_document(item, event, expires_ms=item.ttl and event.ms + item.ttl)
    if isinstance(event, ItemUsed | ItemDeleted):
        deletion: dict[str, Any] = {"value": {}, "text": None, "ttl": None, "expires_ms": None, "deleted": True}
        return upsert_document(StoreItem, item, event, **{"id": event.subject, **deletion})
    if isinstance(event, Erased):
        return create_document(StoreItem, event, id=event.subject, deleted=True, version=event.version)
    return item
