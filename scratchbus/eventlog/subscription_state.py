"""The stored state of durable subscriptions. All conversations about it are safe to repeat."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from secrets import token_hex
from typing import Any, Literal, NamedTuple

from scratchbus.domain.position import BusPosition, Position
from scratchbus.engine.steps import Step, ask, ask_all, batches, undo_if_cancelled
from scratchbus.errors import LeaseLost, LogError, SubscriptionHeld, SubscriptionMismatch
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import Cursor, cursors
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.raw_entries import texts_of
from scratchbus.eventlog.subscription_errors import dropped, parsing, removed
from scratchbus.eventlog.subscription_script import run_script, subscription_script

_TAKEN_AT_ONCE = 1_000  # dead letters in one call of the script, during which the engine does nothing else
_EVENT_ID = re.compile(r"[!-~]{1,1000}")


class CursorEnd(NamedTuple):
    """A cursor in a shard's log: a position, and the id of the event there, by which a replaced log is recognised.

    The id is "" if it is unknown, or if no bus wrote the entry.
    """

    position: Position
    event_id: str = ""

    def __str__(self) -> str:
        return f"{self.position}|{self.event_id if _EVENT_ID.fullmatch(self.event_id) else ''}"


class Grant(NamedTuple):
    """A lease just taken, and the state of its subscription. `ends` are the handled positions, by shard.

    `trying` is the position, as text, of the event that failed `attempts` times and must wait another `wait_ms`.
    `is_takeover`: the previous holder did not release the lease. `redeliveries`: how many dead letters are to be
    redelivered. `handed_out` lists the events that a pulling client has not settled (see `pulls.OutEntry`). `filters`
    and `max_attempts` come from the definition, `now` is the engine's time (ms).
    """

    ends: list[CursorEnd]
    origins: str
    trying: str
    attempts: int
    wait_ms: int
    is_takeover: bool
    redeliveries: int
    handed_out: str
    filters: str
    max_attempts: int | None
    now: int


class HeldByOther(NamedTuple):
    """Another consumer has the lease, for that long unless it is renewed."""

    holder: str
    left_ms: int


class SubscriptionLease(NamedTuple):
    """A consumer's lease on a subscription, or its request for one. `who` is shown to people."""

    keys: ShardKeys
    name: str
    token: str
    who: str
    ms: int

    def take(self, filters: str, start: str, reset: bool = False) -> Step[Grant | HeldByOther]:
        """Take the lease if it is free; a new subscription, or one with `reset`, begins at `start`.

        With an empty `start` the subscription must exist. Raises SubscriptionMismatch, SubscriptionHeld, NotFound, or
        PositionLost for a dropped subscription.
        """
        return (yield from undo_if_cancelled(self._take("take", filters, start, reset), self.leave))

    def take_to_pull(self) -> Step[Grant | HeldByOther]:
        """Take the lease of an existing subscription for a pulling client, if free. Raises NotFound or PositionLost."""
        return (yield from self._take("pull", "", "", False))

    def _take(self, operation: str, filters: str, start: str, reset: bool) -> Step[Grant | HeldByOther]:
        reply = yield from self._begin(operation, filters, start, reset)
        if reply[0] == 1:
            try:
                with parsing(self.name):
                    return _grant(reply)
            except LogError:
                yield from self.leave()
                raise
        if reply[0] == -2:
            raise removed(self.name)
        if reply[0] == -3:
            raise dropped(self.name, *reply[1:])
        holder = reply[1].decode()
        if reply[0] == -1:
            raise SubscriptionMismatch(self.name, holder, reply[3].decode(), filters)
        if reset:
            raise SubscriptionHeld(self.name, holder, "be reset")
        return HeldByOther(holder, reply[2])

    def declare(self, filters: str, start: str, reset: bool = False) -> Step[None]:
        """Begin a new or reset subscription at `start`, without taking its lease. Raises SubscriptionHeld."""
        reply = yield from self._begin("declare", filters, start, reset)
        if reply[0] == -2:
            raise removed(self.name)
        if reset and reply[0] in (0, -1):
            raise SubscriptionHeld(self.name, reply[1].decode(), "be reset")

    def keep(self, ends: Sequence[CursorEnd], origins: str, *, is_renewed: bool = True) -> Step[int]:
        """Renew the lease, unless that is not wanted, and move the cursor forward.

        Returns how many dead letters are to be redelivered. Raises LeaseLost.
        """
        lease_ms = self.ms if is_renewed else 0
        return int((yield from self._hold("keep", lease_ms=lease_ms, origins=origins, **_script_arguments(ends)))[1])

    def note(self, position: str, attempts: int, wait_ms: int) -> Step[None]:
        """Record how often an event has failed, and how long it has to wait. Raises LeaseLost."""
        yield from self._hold("note", position=position, attempts=attempts, wait_ms=wait_ms)

    def done(self, position: str) -> Step[None]:
        """Forget the failures of an event, and that it was to be redelivered. Raises LeaseLost."""
        yield from self._hold("done", position=position)

    def set_aside(self, position: str, dead_letter: str, ends: Sequence[CursorEnd]) -> Step[None]:
        """Make an event a dead letter and move the cursor, in one step. Raises LeaseLost."""
        yield from self._hold("set aside", position=position, dead_letter=dead_letter, **_script_arguments(ends))
        yield from drop_if_erased(self.keys, self.name, position)

    def hand_out(self, entries: Sequence[object], ends: Sequence[CursorEnd], origins: str) -> Step[None]:
        """Record these `OutEntry`s as handed out, and move the cursor; release the lease if none. Raises LeaseLost."""
        out = " ".join(map(str, entries))
        yield from self._hold("hand out", out=out, lease_ms=self.ms, origins=origins, **_script_arguments(ends))

    def leave(self) -> Step[None]:
        """Release the lease. Raises LeaseLost."""
        yield from self._hold("leave")

    def _begin(self, operation: str, filters: str, start: str, reset: bool) -> Step[list[Any]]:
        reply = yield from run_script(
            self.keys, self.name, operation, token=self.token, lease_ms=self.ms, who=self.who, filters=filters,
            start=start, reset=int(bool(reset)),
        )  # fmt: skip
        return subscription_script.answer(reply, 1, 0, -1, -2, -3)

    def _hold(self, operation: str, **needed: Any) -> Step[list[Any]]:
        reply = yield from run_script(self.keys, self.name, operation, token=self.token, **needed)
        if subscription_script.answer(reply, 1, 0)[0] == 0:
            raise LeaseLost(self.name)
        return reply


