"""The lines of an export, each read as the event that it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json, to_json

from scratchbus.archive.importing.bodies import check_event
from scratchbus.domain.event import Event
from scratchbus.domain.position import Position, millis
from scratchbus.domain.values import check_whole
from scratchbus.errors import InvalidField, InvalidInput, shown
from scratchbus.eventlog.codec import Poison, RawEntry, decode_entry, encode_body

LONGEST_LINE = 16 * 1024 * 1024
"""The most characters of a line: no event that was ever appended makes a longer one."""

LAST_MS = millis(datetime(9000, 1, 1, tzinfo=UTC))
"""The time (ms) that no event may have: what lives on for long after it has to end within the year 9999."""

LAST_SEQ = 2**46
"""The number that no event may have: the score of an open observation holds its priority beside it."""

MOST_IN_BATCH = 4_096
"""The most events of a batch: the 1,000 that one may have, and what had to give way to each of them."""

_TEXTS = ("id", "subject", "page", "kind", "type", "batch", "prev")
_BATCH = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")


def read_line(line: str | bytes, shards: int) -> tuple[RawEntry, Event]:
    """Return the entry of a line, as it is to be written, and its event.

    Raises InvalidInput with what is wrong with it, or CodeTooOld.
    """
    if not isinstance(line, str | bytes):
        raise InvalidInput(f"{shown(line)} is not a line of text")
    if len(line) > LONGEST_LINE:
        raise InvalidInput(f"has {len(line):,} characters, the limit is {LONGEST_LINE:,}")
    try:
        parsed: dict[str, Any] = from_json(line, allow_inf_nan=False)
        texts = {name: parsed[name] for name in _TEXTS}
        ms, seq, shard = (parsed[name] for name in ("ms", "seq", "shard"))
        body = to_json(parsed["event"])
    except (ValueError, KeyError, TypeError) as problem:
        raise InvalidInput(f"is not an event of an export ({type(problem).__name__}: {problem})") from None
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InvalidField(name, f"{shown(text)} is not a text")
    check_whole("shard", shard, 0)
    if shard >= shards:
        raise InvalidInput(f"is of shard {shard}, and this bus has {shards}")
    place = Position(check_whole("ms", ms, 0, LAST_MS - 1), check_whole("seq", seq, 1, LAST_SEQ - 1), shard)
    _check_batch(texts["batch"])
    flat = [part for name, text in texts.items() for part in (name.encode(), text.encode())]
    try:
        event = decode_entry([place.stream_id.encode(), [*flat, b"event", body]], shard)
    except Poison as poison:
        raise InvalidInput(f"is not an event: {poison.reason}") from None
    check_event(event)
    return [place.stream_id.encode(), [*flat, b"event", encode_body(event)]], event


def _check_batch(text: str) -> None:
    match = _BATCH.fullmatch(text)
    if match is None or not int(match[1]) <= int(match[2]) <= MOST_IN_BATCH:
        raise InvalidField("batch", f"{shown(text)} is not i/n, with n up to {MOST_IN_BATCH:,}")
