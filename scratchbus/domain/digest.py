"""Digests of arguments, which tell a retry from another call with the same event id."""

from __future__ import annotations

import json
from hashlib import blake2b, sha256
from typing import Any

from scratchbus.domain.times import NamedMoment
from scratchbus.domain.values import MAX_EVENT_ID


def digest_of(operation: str, *arguments: Any) -> str:
    """Return a digest of a caller's arguments; a retry has the same one."""
    text = json.dumps([operation, *arguments], sort_keys=True, default=_text, ensure_ascii=True)
    return short_hash(text)


def short_hash(text: str) -> str:
    """Return a hash of a text, 20 hexadecimal digits long."""
    return blake2b(text.encode(), digest_size=10).hexdigest()


def derived_event_id(event_id: str, name: str) -> str:
    """Return the id of another event of the same call: the caller's id, or its digest if it is too long, and a name."""
    id = f"{event_id}/{name}"
    return id if len(id) <= MAX_EVENT_ID else f"{sha256(event_id.encode()).hexdigest()}/{name}"


def _text(value: object) -> object:
    if isinstance(value, NamedMoment):
        return value.text
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
