"""Appending to the log: the guarded append, its refusals, and its retry after a lost reply."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Literal, NamedTuple, NoReturn

from scratchbus.counts import counts
from scratchbus.domain.events import Event, Lapsed, StatusChanged
from scratchbus.domain.position import Position
from scratchbus.errors import EngineError, EngineLoading, EngineUnreachable, InvalidName, NotReplicated, TooLarge
from scratchbus.log.codec import encode_body, entry_fields
from scratchbus.log.connections import PATIENCE, backoff
from scratchbus.log.keys import SYSTEM_PAGE, ShardKeys, shard_of
from scratchbus.log.past import Past
from scratchbus.log.revive import TRIES, drop_heads, revive
from scratchbus.log.steps import Call, Interrupted, Pause, Script, Step, ask
from scratchbus.log.writes import FIELDS, Write, refusal

MAX_BATCH = 1_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
_MOST_NAMES = 10_000  # pages whose keys are remembered


def _own(event: Event) -> str:
    """Return the body of an event that the script may have to add; it fills in `#by#` and `#new#`."""
    return encode_body(event).decode()


_ARCHIVED: dict[str, Any] = {"by": "#by#", "status": "archived", "status_class": "final"}
_START = "0-0"
_IN_DOUBT = "whether the last write happened is not known: retry it with the same event_id"
_NUMBERS = {name.upper(): str(number) for number, name in enumerate(FIELDS)}
_SCRIPT = Script(
    "append/inputs",
    "append/soonest",
    "append/plain",  # additions that nothing stands in the way of; all that follows is for the rest
    "append/retries",
    "append/heads",
    "append/room",
    "append/adding",
    "append/picking",
    "append/changing",
    "append/write",
    constants={
        "DISPLACED": _own(StatusChanged(reason_code="displaced", reason="made room for #new#", **_ARCHIVED)),
        "EXPIRED": _own(StatusChanged(reason_code="expired", **_ARCHIVED)),
        "LAPSED": _own(Lapsed(by="#by#")),
        **_NUMBERS,
    },
)
ERASE = Script(
    "append/inputs", "append/soonest", "append/retries", "append/heads", "append/erasing", constants=_NUMBERS
)
"""The script that appends a tombstone, and takes out what it stands for."""


class Written(NamedTuple):
    """What became of one write. One that mode "each" skipped has a position without `seq`, and the reason as kind."""

    position: Position
    version: int
    kind: str
    subject: str
    fence: int


class Idle(NamedTuple):
    """Why nothing was picked: what is free has less than the least priority, or something may be free at `soonest`.

    Times are ms, 0 for never; `priority` is -1 when nothing is free. `below` is the score to look on below, if any.
    """

    now: int
    soonest: int
    below: str
    priority: int


class Appended(NamedTuple):
    """The outcome of an append. `recalled`: the events were in the log before, and only their positions are known."""

    written: list[Written]
    recalled: list[Position] | None = None
    idle: Idle | None = None


@dataclass(slots=True)
class Log:
    """A bus's log as one process knows it: its name, its shards, and how far each was seen to reach.

    `is_spread`: the shards are on several servers, so that no call may concern two of them. `past` reads what was
    trimmed, where that can be read.
    """

    bus: str
    shards: int
    by: str = "system"
    id_days: int = 7
    replicas: int = 0
    replica_ms: int = 2_000
    patience: float = PATIENCE
    is_spread: bool = False
    past: Past | None = None
    seen: dict[int, str] = field(default_factory=dict)
    origin: str = field(default_factory=lambda: token_hex(8))
    _keys: dict[int, ShardKeys] = field(default_factory=dict)
    _names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def keys(self, shard: int) -> ShardKeys:
        """Return the keys of a shard."""
        found = self._keys.get(shard)
        if found is None:
            found = self._keys[shard] = ShardKeys(self.bus, shard)
        return found

    def names(self, page: str) -> tuple[str, ...]:
        """Return the keys that the append script takes for a page."""
        found = self._names.get(page)
        if found is None:
            keys = self.keys(self.shard(page))
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            found = self._names[page] = (
                keys.log, keys.tail, keys.origin, keys.pages, keys.heads(page), keys.open(page), keys.dedupe(page),
                keys.ids,
            )  # fmt: skip
        return found

    def shard(self, page: str) -> int:
        """Return the shard of a page."""
        return shard_of(page, self.shards)


def append(
    log: Log,
    page: str,
    writes: list[Write],
    *,
    room: int = 0,
    on_full: str = "displace",
    mode: Literal["all", "each"] = "all",
    script: Script = _SCRIPT,
) -> Step[Appended]:
    """Append events of one page: all or, when one is refused, none; mode "each" skips what is refused.

    `room` is how many open observations the page may have, 0 for no limit. Raises what the first refused event was
    refused for. A write whose reply is lost is looked for in the log before it is sent again, so it is never
    appended twice.
    """
    if page == SYSTEM_PAGE and any(write.op != "g" for write in writes):
        raise InvalidName(f"page: {page!r} is where the bus keeps its own events; write to another page")
    shard = log.shard(page)
    keys = log.keys(shard)
    before = log.seen.get(shard)
    if before is None:
        before = log.seen[shard] = yield from _read_tail(keys)
    arguments: list[object] = []
    for write in writes:
        arguments += write.arguments()
    _check_size(arguments, len(writes))
    names = log.names(page)
    wait = (("WAIT", log.replicas, log.replica_ms),) if log.replicas else ()
    scan, begun, attempt, revived = "", time.monotonic(), 0, dict[str, list[str]]()
    while True:
        options = (mode, page, room, on_full, log.id_days, scan, log.origin, log.by)
        try:
            reply, *copies = yield Call(shard, (script.command(names, (*options, *arguments)), *wait), is_write=True)
        except (Interrupted, EngineLoading) as lost:
            if time.monotonic() > begun + log.patience:
                raise EngineUnreachable(f"{lost}; {_IN_DOUBT}") from None
            yield Pause(backoff(attempt))
            attempt += 1
            scan = yield from _look_for(keys, before, {write.event.id.encode() for write in writes})
        except EngineError as error:
            if scan:
                error.args = (f"{error}; {_IN_DOUBT}",)
            raise
        else:
            subject = writes[reply[1] - 1].event.subject if reply[0] == 0 and reply[2] == b"missing" else None
            seen = revived.setdefault(subject, []) if subject is not None else []
            if subject is None or len(seen) >= TRIES or (head := (yield from revive(log, page, subject))) is None:
                break
            seen.append(head)
    if gone := {subject: seen[-1] for subject, seen in revived.items() if seen}:
        with suppress(EngineError):  # the write is what counts
            yield from drop_heads(keys, page, gone)  # those that were not written to: else they would stay for good
    outcome = _read_reply(log, shard, page, room, writes, reply)
    counts.append_took.add(time.monotonic() - begun)
    for row in outcome.written:
        if row.position.seq:
            counts.appended[row.kind] += 1
    if copies and copies[0] < log.replicas:
        raise NotReplicated(copies[0], log.replicas)
    return outcome


def _read_tail(keys: ShardKeys) -> Step[str]:
    tail = yield from ask(keys.shard, "GET", keys.tail)
    return tail.partition(b"|")[0].decode() if tail else _START


def _look_for(keys: ShardKeys, after: str, ids: set[bytes]) -> Step[str]:
    """Read the log after an id until it ends or has one of these events; return where the script should look on.

    A log that does not have that id, because another server took over, is read from its start.
    """
    try:
        if after != _START and not (yield from ask(keys.shard, "XRANGE", keys.log, after, after)):
            after = _START
    except (EngineUnreachable, EngineLoading):
        return after
    while True:
        try:
            entries = yield from ask(keys.shard, "XRANGE", keys.log, f"({after}", "+", "COUNT", 1000)
        except (EngineUnreachable, EngineLoading):
            return after
        for entry in entries:
            if entry_fields(entry).get(b"id") in ids:
                return after
            after = entry[0].decode()
        if len(entries) < 1000:
            return after


def _check_size(arguments: list[object], count: int) -> None:
    if count > MAX_BATCH:
        raise TooLarge("batch", count, MAX_BATCH, "events")
    if count > 1:
        size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
        if size > MAX_BATCH_BYTES:
            raise TooLarge("batch", size, MAX_BATCH_BYTES)


def _read_reply(log: Log, shard: int, page: str, room: int, writes: list[Write], reply: list[Any]) -> Appended:
    if reply[0] == 1:
        ms = reply[1]
        written = [
            Written(Position(ms, seq, shard), version, kind.decode(), subject.decode(), fence)
            for seq, version, kind, subject, fence in zip(*[iter(reply[2:])] * 5, strict=True)
        ]
        for row in reversed(written):
            if row.position.seq:
                log.seen[shard] = row.position.stream_id
                break
        return Appended(written)
    if reply[0] == 3:
        _, ms, first = reply
        written = [
            Written(Position(ms, seq, shard), 1, write.event.kind, write.event.subject, 0)
            for seq, write in enumerate(writes, first)
        ]
        log.seen[shard] = written[-1].position.stream_id
        return Appended(written)
    if reply[0] == 2:
        return Appended([], [_position(row, shard) for row in reply[1:] if row])
    if reply[2] == b"idle":
        now, soonest, below, priority = reply[3:]
        return Appended([], idle=Idle(now, soonest, below.decode(), priority))
    index = reply[1] - 1
    _refuse(page, room, writes[index], index, len(writes), reply[2:])


def _position(row: bytes, shard: int) -> Position:
    return Position.parse(row.decode())._replace(shard=shard)


def _refuse(page: str, room: int, write: Write, index: int, total: int, why: list[object]) -> NoReturn:
    reason, *details = [part.decode() if isinstance(part, bytes) else part for part in why]
    error = refusal(page, room, write, str(reason), details)
    error.index = index  # type: ignore[attr-defined]  # which item of a batch
    counts.refused[type(error).__name__] += 1
    if total > 1:
        error.args = (f"item {index + 1} of {total}: {error}; nothing was written",)
    raise error
