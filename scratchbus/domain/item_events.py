"""The events of the items of a store; the subject of an item is `item_<digest of its namespace and key>`."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from typing import Any, Literal

from scratchbus.domain.event import Event


class ItemPut(Event):
    """An item got a value, which replaces its previous one.

    `text` is searched for it: None stands for all texts in the value, and "" for none. It expires `ttl` milliseconds
    after its last use; None stands for never.
    """

    kind: Literal["item_put"] = "item_put"
    namespace: list[str]
    key: str
    value: dict[str, Any]
    text: str | None = None
    ttl: int | None = None


class ItemUsed(Event):
    """An item was read, so its time to live starts again."""

    kind: Literal["item_used"] = "item_used"


class ItemDeleted(Event):
    """An item was deleted, or has expired; its history stays."""

    kind: Literal["item_deleted"] = "item_deleted"
