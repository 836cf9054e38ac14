"""The items of a store: values by namespace and key, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from pydantic import Field

from scratchbus.domain.checks import bytes_of, check_length, check_object, check_size, check_text
from scratchbus.domain.document import Remembered
from scratchbus.domain.values import check_whole, duration_ms, time_of_position
from scratchbus.errors import InvalidField, TooLarge, shown

PREFIX: Final = "item_"
"""The prefix of an item's subject; the digest of its namespace and key follows."""

MAX_LABELS: Final = 32
"""The most labels in a namespace."""

MAX_NAME: Final = 1_000
"""The most characters in a label or key."""

MAX_TEXT: Final = 1024 * 1024
"""The most bytes in the searchable text of an item, which may have each text of its value several times."""

Namespace = tuple[str, ...]


class StoreItem(Remembered):
    """An item of a store; without a value if it was `deleted`.

    `put_ms` is when it got its value, `since_ms` when it was created, or created again after a deletion, and
    `expires_ms` when it expires, all in milliseconds since the epoch. `text` is as in `ItemPut`.
    """

    id: str
    namespace: list[str] = Field(default_factory=list)
    key: str = ""
    value: dict[str, Any] = Field(default_factory=dict)
    text: str | None = None
    ttl: int | None = None
    expires_ms: int | None = None
    since_ms: int = 0
    put_ms: int = 0
    deleted: bool = False

    @property
    def since(self) -> datetime:
        """When it was created, or created again after a deletion."""
        return time_of_position(self.since_ms)

    @property
    def put_at(self) -> datetime:
        """When it got its value."""
        return time_of_position(self.put_ms)


class ItemChange(NamedTuple):
    """A value to put, or None to delete the item; `text` and `ttl` (milliseconds) are as in `ItemPut`.

    A `text` has at most 1 MiB.
    """

    namespace: Sequence[str]
    key: str
    value: Mapping[str, Any] | None
    text: str | None = None
    ttl: int | None = None

    def checked(self) -> ItemChange:
        """Return it with its value as JSON reads it back. Raises InvalidField or TooLarge."""
        namespace, key = check_namespace(self.namespace), check_name("key", self.key)
        if self.value is None:
            return ItemChange(namespace, key, None)
        if self.text is not None:
            check_size("text", check_text("text", self.text), MAX_TEXT)
        ttl = None if self.ttl is None else check_whole("ttl", self.ttl)
        return ItemChange(namespace, key, check_object("value", self.value), self.text, ttl)


def ttl_ms(ttl: int | str | timedelta | None) -> int | None:
    """Return a time to live in milliseconds, None for "never". Numbers are milliseconds. Raises InvalidTTL."""
    return duration_ms(ttl) if isinstance(ttl, str | timedelta) else ttl


def check_namespace(namespace: object) -> Namespace:
    """Return a namespace: 1 to 32 labels. Raises InvalidField or TooLarge."""
    if isinstance(namespace, str) or not isinstance(namespace, Sequence) or not namespace:
        raise InvalidField("namespace", f"{shown(namespace)} is not a list of labels, such as ('users', '42')")
    if len(namespace) > MAX_LABELS:
        raise TooLarge("namespace", len(namespace), MAX_LABELS, "labels", "use fewer")
    return tuple(check_name("namespace", label) for label in namespace)


def check_name(field: str, name: object) -> str:
    """Return a key, or a label of a namespace. Raises InvalidField or TooLarge."""
    if not isinstance(name, str):
        raise InvalidField(field, f"{shown(name)} is not a text")
    if not name:
        raise InvalidField(field, "is empty; give a text of at least one character")
    check_length(field, name, MAX_NAME)
    bytes_of(field, name)
    return name


def subject_of(namespace: Sequence[str], key: str) -> str:
    """Return the subject of an item: a digest of the JSON array of its namespace and key."""
    names = ", ".join(map(encode_basestring_ascii, (*namespace, key)))
    return PREFIX + sha256(f"[{names}]".encode()).hexdigest()[:32]
