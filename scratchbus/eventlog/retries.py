"""Retries of a write whose reply was lost: what the log, or the archive, has of it.

An event id that this code makes says how far the log reached before it was first sent. So a retry in any process, at
any time, knows from where on the log may have the event, and nothing has to be remembered for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic_core import from_json

from scratchbus.domain.events import Event
from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Fetch, Step, ask, ask_all
from scratchbus.errors import EngineLoading, EngineUnreachable, EventIdReused, PositionLost
from scratchbus.eventlog.archived import Past
from scratchbus.eventlog.codec import RawEntry, entry_fields, entry_position
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.writes import Write

_BOUNDED = re.compile(r"[\w-]{12}[0-9a-f]+~([0-9a-f]{1,12})-([0-9a-f]{1,12})(?:/.*)?", re.ASCII)
_TOLD = ("reason", "action", "holder", "title", "summary", "session")
_CONTENT = {"added", "note_added", "note_updated", "notepad_written", "scratchpad_written"}
_BATCHES = "ad"  # the ops of which a caller writes several at once

Wanted = Mapping[bytes, str | None]
"""The ids of the events that are looked for, each with its writer, None where no other event can have the id."""


def bound(reached: str) -> str:
    """Return the end of a new event id: how far its log reached, as a stream id, before it is sent."""
    ms, _, seq = reached.partition("-")
    return f"~{int(ms):x}-{int(seq):x}"


def bound_of(event_id: str) -> str | None:
    """Return behind which stream id the log may have an event, None for an id that this code did not make."""
    match = _BOUNDED.fullmatch(event_id)
    return None if match is None else f"{int(match[1], 16)}-{int(match[2], 16)}"


def wanted_of(writes: Sequence[Write]) -> Wanted:
    """Return what to look for in the log to find out whether these were written."""
    return {write.event.id.encode(): write.event.by if write.digest else None for write in writes}


def _is_wanted(entry: RawEntry, wanted: Wanted) -> bool:
    fields = entry_fields(entry)
    id = fields.get(b"id", b"")
    return id in wanted and (wanted[id] is None or _writer_of(fields) == wanted[id])


def is_of(entry: RawEntry, event_id: bytes, who: bytes) -> bool:
    """Say whether an entry has an event id and, unless that is empty, this writer, as JSON."""
    fields = entry_fields(entry)
    return fields.get(b"id") == event_id and (not who or _writer_of(fields) == from_json(who))


def _writer_of(fields: Mapping[bytes, bytes]) -> object:
    try:
        return from_json(fields[b"event"]).get("by")
    except (ValueError, LookupError, AttributeError):
        return None  # it is no event


def look_for(keys: ShardKeys, after: str, wanted: Wanted) -> Step[str]:
    """Read the log after a stream id until it ends or has one of these events; return where the script looks on.

    A log that does not have that id, because another server took over or it was trimmed, is read from its start. Where
    it has it, all of that millisecond is read: while the clock of a server that took over is behind, every event is of
    the same one, and its log may have another event at that id.
    """
    try:
        if after != START.stream_id:
            is_there = yield from ask(keys.shard, "XRANGE", keys.log, after, after)
            after = f"{after.partition('-')[0]}-0" if is_there else START.stream_id
        while True:
            entries = yield from ask(keys.shard, "XRANGE", keys.log, f"({after}", "+", "COUNT", 1000)
            for entry in entries:
                if _is_wanted(entry, wanted):
                    return after
                after = entry[0].decode()
            if len(entries) < 1000:
                return after
    except (EngineUnreachable, EngineLoading):
        return after


def look_below(keys: ShardKeys, past: Past | None, after: str, wanted: Wanted) -> Step[list[RawEntry]]:
    """Return those of these events that the archive has behind a stream id and the log no longer.

    Raises PositionLost where there is no archive to look into.
    """
    floor, origin = yield from ask_all(keys.shard, [("GET", keys.floor), ("GET", keys.origin)])
    at = Position.parse(after)._replace(shard=keys.shard)
    if not floor or (end := Position.parse(floor.partition(b"|")[0].decode())._replace(shard=keys.shard)) <= at:
        return []
    if past is None:
        raise PositionLost(
            f"shard {keys.shard}: the events after {after} were archived, so it is unknown whether the write happened;"
            " set archive_url to the location of the archive"
        )
    found: list[RawEntry] = []
    while at < end:
        stretch = yield Fetch(partial(past.after, keys.shard, (origin or b"").decode(), at, end, 1000))
        found += [entry for entry in stretch.entries if _is_wanted(entry, wanted)]
        if stretch.at <= at:
            break
        at = stretch.at
    return found


def check_same(writes: Sequence[Write], entries: Sequence[RawEntry]) -> None:
    """Compare what was found under ids of our own making, of which no digest is kept, with what is sent again.

    Raises EventIdReused for an event that these writes cannot have made.
    """
    found = {entry_fields(entry)[b"id"].decode(): entry_fields(entry) for entry in entries}
    for write in writes:
        fields = found.get(write.event.id)
        if fields is None:
            if found and write.op in _BATCHES:
                raise EventIdReused(writes[0].event.id)
        elif not _may_be(write, fields):
            raise EventIdReused(write.event.id)
    last = found.get(writes[-1].event.id)
    if last is not None and writes[-1].op in _BATCHES:
        index, _, total = last[b"batch"].partition(b"/")
        if index != total:
            raise EventIdReused(writes[0].event.id)


def _may_be(write: Write, fields: Mapping[bytes, bytes]) -> bool:
    """Say whether a write can have made an entry: in what follows from nothing but its caller's arguments."""
    event, body = write.event, from_json(fields[b"event"])
    kind = fields[b"kind"].decode()
    kinds = (event.kind, "repeated") if write.op == "a" else (event.kind,)
    names = [*_TOLD, *(("content",) if kind in _CONTENT else ()), *(("status",) if kind == "status_changed" else ())]
    return (
        fields[b"page"].decode() == event.page
        and (kind in kinds or not event.kind)  # without one, it is only asked whether it is there
        and (write.op in "ap" or event.subject.endswith("_") or fields[b"subject"].decode() == event.subject)
        and all(_same(event, body, name) for name in names)
    )


def _same(event: Event, body: Mapping[str, Any], name: str) -> bool:
    return name not in type(event).model_fields or name not in body or body[name] == getattr(event, name)


def positions_of(writes: Sequence[Write], entries: Sequence[RawEntry], shard: int) -> list[Position]:
    """Return where the events of these writes are, in the order of the writes."""
    found = {entry_fields(entry)[b"id"].decode(): entry_position(entry, shard) for entry in entries}
    return [found[write.event.id] for write in writes if write.event.id in found]
