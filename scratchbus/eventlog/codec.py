"""Bytes to objects and back: entries of the log, documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import methodcaller
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaSerializer, SchemaValidator, core_schema, from_json, to_json

from scratchbus.domain.events import ENVELOPE, EVENTS, SCHEMA, Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.upcasters import UPCASTERS, Upcaster, upcast
from scratchbus.errors import CodeTooOld, shown
from scratchbus.eventlog.layouts import ENTRY, NO_TAGS
from scratchbus.eventlog.salvage import salvage
from scratchbus.projections.projection import Document
from scratchbus.projections.table import projection_of
from scratchbus.telemetry.logs import stderr_logger

_PREFIX = b'{"v":%d,' % SCHEMA
LAYOUT = [name.encode() for name in ENTRY]
"""The fields of an entry, in order."""
logger = stderr_logger()
_BATCH = re.compile(rb"(\d{1,9})/(\d{1,9})")
_quoted = lru_cache(methodcaller("translate", {ord(char): f"%{ord(char):02X}" for char in "%,|"}))
_EMPTY = [b""] * len(LAYOUT)

_OBSERVATIONS = TypeAdapter(list[Observation], config=ConfigDict(defer_build=True))

RawEntry = Sequence[Any]
"""A stream entry as the engine gives it: `[id, [field, value, …]]`, all bytes."""


class Poison(ValueError):
    """An entry of the log that is no event. Its place and subject are known, its content is not."""

    def __init__(self, envelope: Mapping[str, Any], reason: str) -> None:
        super().__init__(reason)
        self.envelope = dict(envelope)
        self.reason = reason

    @property
    def position(self) -> Position:
        """Its place in the log."""
        return Position(self.envelope["ms"], self.envelope["seq"], self.envelope["shard"])

    @property
    def page(self) -> str:
        """The page that it names."""
        return str(self.envelope["page"])

    @property
    def subject(self) -> str:
        """The subject that it names."""
        return str(self.envelope["subject"])


@lru_cache
def _validator_of(kind: bytes) -> SchemaValidator | None:
    """Return what decodes the fields of a kind of event; None for a kind that does not exist."""
    cls = EVENTS.get(text_of(kind))
    if cls is None:
        return None
    cls.model_rebuild()  # its schema is built when the first event of its kind is read
    return cast(SchemaValidator, cls.__pydantic_validator__)


@cache
def _serializer_of(cls: type[Event]) -> SchemaSerializer:
    """Return what encodes the fields of a kind of event without its envelope, faster than by leaving it out."""
    cls.model_rebuild()
    model: Any = cls.__pydantic_core_schema__
    fields = model["schema"]["fields"].items()
    body = {name: core_schema.typed_dict_field(each["schema"]) for name, each in fields if name not in ENVELOPE}
    return SchemaSerializer(core_schema.typed_dict_schema(body))


def encode_body(event: Event) -> bytes:
    """Return the body of an event: JSON with the schema version first, without what is default."""
    return _PREFIX + _serializer_of(type(event)).to_json(event.__dict__, exclude_defaults=True)[1:]


def encode_tags(tags: Collection[str]) -> str:
    """Return tags as a head keeps them: with a comma before and after each, and what would be mistaken as `%xx`."""
    return f",{','.join(map(_quoted, tags))}," if tags else NO_TAGS


text_of: Callable[[bytes], str] = methodcaller("decode", "utf-8", "replace")
"""Returns stored bytes as text; anyone who may XADD by hand may have written what is not UTF-8."""


def entry_id(entry: RawEntry) -> str:
    """Return the event id of a raw entry, empty if it has none."""
    return text_of(entry_fields(entry).get(b"id", b""))


def batch_place(entry: RawEntry) -> tuple[int, int] | None:
    """Return which of its atomic batch a raw entry is, from 1, and of how many; None if it does not say so."""
    place = _BATCH.fullmatch(entry_fields(entry).get(b"batch", b"1/1"))
    return (int(place[1]), int(place[2])) if place else None


def entry_position(entry: RawEntry, shard: int) -> Position:
    """Return the position of a raw entry."""
    ms, _, seq = entry[0].partition(b"-")
    return Position(int(ms), int(seq), shard)


def entry_fields(entry: RawEntry) -> dict[bytes, bytes]:
    """Return the fields of a raw entry."""
    flat = entry[1]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def decode_entry(entry: RawEntry, shard: int, upcasters: Mapping[int, Upcaster] = UPCASTERS) -> Event:
    """Return the event of a raw entry, of whatever schema version. Raises Poison, or CodeTooOld for a newer one."""
    ms, _, seq = entry[0].partition(b"-")
    flat = entry[1]
    values = flat[1::2] if flat[::2] == LAYOUT else list(map(entry_fields(entry).get, LAYOUT, _EMPTY))
    id, subject, page, kind, type_, batch, prev, body = values
    if not body.startswith(_PREFIX):
        body = _as_of_today(kind, body, _envelope(entry, shard), upcasters)
    validator = _validator_of(kind)
    if validator is None:
        raise Poison(_envelope(entry, shard), f"unknown kind {text_of(kind)!r}")
    try:
        event: Event = validator.validate_json(b"{" + body[len(_PREFIX) :])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise Poison(_envelope(entry, shard), f"{where}: {first['msg']}") from None
    event.__dict__.update(  # nobody has the event yet, and `placed` would copy what was just decoded
        id=text_of(id),
        subject=text_of(subject),
        page=text_of(page),
        kind=text_of(kind),
        type=text_of(type_),
        batch=text_of(batch),
        prev=text_of(prev),
        ms=int(ms),
        seq=int(seq),
        shard=shard,
    )
    return event


def decode_item(entry: RawEntry, shard: int) -> Event | Poison:
    """Return the event of a raw entry, or Poison if it is none. Raises CodeTooOld."""
    return decode_items((entry,), shard)[0][1]


def decode_items(entries: Iterable[RawEntry], shard: int) -> list[tuple[RawEntry, Event | Poison]]:
    """Return raw entries, each with its event, or Poison if it is none. Raises CodeTooOld."""
    items: list[tuple[RawEntry, Event | Poison]] = []
    for entry in entries:
        try:
            items.append((entry, decode_entry(entry, shard)))
        except Poison as poison:
            items.append((entry, poison))
    return items


def _envelope(entry: RawEntry, shard: int) -> dict[str, Any]:
    """Return what is known of an entry that is no event."""
    fields, position = entry_fields(entry), entry_position(entry, shard)
    texts = {name.decode(): text_of(fields.get(name, b"")) for name in LAYOUT[:-1]}
    return texts | position._asdict()


def _as_of_today(kind: bytes, body: bytes, envelope: Mapping[str, Any], upcasters: Mapping[int, Upcaster]) -> bytes:
    """Return a body that does not begin as those of today do, as one that does. Raises Poison or CodeTooOld."""
    try:
        parsed = from_json(body)
    except ValueError as error:
        raise Poison(envelope, f"body is not JSON: {error}") from None
    version = parsed.pop("v", None) if isinstance(parsed, dict) else None
    if type(version) is not int or version == SCHEMA:
        raise Poison(envelope, "body has no schema version at its beginning")
    if version > SCHEMA:
        raise CodeTooOld(
            f"event {envelope['ms']}-{envelope['seq']} has schema version {version}, this code knows {SCHEMA};"
            " upgrade scratchbus"
        )
    try:
        return _PREFIX + to_json(upcast(text_of(kind), parsed, version, upcasters))[1:]
    except (ValueError, LookupError, TypeError) as error:
        raise Poison(envelope, f"body of schema version {version}: {error}") from None


def is_batch_end(entry: RawEntry) -> bool:
    """Return whether a raw entry is the last of its atomic batch; one that does not say is a batch of its own."""
    index, total = batch_place(entry) or (1, 1)
    return index == total


def encode_document(document: Document) -> bytes:
    """Return the stored form of a document: JSON without fields that are default or follow from its positions."""
    serializer = type(document).__pydantic_serializer__
    return serializer.to_json(document, exclude_defaults=True, exclude_computed_fields=True)


def decode_document(subject: str, row: bytes) -> Document | None:
    """Return the stored document of a subject; marked as damaged, or None, if it cannot be read as it is."""
    try:
        return read_document(subject, row)
    except ValidationError:
        logger.warning("a document cannot be read; run `scratchbus rebuild`", subject=subject, document=shown(row))
        return salvage(projection_of(subject).document, row)


def read_document(subject: str, row: bytes) -> Document:
    """Return the stored document of a subject. Raises ValidationError."""
    document: Document = projection_of(subject).document.__pydantic_validator__.validate_json(row)
    return document


def decode_observation(row: bytes) -> Observation | None:
    """Return the observation of a stored document, as `decode_document` does."""
    return cast(Observation | None, decode_document("", row))


def decode_observations(rows: Sequence[bytes | None]) -> list[Observation]:
    """Return the observations of many stored documents at once; None, and what cannot be read at all, is left out."""
    try:
        return _OBSERVATIONS.validate_json(b"[%b]" % b",".join(filter(None, rows)))
    except ValidationError:
        return [each for row in rows if row and (each := decode_observation(row)) is not None]


def read_observations(rows: bytes) -> list[Observation]:
    """Return the observations of stored documents with commas between them. Raises ValidationError."""
    return _OBSERVATIONS.validate_json(b"[%b]" % rows)
