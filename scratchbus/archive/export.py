"""The log as JSON Lines: every event as it was written, from which an equal bus can be made (see `importing`)."""

from __future__ import annotations

from pydantic_core import to_json

from scratchbus.domain.events import Event
from scratchbus.eventlog.codec import encode_body

_TEXTS = ("id", "subject", "page", "kind", "type", "batch", "prev")


def line_of(event: Event) -> str:
    """Return an event as one line of JSON: its place, its envelope, and its body, with the schema version of today."""
    envelope = {name: getattr(event, name) for name in _TEXTS}
    place = {"shard": event.shard, "seq": event.seq, "ms": event.ms, "at": event.at.isoformat()}
    return (to_json(place | envelope)[:-1] + b',"event":' + encode_body(event) + b"}").decode()
