"""Entries of the log as the engine returns them, and their fields before the bodies are decoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import msgspec

from scratchbus.domain.position import Position
from scratchbus.eventlog.layouts import ENTRY

LAYOUT = [name.encode() for name in ENTRY]
"""The fields of an entry, in order."""
_ID, _KIND, _BATCH_FIELD, _BODY = map(LAYOUT.index, (b"id", b"kind", b"batch", b"event"))
_EMPTY = [b""] * len(LAYOUT)
NUMBERS = msgspec.json.Decoder(list[int])
"""Decodes a JSON list of the parts of many stream ids."""
_BATCH = re.compile(rb"(\d{1,9})/(\d{1,9})")

RawEntry = Sequence[Any]
"""A stream entry as the engine returns it: `[id, [field, value, …]]`, all bytes."""


text_of: Callable[[bytes], str] = methodcaller("decode", "utf-8", "replace")
"""Returns stored bytes as text; an entry added by hand may not be UTF-8."""


def texts_of(stored: Sequence[bytes]) -> list[str]:
    """Return each of many stored bytes as text."""
    try:
        return [*map(bytes.decode, stored)]
    except UnicodeDecodeError:
        return [*map(text_of, stored)]


def entry_id(entry: RawEntry) -> str:
    """Return the event id of a raw entry, empty if it has none."""
    return text_of(entry_values(entry)[_ID])


def entry_kind(entry: RawEntry) -> bytes:
    """Return the kind of a raw entry's event, empty if it has none."""
    return entry_values(entry)[_KIND]


def entry_body(entry: RawEntry) -> bytes:
    """Return the body of a raw entry's event, empty if it has none."""
    return entry_values(entry)[_BODY]


def index_in_batch(entry: RawEntry) -> tuple[int, int]:
    """Return a raw entry's number in its atomic batch, from 1, and the batch's size; (1, 1) if it does not say."""
    match = _BATCH.fullmatch(entry_values(entry)[_BATCH_FIELD])
    return (int(match[1]), int(match[2])) if match else (1, 1)


def entry_position(entry: RawEntry, shard: int) -> Position:
    """Return the position of a raw entry."""
    ms, _, seq = entry[0].partition(b"-")
    return Position(int(ms), int(seq), shard)


def is_beside(entry: RawEntry, position: Position, event_id: str) -> bool:
    """Return whether a log may have both an entry and this event at a position: its numbers grow with time."""
    found = entry_position(entry, position.shard)
    if found == position:
        return entry_id(entry) == event_id
    return found.seq != position.seq and (found.seq < position.seq) == (found < position)


def entry_numbers(entries: Sequence[RawEntry]) -> tuple[list[int], list[int]]:
    """Return the `ms` and the `seq` of each of many raw entries."""
    numbers = NUMBERS.decode(b"[" + b",".join([id for id, _ in entries]).replace(b"-", b",") + b"]")
    return numbers[::2], numbers[1::2]


def entry_fields(entry: RawEntry) -> dict[bytes, bytes]:
    """Return the fields of a raw entry."""
    flat = entry[1]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def entry_values(entry: RawEntry) -> list[bytes]:
    """Return the values of a raw entry in the order of LAYOUT, empty for missing fields."""
    flat = entry[1]
    if flat[::2] == LAYOUT:
        return flat[1::2]  # type: ignore[no-any-return]  # a list of bytes
    return [*map(entry_fields(entry).get, LAYOUT, _EMPTY)]


def is_batch_end(entry: RawEntry) -> bool:
    """Return whether a raw entry is the last of its atomic batch; one without batch numbers is a batch of its own."""
    if entry_values(entry)[_BATCH_FIELD] == b"1/1":
        return True
    index, total = index_in_batch(entry)
    return index == total