def _grant(reply: list[Any]) -> Grant:
    cursor, origins, trying, events, handed_out, stored, max_attempts, now = (
        part.decode() for part in (*reply[1:4], *reply[8:])
    )
    ids = dict(event.split("|", 1) for event in events.split())
    ends = [CursorEnd(at, ids.get(str(at), "")) for at in BusPosition.parse(cursor).shards]
    return Grant(
        ends, origins, trying, reply[4], reply[5], bool(reply[6]), reply[7], handed_out, stored,
        int(max_attempts) if max_attempts else None, int(now),
    )  # fmt: skip


def _script_arguments(ends: Sequence[CursorEnd]) -> dict[str, str]:
    cursor = BusPosition(tuple(end.position for end in ends))
    return {"cursor": str(cursor), "events": " ".join(map(str, ends))}


def open_cursors(
    log: Log, ends: Sequence[CursorEnd], origins: str, pages: Collection[str] | None
) -> Step[list[Cursor]]:
    """Return cursors that continue where a subscription stands, in the logs of these pages."""
    opened = yield from cursors(log, BusPosition(tuple(end.position for end in ends)), pages)
    known_origins = dict(enumerate(origins.split(",")))
    for cursor in opened:
        cursor.origin = known_origins.get(cursor.position.shard) or cursor.origin
        cursor.event_id = ends[cursor.position.shard].event_id or cursor.event_id
    return opened


