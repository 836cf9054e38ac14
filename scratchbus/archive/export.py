"""The log as JSON Lines: every event as it was appended, from which an import creates an identical bus."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from scratchbus.domain.event import Event
from scratchbus.domain.observation_models import invalid
from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.values import millis
from scratchbus.errors import InvalidField, InvalidInput, shown
from scratchbus.eventlog.codec import Poison, decode_entry, encode_body
from scratchbus.eventlog.layouts import ENTRY, SPAN
from scratchbus.eventlog.log_reader import MAX_BATCH
from scratchbus.eventlog.raw_entries import RawEntry

MAX_LINE = 16 * 1024 * 1024
"""The most characters in a line; no event that the bus accepts makes a longer one."""

_END_MS = millis(datetime(9000, 1, 1, tzinfo=UTC))  # leaves room for times after an event, which end with the year 9999
_TEXTS = tuple(ENTRY)[:-1]


class OtherShards(InvalidInput):
    """The export is of a bus with another number of `shards`."""

    def __init__(self, shards: int, actual: int) -> None:
        super().__init__(f"is of a bus with {shards} shards, and this bus has {actual}")
        self.shards = shards


class _ExportLine(BaseModel):
    """A line of an export. Its other fields are derived from these."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: str
    subject: str
    page: str
    kind: str
    type: str
    batch: str = Field(pattern=r"^[1-9][0-9]{0,4}/[1-9][0-9]{0,4}$")
    prev: str
    ms: int = Field(ge=0, lt=_END_MS)
    seq: int = Field(ge=1, lt=SPAN)
    shard: int = Field(ge=0)
    until: str | None = None
    event: dict[str, Any]


def line_of(event: Event, until: BusPosition | None = None) -> str:
    """Return an event as the JSON line that `Bus.import_events` reads: position, envelope, body.

    The first line of an export may say `until` which position of the bus the export goes: the import refuses a file
    that ends before.
    """
    envelope = {name: getattr(event, name) for name in _TEXTS}
    position = {"shard": event.shard, "seq": event.seq, "ms": event.ms, "at": event.at.isoformat()}
    if until is not None:
        position["until"] = str(until)
    return (to_json(position | envelope)[:-1] + b',"event":' + encode_body(event) + b"}").decode()


def row_of(event: Event) -> dict[str, str]:
    """Return an event as text by column name: position, time, envelope, and the body as JSON."""
    texts = {name: str(getattr(event, name) or "") for name in ("id", "page", "subject", "kind", "type", "by", "batch")}
    return {
        "position": str(event.position),
        "at": event.at.isoformat(),
        **texts,
        "event": encode_body(event).decode(),
    }


def read_line(text: str | bytes, shards: int) -> tuple[RawEntry, Event, BusPosition | None]:
    """Return the log entry and the event of a line, and the position that the export goes to if the line says so.

    Raises InvalidInput, or CodeTooOld for an event of newer code.
    """
    if not isinstance(text, str | bytes):
        raise InvalidInput(f"{shown(text)} is not a line of text")
    if len(text) > MAX_LINE:
        raise InvalidInput(f"is longer than {MAX_LINE:,} characters, which no line of an export is")
    try:
        document = from_json(text, allow_inf_nan=False, cache_strings="keys")
        line = _ExportLine.model_validate(document)
    except ValidationError as problem:
        if not isinstance(document, dict):
            raise InvalidInput(f"{shown(document)} is not a JSON object") from None
        raise invalid(problem, list(_ExportLine.model_fields)) from None
    except (ValueError, TypeError) as problem:  # a TypeError for a lone surrogate, which cannot be encoded
        raise InvalidInput(f"is not JSON: {problem}") from None
    until = None if line.until is None else BusPosition.parse(line.until)
    if until is not None and (wanted := len(until.shards)) != shards:
        raise OtherShards(wanted, shards)
    if line.shard >= shards:
        raise InvalidInput(f"is of shard {line.shard}; this bus has {shards} shards, numbered from 0")
    index, total = map(int, line.batch.split("/"))
    if not index <= total <= MAX_BATCH:
        raise InvalidField("batch", f"{shown(line.batch)} is not i/n with n up to {MAX_BATCH:,}")
    id = Position(line.ms, line.seq).stream_id.encode()
    fields = [part for name in _TEXTS for part in (name.encode(), getattr(line, name).encode())]
    try:
        event = decode_entry([id, [*fields, b"event", to_json(line.event)]], line.shard)
    except Poison as poison:
        raise InvalidInput(f"is not an event: {poison.reason}") from None
    return [id, [*fields, b"event", encode_body(event)]], event, until
