"""The log as JSON Lines: every event as it was written, from which an equal bus can be made (see `importing`)."""

from __future__ import annotations

from pydantic_core import to_json

from scratchbus.domain.events import Event
from scratchbus.eventlog.codec import encode_body

_TEXTS = ("id", "subject", "page", "kind", "type", "batch", "prev")


def line_of(event: Event) -> str:
    """Return an event as the line of JSON that `Bus.import_events` reads: position, envelope, body."""
    envelope = {name: getattr(event, name) for name in _TEXTS}
    place = {"shard": event.shard, "seq": event.seq, "ms": event.ms, "at": event.at.isoformat()}
    return (to_json(place | envelope)[:-1] + b',"event":' + encode_body(event) + b"}").decode()


def row_of(event: Event) -> dict[str, str]:
    """Return an event as a row of text by column name: position, time, envelope, and the body as JSON."""
    texts = {name: str(getattr(event, name) or "") for name in ("id", "page", "subject", "kind", "type", "by", "batch")}
    return {
        "position": str(event.position),
        "at": event.at.isoformat(),
        **texts,
        "event": encode_body(event).decode(),
    }