def origins_of(log: Log, origins: str, cursors: Sequence[Cursor]) -> str:
    """Return the origins of all logs as a subscription stores them: the known ones, and those that cursors found."""
    known_origins = dict(enumerate(origins.split(","))) | {cursor.position.shard: cursor.origin for cursor in cursors}
    return ",".join(known_origins.get(shard, "") for shard in range(log.shards))


def remove(keys: ShardKeys, name: str) -> Step[None]:
    """Delete a subscription with its dead letters. Raises NotFound, or SubscriptionHeld."""
    state = yield from read_state(keys, name)
    reply = yield from run_script(keys, name, "remove", made=state.get("made", ""))
    if subscription_script.answer(reply, 1, 0)[0] == 0:
        raise SubscriptionHeld(name, reply[1].decode(), "be removed")


def take_dead_letters(
    keys: ShardKeys, name: str, operation: Literal["redeliver", "drop"], positions: Sequence[str]
) -> Step[int]:
    """Mark dead letters for redelivery, or delete them; return how many there were."""
    taken = 0
    for batch in batches(positions, _TAKEN_AT_ONCE):
        match (yield from run_script(keys, name, operation, *batch, token=token_hex(8))):
            case [int(count)]:
                taken += count
            case reply:
                raise subscription_script.unknown(reply)
    return taken


def drop_if_erased(keys: ShardKeys, name: str, position: str) -> Step[None]:
    """Delete a dead letter just written if its event was erased meanwhile, since the eraser may have missed it."""
    event = Position.parse(position)
    if not (yield from not_erased(ShardKeys(keys.bus, event.shard), [event])):
        yield from ask(keys.shard, "HDEL", keys.dead(name), position)


def drop_idle(keys: ShardKeys, ttl_ms: int) -> Step[list[tuple[str, str]]]:
    """Drop the subscriptions without a consumer for this long; return their names and positions.

    They stay known, but trimming no longer waits for them.
    """
    dropped = []
    for name in (yield from names(keys)):
        match (yield from run_script(keys, name, "idle", idle_ms=ttl_ms)):
            case [1, 0]:
                continue
            case [1, 1, bytes(cursor)]:
                dropped.append((name, cursor.decode()))
            case reply:
                raise subscription_script.unknown(reply)
    return dropped


def read_cursors(log: Log) -> Step[dict[str, list[Position]]]:
    """Return the handled positions of each subscription that is not dropped, in the logs of its pages."""
    keys = log.keys(0)
    all_names = yield from names(keys)
    if not all_names:
        return {}
    rows = yield from ask_all(0, [("HGETALL", keys.subscription(name)) for name in all_names])
    states = {name: texts(row) for name, row in zip(all_names, rows, strict=True)}
    return {name: cursors_of(log, name, state) for name, state in states.items() if state and "dropped" not in state}


def cursors_of(log: Log, name: str, state: dict[str, str]) -> list[Position]:
    """Return the handled positions of a subscription, in the logs of its pages. Raises LogError."""
    with parsing(name):
        pages = json.loads(state.get("filters", "{}")).get("pages")
        shards = None if pages is None else {log.shard(page) for page in pages}
        return [at for at in BusPosition.parse(state["cursor"]).shards if shards is None or at.shard in shards]


def names(keys: ShardKeys) -> Step[list[str]]:
    """Return the names of all subscriptions."""
    return sorted(texts_of((yield from ask(keys.shard, "SMEMBERS", keys.subscriptions))))


def read_state(keys: ShardKeys, name: str) -> Step[dict[str, str]]:
    """Return the stored fields of a subscription. Raises NotFound."""
    state = texts((yield from ask(keys.shard, "HGETALL", keys.subscription(name))))
    if not state:
        raise removed(name)
    return state


def texts(row: list[bytes]) -> dict[str, str]:
    """Return the reply of HGETALL as texts."""
    return dict(zip(texts_of(row[::2]), texts_of(row[1::2]), strict=True))
