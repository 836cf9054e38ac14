"""Events to bytes and back."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from itertools import compress, repeat
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict
from pydantic import ValidationError
from pydantic_core import SchemaSerializer, core_schema, from_json, to_json

from scratchbus.domain.event import ENVELOPE, SCHEMA, Event
from scratchbus.domain.models import MODEL_SLOTS
from scratchbus.domain.position import Position
from scratchbus.domain.upcasters import upcast
from scratchbus.errors import CodeTooOld
from scratchbus.eventlog.bodies import CLASSES, REFUSED, Fields, decoder_of, flat_decoder
from scratchbus.eventlog.layouts import NO_TAGS
from scratchbus.eventlog.raw_entries import (
    LAYOUT,
    NUMBERS,
    RawEntry,
    entry_fields,
    entry_position,
    entry_values,
    text_of,
)

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent

PREFIX = b'{"v":%d,' % SCHEMA
_encode = msgspec.json.Encoder().encode
_KIND = LAYOUT.index(b"kind")
_WIDTH = 2 * len(LAYOUT)  # the elements of an entry: names and values
_COLUMNS = [slice(at, None, _WIDTH) for at in range(1, _WIDTH, 2)]
_after_prefix = itemgetter(slice(len(PREFIX), None))
_first = itemgetter(0)
_new = object.__new__
_exhaust = deque[Any](maxlen=0).extend
_set_values, _set_given, _set_extra, _set_private = MODEL_SLOTS
_NONE_GIVEN = set[str]()
"""The names of the fields that were given to an event that was decoded: one empty set for all."""
_quoted = lru_cache(methodcaller("translate", {ord(char): f"%{ord(char):02X}" for char in "%,|"}))


class Poison(ValueError):
    """An entry of the log that is not a valid event. Its position and subject are known, its content is not."""

    def __init__(self, envelope: Mapping[str, Any], reason: str) -> None:
        super().__init__(reason)
        self.envelope = dict(envelope)
        self.reason = reason

    @property
    def position(self) -> Position:
        """The position of the entry."""
        return Position(self.envelope["ms"], self.envelope["seq"], self.envelope["shard"])

    @property
    def page(self) -> str:
        """The page that the entry names."""
        return str(self.envelope["page"])

    @property
    def subject(self) -> str:
        """The subject that the entry names."""
        return str(self.envelope["subject"])


@cache
def _serializer_of(cls: type[Event]) -> SchemaSerializer:
    """Return a serializer for the fields of a kind of event without the envelope; faster than excluding it."""
    cls.model_rebuild()
    model: Any = cls.__pydantic_core_schema__
    fields = model["schema"]["fields"].items()
    body = {name: core_schema.typed_dict_field(each["schema"]) for name, each in fields if name not in ENVELOPE}
    return SchemaSerializer(core_schema.typed_dict_schema(body))


def encode_body(event: Event) -> bytes:
    """Return the body of an event: JSON with the schema version first, without defaults."""
    return PREFIX + _serializer_of(type(event)).to_json(event.__dict__, exclude_defaults=True)[1:]


def encode_fields(fields: Mapping[str, Any]) -> bytes:
    """Return the body of an event with these fields besides the defaults.

    Return b"" if only `encode_body` can encode them, such as whole numbers of more than 64 bits.
    """
    try:
        return PREFIX + _encode(fields)[1:]
    except (TypeError, ValueError, OverflowError):
        return b""


def encode_tags(tags: Collection[str], blocked_by: Collection[str] = ()) -> str:
    """Return tags as a head keeps them: with a comma before and after each, and special characters as `%xx`.

    After the last comma come the ids that block the observation, each with a `%` before it. A recurring observation
    blocks itself.
    """
    text = f",{','.join(map(_quoted, tags))}," if tags else NO_TAGS
    return text + encode_blockers(blocked_by) if blocked_by else text


def encode_blockers(ids: Collection[str]) -> str:
    """Return the ids that block an observation as a head keeps them after the tags; `%` for none."""
    return f"%{'%'.join(ids)}"


AT_ONCE = 100
"""How many entries are best decoded together: the results for more no longer fit the processor's caches."""


class Decoded(NamedTuple):
    """Some entries of one log, decoded together, which is cheaper than one by one.

    `columns` has the fields of the envelopes, each for all entries. `bodies` has the fields of each entry's event, or
    the reason why it is not an event or this code cannot read it.
    """

    columns: Sequence[Sequence[bytes]]
    bodies: Sequence[Fields | Poison | CodeTooOld]


def decode_bodies(entries: Sequence[RawEntry], shard: int) -> Decoded:
    """Decode, and thereby check, the bodies of entries; `decode_items` makes events of them."""
    if len(entries) == 1:  # the columns would cost more than its body
        *envelope, text = entry_values(entries[0])
        return Decoded([*zip(envelope)], [_decode_body(entries[0], shard, envelope[_KIND], text)])
    columns: list[Sequence[bytes]]
    flat, widths = list[bytes](), set[int]()
    for _, row in entries:
        flat += row
        widths.add(len(row))
    if widths == {_WIDTH} and flat[::2] == LAYOUT * len(entries):  # faster than to zip the rows
        columns = [*map(flat.__getitem__, _COLUMNS)]
    else:
        columns = [*zip(*map(entry_values, entries), strict=True)] or [()] * len(LAYOUT)
    *envelopes, texts = columns
    kinds = envelopes[_KIND]
    try:
        rests = [*map(_after_prefix, texts)]
        if b"{" in b"".join(rests) or not (texts and min(texts).startswith(PREFIX) and max(texts).startswith(PREFIX)):
            raise LookupError  # if the first and the last are in order, so are all between them
        bodies = (
            flat_decoder(kinds[0])(b"[{%b]" % b",{".join(rests))
            if len(set(kinds)) == 1
            else _decode_mixed(kinds, rests)
        )
        if len(bodies) != len(texts):  # damaged bodies, which completed each other
            raise LookupError
    except REFUSED:
        bodies = [*map(_decode_body, entries, repeat(shard), kinds, texts)]
    return Decoded(envelopes, bodies)


