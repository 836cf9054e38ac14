"""Appending to the log: the guarded append, its refusals, and its retry after a lost reply."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal, NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.connections import PATIENCE, backoff
from scratchbus.engine.steps import Call, Interrupted, Pause, Step, Wrote, ask, ask_all
from scratchbus.errors import (
    EngineError,
    EngineLoading,
    EngineUnreachable,
    InvalidName,
    LogBlocked,
    NotReplicated,
    TooLarge,
)
from scratchbus.eventlog.append_script import APPEND, ERASE, AppendKeys
from scratchbus.eventlog.archived import Past
from scratchbus.eventlog.ids import OPEN_END, new_event_id
from scratchbus.eventlog.keys import SYSTEM_PAGE, ShardKeys, shard_of
from scratchbus.eventlog.layouts import read_last
from scratchbus.eventlog.retries import bound, bound_of, check_same, look_for, positions_of, wanted_of
from scratchbus.eventlog.revive import TRIES, drop_heads, revive
from scratchbus.eventlog.writes import OPS, Appended, Write, read_reply
from scratchbus.telemetry.counters import counts

MAX_BATCH = 1_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
_MOST_NAMES = 10_000  # pages whose keys are remembered


_NOWHERE = ("", "")


class PageOfLog(NamedTuple):
    """Where the events of a page are: the keys of its shard, and those of them that the append script takes."""

    keys: ShardKeys
    names: AppendKeys


@dataclass(slots=True)
class Log:
    """A bus's log as one process knows it: its name, its shards, and how far each was seen to reach.

    `is_spread`: the shards are on several servers, so that no call may concern two of them. `past` reads what was
    trimmed, where that can be read. `bounds` are what new event ids name: how far a log reached up to 10 s ago. `owner`
    is the owner token of the claims that are made here. `first` is where each log ended before anything was written
    from here.
    """

    bus: str
    shards: int
    by: str = "system"
    owner: str = ""
    id_days: int = 7
    replicas: int = 0
    replica_ms: int = 2_000
    patience: float = PATIENCE
    is_spread: bool = False
    past: Past | None = None
    seen: dict[int, str] = field(default_factory=dict)
    first: dict[int, str] = field(default_factory=dict)
    origin: str = field(default_factory=lambda: token_hex(8))
    bounds: dict[int, tuple[str, str]] = field(default_factory=dict)
    _keys: dict[int, ShardKeys] = field(default_factory=dict)
    _pages: dict[str, PageOfLog] = field(default_factory=dict)

    def keys(self, shard: int) -> ShardKeys:
        """Return the keys of a shard."""
        found = self._keys.get(shard)
        if found is None:
            found = self._keys[shard] = ShardKeys(self.bus, shard)
        return found

    def page(self, page: str) -> PageOfLog:
        """Return where the events of a page are."""
        found = self._pages.get(page)
        if found is None:
            keys = self.keys(self.shard(page))
            if len(self._pages) >= _MOST_NAMES:
                self._pages.clear()
            names: AppendKeys = {
                "log": keys.log, "tail": keys.tail, "origin": keys.origin, "pages": keys.pages,
                "heads": keys.heads(page), "open": keys.open(page), "dedupe": keys.dedupe(page), "ids": keys.ids,
            }  # fmt: skip
            found = self._pages[page] = PageOfLog(keys, names)
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
) -> Step[Appended]:
    """Append events of one page: all or, when one is refused, none; mode "each" skips what is refused.

    `room` is how many open observations the page may have, 0 for no limit. Raises what the first refused event was
    refused for. A write whose reply is lost is looked for in the log before it is sent again, so it is never
    appended twice. An EngineError has the id of the first event.
    """
    if page == SYSTEM_PAGE and any(write.op != OPS["PUT"] for write in writes):
        raise InvalidName(f"page: {page!r} is reserved for the bus's own events; write to another page")
    keys, names = log.page(page)
    shard = keys.shard
    before, known = log.seen.get(shard, ""), log.bounds.get(shard, _NOWHERE)
    if not before or known[0] != before[:9]:
        before = yield from _reach(log, shard)
        known = log.bounds[shard]
    for write in writes:
        if OPEN_END in write.event.id:
            write.event = write.event.placed(id=write.event.id.replace(OPEN_END, known[1]))
    first = writes[0].event.id
    arguments: list[object] = []
    for write in writes:
        arguments += write.guarded()
    if len(writes) > 1:
        _check_size(arguments, len(writes))
    script = ERASE if writes[0].op == OPS["ERASE"] else APPEND
    wait = (("WAIT", log.replicas, log.replica_ms),) if log.replicas else ()
    scan, begun, attempt, revived = "", time.monotonic(), 0, dict[str, list[str]]()
    after = bound_of(first) if writes[0].digest else None
    if after is not None:
        scan, archived = yield from look_for(log, shard, after, wanted_of(writes))
        check_same(writes, archived)
        if recalled := positions_of(writes, archived, shard):
            yield Wrote(first, recalled[0])
            return Appended([], recalled)
    while True:
        command = script(
            *arguments,
            **names,
            mode=mode,
            page=page,
            room=room,
            on_full=on_full,
            days=log.id_days,
            scan=scan,
            new_origin=log.origin,
            by=log.by,
            owner=log.owner,
        )
        try:
            reply, *copies = yield Call(shard, (command, *wait), is_write=True)
        except (Interrupted, EngineLoading) as lost:
            if time.monotonic() > begun + log.patience:
                raise _in_doubt(EngineUnreachable(str(lost)), first) from None
            yield Pause(backoff(attempt))
            attempt += 1
            try:
                scan, _ = yield from look_for(log, shard, after or before, wanted_of(writes), is_in_doubt=True)
            except EngineError as error:
                raise _in_doubt(error, first) from None
        except EngineError as error:
            error.event_id = first
            if attempt or after is not None:
                error.in_doubt()
            raise
        else:
            reason = reply[2] if reply[0] == b"refused" else None
            subject = writes[reply[1] - 1].event.subject if reason == b"missing" else None
            seen = revived.setdefault(subject, []) if subject is not None else []
            if subject is None or len(seen) >= TRIES or (head := (yield from revive(log, page, subject))) is None:
                break
            seen.append(head)
    if revived:
        gone = {subject: seen[-1] for subject, seen in revived.items() if seen}
        with suppress(EngineError):  # the write is what counts
            yield from drop_heads(keys, page, gone)  # those that were not written to: else they would stay for good
    try:
        outcome = read_reply(shard, page, room, writes, reply)
    except LogBlocked as blocked:
        blocked.event_id = first
        raise
    if outcome is None:
        raise script.unknown(reply)
    if after is not None and outcome.recalled is not None:
        yield from _check_recalled(log, shard, writes, outcome.recalled)
    counts.append_took.add(time.monotonic() - begun)
    wrote = Wrote(first, outcome.recalled[0]) if outcome.recalled else None
    for row in outcome.written:
        if row.position.seq:
            counts.appended[row.kind] += 1
            log.seen[shard] = f"{row.position.ms}-{row.position.seq}"
            wrote = wrote or Wrote(first, row.position, row.fence if row.kind == "claimed" else None)
    if copies and copies[0] < log.replicas:
        short = NotReplicated(copies[0], log.replicas, first)
        if wrote is not None:
            _, short.position, short.fence = wrote
        raise short
    if wrote is not None:
        yield wrote
    return outcome


def first_end(log: Log, shard: int) -> Step[str]:
    """Return the stream id that the log of a shard ended with before anything was written from here."""
    if shard not in log.first:
        yield from _reach(log, shard)
    return log.first[shard]


def _reach(log: Log, shard: int) -> Step[str]:
    """Return the last stream id that was seen in the log."""
    before = log.seen.get(shard)
    if before is None:
        tail = yield from ask(shard, "GET", log.keys(shard).tail)
        before = log.seen[shard] = read_last(tail, shard)[0].stream_id
        log.first.setdefault(shard, before)
    known = log.bounds.get(shard)
    if known is None or known[0] != before[:9]:  # another 10 s
        log.bounds[shard] = before[:9], bound(before)
    return before


def fresh_id(log: Log, page: str) -> Step[str]:
    """Return a new event id whose end is known before its event is appended, so that other ids can derive from it."""
    yield from _reach(log, log.shard(page))
    return new_event_id().replace(OPEN_END, log.bounds[log.shard(page)][1])


def _in_doubt(error: EngineError, event_id: str) -> EngineError:
    error.event_id = event_id
    error.in_doubt()
    return error


def _check_recalled(log: Log, shard: int, writes: list[Write], positions: list[Position]) -> Step[None]:
    key = log.keys(shard).log
    found = yield from ask_all(shard, [("XRANGE", key, each.stream_id, each.stream_id) for each in positions])
    check_same(writes, [entry for entries in found for entry in entries])


def _check_size(arguments: list[object], count: int) -> None:
    if count > MAX_BATCH:
        raise TooLarge("batch", count, MAX_BATCH, "events")
    size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
    if size > MAX_BATCH_BYTES:
        raise TooLarge("batch", size, MAX_BATCH_BYTES)
