"""Conversations of an archiver with the engine: its lease, and the removal of archived events from the log.

First the floor goes up, so that readers turn to the archive; then everything below it is removed, step by step. If an
archiver ends between two steps, the next one goes on with the entries that are still below the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.scans import scan_hash
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Step, ask, batches
from scratchbus.errors import ArchiveBusy, ArchiveDamaged, LogRewound
from scratchbus.eventlog.checkpoint import checkpoint_key, read_checkpoint
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.projections.subjects import is_remembered

AT_ONCE = 10_000
"""How many entries one call may remove from the log: about 2 ms of the engine's time."""

LONGEST_LEASE = 60_000
"""The longest lease (ms), that of an eraser. One that ends later was taken before the engine's clock was set back."""

_PAGES_AT_ONCE, _HEADS_AT_ONCE = 20, 1_000


@lua_script(
    "eventlog/clock", "eventlog/entries", "eventlog/position_search", "eventlog/trim",
    constants={**LUA, "LONGEST_LEASE": str(LONGEST_LEASE)},
)  # fmt: skip
def _trim(
    *keys_or_subjects: object,
    archiver: Key,
    log: Key,
    floor: Key,
    origin: Key,
    tail: Key,
    kept: Key,
    checkpoint: Key,
    never: Key,
    operation: str,
    token: str,
    lease_ms: int,
    who: str = "",
    log_origin: str = "",
    stream_id: str = "",
    event_id: str = "",
    heads: str = "",
    session_end: int = 0,
) -> None:
    """Do one step of archiving, under the lease of this token, extended by `lease_ms`.

    The operation says which of the arguments without a value it needs: `log_origin` is the origin of the archived log,
    `heads` the key of a page's heads, `session_end` the seq of the event that ended a session.
    """


class FloorLost(LogRewound):
    """The new floor is missing on the server that took over."""

    def __init__(self, shard: int) -> None:
        super().__init__(
            f"shard {shard}: the floor of the log was lost, as after a failover; nothing left the log that is not"
            " archived. Run the archiver again, and if this comes back, see that the replicas keep up"
        )


class Archiving(NamedTuple):
    """An archiver's lease on a shard's log, or its request for one. `who` is shown to people."""

    keys: ShardKeys
    token: str
    who: str
    ms: int

    def take(self) -> Step[int]:
        """Take the lease; return the engine's time (ms). Raises ArchiveBusy."""
        match (yield from self._do("take", who=self.who)):
            case [1, int(now)]:
                return now
            case reply:
                raise _trim.unknown(reply)

    def keep(self) -> Step[None]:
        """Renew the lease, which may have expired. Raises ArchiveBusy if another archiver has had it meanwhile."""
        yield from self._do("keep")

    def leave(self) -> Step[None]:
        """Release the lease if it is still held."""
        with suppress(ArchiveBusy):
            yield from self._do("leave")

    def record(self, seq: int, location: str) -> Step[None]:
        """Record that the archive at a location has the log up to an event."""
        yield from ask(self.keys.shard, "SET", self.keys.archived, f"{seq}|{location}")

    def check_unrecorded(self, location: str) -> Step[None]:
        """Raise ArchiveDamaged if an archive was recorded at a location where no segments were found."""
        found = yield from ask(self.keys.shard, "GET", self.keys.archived)
        seq, _, recorded = text_of(found or b"").partition("|")
        if recorded == location:
            raise ArchiveDamaged(
                f"{location} had events up to {seq}, and has no segments now; if it is on a disk of its own, mount that"
                " again. To begin a new archive, set archive_url to another location"
            )

    def raise_floor(self, origin: str, position: Position, event_id: str) -> Step[bool]:
        """Raise the floor to an event; return False if it is not folded yet, or the last one of the log.

        Raises ArchiveBusy, or LogRewound if the log does not have that event.
        """
        reply = yield from self._do("floor", log_origin=origin, stream_id=position.stream_id, event_id=event_id)
        match reply:
            case [1]:
                return True
            case [-1, b"checkpoint" | b"tail"]:
                return False
            case [-1, b"origin" | b"event"]:
                raise LogRewound(
                    f"shard {position.shard}: the log was flushed or replaced while it was archived; nothing was"
                    " trimmed"
                )
        raise _trim.unknown(reply)

    def cut(self, pages: Sequence[str]) -> Step[None]:
        """Remove positions below the floor from the history indexes of pages. Raises ArchiveBusy."""
        build = (yield from read_checkpoint(self.keys)).build
        names = [PageKeys(self.keys, page, build).positions for page in pages]
        for at in range(0, len(names), _PAGES_AT_ONCE):
            yield from self._do("cut", *names[at : at + _PAGES_AT_ONCE])

    def drop_heads(self, page: str, subjects: Sequence[str]) -> Step[None]:
        """Drop the heads of those subjects that are final, and whose events are below the floor.

        Raises ArchiveBusy.
        """
        for at in range(0, len(subjects), _HEADS_AT_ONCE):
            yield from self._do("heads", *subjects[at : at + _HEADS_AT_ONCE], heads=self.keys.heads(page))

    def drop_remembered(self, page: str, over: int) -> Step[None]:
        """Drop the heads of a session's memories; the event of this `seq`, below the floor, ended the session.

        Raises ArchiveBusy or FloorLost.
        """
        subjects, heads = list[bytes](), self.keys.heads(page)

        def take(rows: list[bytes]) -> None:
            subjects.extend(subject for subject in rows[::2] if is_remembered(text_of(subject)))

        yield from scan_hash(self.keys.shard, take, heads, count=_HEADS_AT_ONCE)
        for batch in batches(subjects, _HEADS_AT_ONCE):
            self._below((yield from self._do("over", *batch, heads=heads, session_end=over)))

    def copy(self, stream_id: str) -> Step[None]:
        """Copy an entry that is still needed to where it stays after the trim. Raises ArchiveBusy."""
        yield from self._do("copy", stream_id=stream_id)

    def trim(self, stream_id: str) -> Step[int]:
        """Remove the entries up to this one, which is not above the floor, from the log; return how many.

        Raises ArchiveBusy or FloorLost.
        """
        reply = self._below((yield from self._do("trim", stream_id=stream_id)))
        match reply:
            case [1, int(count)]:
                return count
        raise _trim.unknown(reply)

    def _below(self, reply: list[Any]) -> list[Any]:
        """Return a reply about entries below the floor. Raises FloorLost if they are not below it."""
        if reply == [-1, b"floor"]:
            raise FloorLost(self.keys.shard)
        if reply[0] != 1:
            raise _trim.unknown(reply)
        return reply

    def _do(self, operation: str, *keys_or_subjects: object, **needed: Any) -> Step[list[Any]]:
        keys = self.keys
        command = _trim(
            *keys_or_subjects,
            archiver=keys.archiver,
            log=keys.log,
            floor=keys.floor,
            origin=keys.origin,
            tail=keys.tail,
            kept=keys.kept,
            checkpoint=checkpoint_key(keys),
            never=keys.ids,
            operation=operation,
            token=self.token,
            lease_ms=self.ms,
            **needed,
        )
        reply = _trim.answer((yield from ask(keys.shard, *command)), 1, 0, -1)  # safe to send twice
        if reply[0] == 0:
            raise ArchiveBusy(keys.shard, reply[1].decode() or "someone else")
        return reply
