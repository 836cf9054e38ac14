"""Helpers of the folds of all memories: creating a document from its first event, and updating it."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.models import default_of, trusted

Document = TypeVar("Document", bound=Remembered)


def create_document(cls: type[Document], event: Event, **fields: Any) -> Document:
    """Return the document that an event creates; fields that are not given have their defaults."""
    position = {"added_ms": event.ms, "added_seq": event.seq, "ms": event.ms, "seq": event.seq}
    return trusted(cls, {**_defaults_of(cls), "shard": event.shard, **position, **fields})


def update_document(document: Document, event: Event, **changes: Any) -> Document:
    """Return a document after one more event."""
    values = document.__dict__ | changes
    values.update(version=document.version + 1, ms=event.ms, seq=event.seq)
    return trusted(type(document), values)


def upsert_document(cls: type[Document], document: Document | None, event: Event, **changes: Any) -> Document:
    """Return a document after an event that may also be its first."""
    return create_document(cls, event, **changes) if document is None else update_document(document, event, **changes)


@cache
def _defaults_of(cls: type[Remembered]) -> dict[str, Any]:
    """Return all fields of a document in order, with their defaults, if any."""
    return {name: default_of(field) for name, field in cls.model_fields.items()}