def _decode_mixed(kinds: Sequence[bytes], rests: Sequence[bytes]) -> list[Any]:
    """Decode flat bodies of several kinds, grouped by kind."""
    found = {
        kind: iter(flat_decoder(kind)(b"[{%b]" % b",{".join(compress(rests, map(kind.__eq__, kinds)))))
        for kind in set(kinds)
    }
    return [*map(next, map(found.__getitem__, kinds))]


def _decode_body(entry: RawEntry, shard: int, kind: bytes, body: bytes) -> Fields | Poison | CodeTooOld:
    """Decode a body of any schema version."""
    try:
        if not body.startswith(PREFIX):
            body = _as_of_today(kind, body, _envelope(entry, shard))
        try:
            decoder = decoder_of(kind)
        except KeyError:
            return Poison(_envelope(entry, shard), f"unknown kind {text_of(kind)!r}")
        return decoder.decode(b"{" + body[len(PREFIX) :])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"])) or "body"
        return Poison(_envelope(entry, shard), f"{path}: {first['msg']}")
    except (Poison, CodeTooOld) as error:
        return error


def decode_items(
    entries: Sequence[RawEntry], shard: int, decoded: Decoded | None = None
) -> list[tuple[RawEntry, AnyEvent | Poison]]:
    """Return raw entries, each with its event or Poison; pass `decoded` if their bodies are already decoded.

    Raises CodeTooOld.
    """
    if not entries:
        return []
    decoded = decoded or decode_bodies(entries, shard)
    columns: list[Sequence[Any]] = []
    for column in decoded.columns:
        try:
            columns.append([*map(bytes.decode, column)])
        except UnicodeDecodeError:  # written by hand
            columns.append([*map(text_of, column)])
    numbers = NUMBERS.decode(b"[" + b",".join([*map(_first, entries)]).replace(b"-", b",") + b"]")  # of stream ids
    has_collector = gc.isenabled()
    gc.disable()  # it would scan these events several times, and none is garbage yet
    try:
        try:
            rows = [*map(asdict, decoded.bodies)]  # type: ignore[arg-type]  # others are refused
        except TypeError:
            return _decode_damaged(entries, shard, decoded)
        for values, id, subject, page, type_, batch, prev, ms, seq in zip(
            rows, *columns[:_KIND], *columns[_KIND + 1 :], numbers[::2], numbers[1::2], strict=True
        ):
            values["id"], values["subject"], values["page"], values["type"] = id, subject, page, type_
            values["batch"], values["prev"], values["ms"], values["seq"], values["shard"] = batch, prev, ms, seq, shard
        events: list[Any] = [*map(_new, map(CLASSES.__getitem__, columns[_KIND]))]  # as `trusted` does it, by column
        _exhaust(map(_set_values, events, rows))
        _exhaust(map(_set_given, events, repeat(_NONE_GIVEN)))
        _exhaust(map(_set_extra, events, repeat(None)))
        _exhaust(map(_set_private, events, repeat(None)))
        return [*zip(entries, events, strict=True)]
    finally:
        if has_collector:
            gc.enable()


def _decode_damaged(
    entries: Sequence[RawEntry], shard: int, decoded: Decoded
) -> list[tuple[RawEntry, AnyEvent | Poison]]:
    """Return what `decode_items` returns of entries of which some are not events. Raises CodeTooOld."""
    items: list[tuple[RawEntry, AnyEvent | Poison]] = []
    for entry, body, *envelope in zip(entries, decoded.bodies, *decoded.columns, strict=True):
        if isinstance(body, CodeTooOld):
            raise body
        items += (
            [(entry, body)]
            if isinstance(body, Poison)
            else decode_items((entry,), shard, Decoded([*zip(envelope)], [body]))
        )
    return items


def decode_item(entry: RawEntry, shard: int) -> AnyEvent | Poison:
    """Return the event of a raw entry of any schema version, or Poison if it is not an event. Raises CodeTooOld."""
    return decode_items((entry,), shard)[0][1]


def decode_entry(entry: RawEntry, shard: int) -> AnyEvent:
    """Return the event of a raw entry of any schema version. Raises Poison, or CodeTooOld for a newer one."""
    item = decode_item(entry, shard)
    if isinstance(item, Poison):
        raise item
    return item


def _envelope(entry: RawEntry, shard: int) -> dict[str, Any]:
    """Return the fields that are known of an entry that is not an event."""
    fields, position = entry_fields(entry), entry_position(entry, shard)
    texts = {name.decode(): text_of(fields.get(name, b"")) for name in LAYOUT[:-1]}
    return texts | position._asdict()


def _as_of_today(kind: bytes, body: bytes, envelope: Mapping[str, Any]) -> bytes:
    """Return a body, upcast to the current schema version if it is older. Raises Poison or CodeTooOld."""
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
        return PREFIX + to_json(upcast(text_of(kind), parsed, version))[1:]
    except (ValueError, LookupError, TypeError) as error:
        raise Poison(envelope, f"body of schema version {version}: {error}") from None
