"""Entries behind the tail of a log, added by hand: readers ignore them, and a repair removes them.

A log ends at its `tail`, which only the append script moves, together with the entries that it adds. It appends
nothing while there is an entry behind the tail, so no foreign entry is ever among the events.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Step, ask, ask_all
from scratchbus.errors import InvalidPosition, LogError
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position, text_of
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


class ForeignEntry(NamedTuple):
    """An entry behind the last event of a shard's log that scratchbus did not write."""

    shard: int
    stream_id: str
    fields: dict[str, str]

    @classmethod
    def of(cls, entry: RawEntry, shard: int) -> ForeignEntry:
        """Return a raw entry as a ForeignEntry."""
        fields = {text_of(name): text_of(value) for name, value in entry_fields(entry).items()}
        return cls(shard, entry[0].decode(), fields)


def appended(entries: list[RawEntry], tail: bytes | None, origin: bytes | None, shard: int) -> list[RawEntry]:
    """Return the appended entries of a log, up to a tail that was read after them.

    Return all of them if the tail is lost or damaged: verification reports that, and it must not hide every event.
    """
    if not entries or (tail is None and origin is not None) or (tail or b"").startswith(entries[-1][0] + b"|"):
        return entries  # usually the tail is the last entry read
    try:
        return up_to(end_of(tail, shard), entries)
    except InvalidPosition:
        return entries


def up_to(end: Position, entries: list[RawEntry]) -> list[RawEntry]:
    """Return the entries of a log up to its end.

    Read the tail after the entries, not before: then it is at or after every event among them, and an entry behind it
    was not appended. Events appended in between belong to the next read.
    """
    if not entries or entry_position(entries[-1], end.shard) <= end:
        return entries
    return entries[: bisect_right(entries, end, key=lambda entry: entry_position(entry, end.shard))]


def read_foreign(log: Log, shard: int, limit: int) -> Step[list[ForeignEntry]]:
    """Return up to `limit` entries behind the tail of a shard's log."""
    keys = log.keys(shard)
    before = end_of((yield from ask(shard, "GET", keys.tail)), shard)
    entries, tail = yield from ask_all(
        shard, [("XRANGE", keys.log, f"({before.stream_id}", "+", "COUNT", limit), ("GET", keys.tail)]
    )
    count = len(up_to(end_of(tail, shard), entries))  # appended in between
    return [ForeignEntry.of(entry, shard) for entry in entries[count:]]


@lua_script("eventlog/clock", "eventlog/entries", "eventlog/last_id", "eventlog/repair", constants=LUA)
def _repair(*, log: Key, tail: Key, pages: Key, repaired: Key, ids: Key) -> None:
    """Remove some of the entries behind the tail of a log, or copy some of its events."""


def repair(log: Log) -> Step[list[ForeignEntry]]:
    """Remove the entries behind the tails of all logs, so that events can be appended again; return the entries.

    Each removed entry is logged. Raises LogError, after repairing all others, for a log whose tail is lost or damaged:
    nothing is removed from it.
    """
    removed: list[ForeignEntry] = []
    refused: list[int] = []
    for shard in range(log.shards):
        try:
            removed += yield from _repair_shard(log, shard)
        except LogError:
            refused.append(shard)
    if refused:
        removals = f"; removed from the others: {', '.join(each.stream_id for each in removed)}" if removed else ""
        raise LogError(
            f"shard {', '.join(map(str, refused))}: the tail names no event of the log, so where it ends is not known;"
            f" restore the engine from a backup{removals}"
        )
    return removed


def _repair_shard(log: Log, shard: int) -> Step[list[ForeignEntry]]:
    """Remove the entries behind the tail of a log. Raises LogError if the tail is lost or damaged."""
    keys = log.keys(shard)
    removed: list[ForeignEntry] = []
    while True:
        command = _repair(
            log=keys.log, tail=keys.tail, pages=keys.pages, repaired=keys.repaired, ids=keys.ids
        )  # sent as a read is, since it is safe to send twice
        (reply,) = yield Call(shard, (command,))
        match reply:
            case [b"sound"] | [b"replaced"]:
                return removed
            case [b"copied", int()]:
                pass
            case [b"removed", *entries]:
                found = [ForeignEntry.of(entry, shard) for entry in entries]
                for each in found:
                    logger.warning(
                        "an entry was removed from the log", shard=shard, entry=each.stream_id, fields=each.fields
                    )
                removed += found
            case [b"refused"]:
                raise LogError(f"shard {shard}: the tail names no event")
            case _:
                raise _repair.unknown(reply)
