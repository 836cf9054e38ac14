"""Conversations about rebuilding the state. All except the switch are safe to send twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.scans import find_keys
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Interrupted, Pause, Step, ask, batches
from scratchbus.errors import RebuildHeld
from scratchbus.eventlog.checkpoint import checkpoint_key
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import CHECKPOINT, LUA
from scratchbus.eventlog.raw_entries import text_of

LEASE_MS = 10_000
"""How long the lease lasts after its holder last renewed it."""

_CHECK_INTERVAL = 0.5  # seconds between two checks whether the holder of the lease is alive


@lua_script("eventlog/clock", "eventlog/entries", "readmodel/rebuild", constants=LUA)
def _rebuild(
    *, lease: Key, live: Key, origin: Key, tail: Key, next: Key, never: Key, operation: str, token: str, lease_ms: int,
    who: str,
) -> None:  # fmt: skip
    """Do a step under the lease of a rebuild; `live` and `next` are the checkpoints of the two builds.

    While the number of the build is not known, `next` is a key that never exists, like `never`.
    """


class RebuildLease(NamedTuple):
    """A lease to rebuild a shard's state, as the build with this number; `live` is the build that readers use."""

    keys: ShardKeys
    token: str
    build: int
    live: int

    def keep(self) -> Step[Position]:
        """Renew the lease; return the end of the log. Raises RebuildHeld if another process has taken over."""
        reply = yield from self._hold("keep")
        return end_of(reply[1], self.keys.shard)

    def switch(self) -> Step[bool]:
        """Make the build the live one, if it has folded at least as much; return whether it is. Raises RebuildHeld."""
        try:
            return bool((yield from self._hold("switch"))[0] == 1)
        except Interrupted:
            yield Pause(0.02)
            live = yield from ask(self.keys.shard, "GET", checkpoint_key(self.keys))
            stored = CHECKPOINT.regex.fullmatch(text_of(live or b""))
            return stored is not None and int(stored[3]) == self.build

    def leave(self) -> Step[None]:
        """Release the lease; do nothing if it has expired."""
        yield from _run(self.keys, "leave", self.token, self.build)

    def _hold(self, operation: str) -> Step[list[Any]]:
        reply = yield from _run(self.keys, operation, self.token, self.build)
        if reply[0] == 0:
            raise RebuildHeld(self.keys.shard, reply[1].decode() or "someone else")
        return reply


def take(keys: ShardKeys, who: str) -> Step[RebuildLease]:
    """Take the lease of a shard. Raises RebuildHeld while its holder renews it."""
    token, last_until = token_hex(8), None
    while True:
        reply = yield from _run(keys, "take", token, None, who)
        if reply[0] == 1:
            return RebuildLease(keys, token, reply[1], reply[2])
        _, holder, until = reply
        if last_until is not None and until != last_until:
            raise RebuildHeld(keys.shard, holder.decode())
        last_until = until
        yield Pause(_CHECK_INTERVAL)


def clear(lease: RebuildLease, kept: Sequence[int]) -> Step[None]:
    """Delete the keys of all builds before this one, except these."""
    shard, tag = lease.keys.shard, lease.keys.tag
    key_of_build = re.compile(rb"%bp(\d{1,15}):" % re.escape(tag.encode()))
    found = yield from find_keys(shard, match=f"{tag}p[0-9]*")
    builds = {key: int(match[1]) for key in found if (match := key_of_build.match(key))}
    old = [key for key, build in builds.items() if build < lease.build and build not in kept]
    for batch in batches(old, 1_000):
        yield from ask(shard, "UNLINK", *batch)


def _run(keys: ShardKeys, operation: str, token: str, build: int | None, who: str = "") -> Step[list[Any]]:
    next_checkpoint = keys.ids if build is None else keys.page("", build).checkpoint
    command = _rebuild(
        lease=keys.rebuilding,
        live=checkpoint_key(keys),
        origin=keys.origin,
        tail=keys.tail,
        next=next_checkpoint,
        never=keys.ids,
        operation=operation,
        token=token,
        lease_ms=LEASE_MS,
        who=who,
    )
    if operation != "switch":
        return _rebuild.answer((yield from ask(keys.shard, *command)), 1, 0)
    (reply,) = yield Call(keys.shard, (command,), is_write=True)
    return _rebuild.answer(reply, 1, 0, 2)
