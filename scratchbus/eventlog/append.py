"""Appending to the log: the guarded append, and its retry after a lost reply."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from secrets import token_hex
from typing import Any, Literal, NamedTuple

from hiredis import pack_command
from pydantic_core import to_json

from scratchbus.domain.position import START, Position
from scratchbus.engine.patience import PATIENCE, backoff
from scratchbus.engine.scripts import Command, Prefix
from scratchbus.engine.steps import Call, Interrupted, Joint, Pause, Step, Wrote, ask, ask_all
from scratchbus.errors import (
    EngineError,
    EngineLoading,
    EngineUnreachable,
    InvalidName,
    LogBlocked,
    NotReplicated,
    TooLarge,
)
from scratchbus.eventlog import ids
from scratchbus.eventlog.append_script import ADD, ADD_BATCH, APPEND, ERASE, displaced_body
from scratchbus.eventlog.archived import Past
from scratchbus.eventlog.codec import encode_blockers, encode_body, encode_tags
from scratchbus.eventlog.keys import SYSTEM_PAGE, ShardKeys, shard_of
from scratchbus.eventlog.layouts import CLASSES, SPAN, read_last
from scratchbus.eventlog.refusals import refuse
from scratchbus.eventlog.retries import bound, bound_of, check_same, look_for, positions_of, wanted_of
from scratchbus.eventlog.revive import TRIES, drop_heads, revive
from scratchbus.eventlog.writes import Appended, Guarded, Idle, Op, Write, Written
from scratchbus.telemetry import tracing
from scratchbus.telemetry.counters import counts

MAX_BATCH = 1_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
_MOST_PAGES = 10_000  # whose keys are remembered
_place = tuple.__new__  # what a named tuple does behind a function
_NOTHING = START.stream_id  # what an empty log ends with
_REMEMBERED = 1.0  # for how many seconds additions to a page are sent as the last one had to be


class PageOfLog(NamedTuple):
    """Where the events of a page are: the keys of its shard, and those of its own that no build of the state has."""

    keys: ShardKeys
    heads: str
    open: str
    dedupe: str


class Prefixes(NamedTuple):
    """What the commands begin with that add one observation, several each as a batch of its own, or all as one."""

    one: Prefix
    each: Prefix
    all: Prefix


@dataclass
class Log:
    """A bus's log as one process knows it: its name, its shards, and how far each was seen to reach.

    `is_spread`: the shards are on several servers, so that no call may concern two of them. `past` reads what was
    trimmed, where that can be read. `bounds` are what new event ids name: how far a log reached up to 10 s ago. `owner`
    is the owner token of the claims that are made here. `first` is where each log ended before anything was written
    from here. `lone` are the events of the last append to a shard that wrote no others: when, and the first and last
    seq. Of `crowded` pages no additions are joined, and those to `unusual` ones go to the append script, each
    until when by `time.monotonic`.
    """

    bus: str
    shards: int
    by: str
    owner: str
    id_days: int
    replicas: int
    replica_ms: int
    is_spread: bool
    past: Past | None
    patience: float = PATIENCE
    seen: dict[int, str] = field(default_factory=dict)
    first: dict[int, str] = field(default_factory=dict)
    origin: str = field(default_factory=lambda: token_hex(8))
    bounds: dict[int, str] = field(default_factory=dict)
    lone: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    crowded: dict[str, float] = field(default_factory=dict)
    unusual: dict[str, float] = field(default_factory=dict)

    @cached_property
    def keys(self) -> Callable[[int], ShardKeys]:
        """Returns the keys of a shard; they are made once."""
        return cache(partial(ShardKeys, self.bus))

    @cached_property
    def page(self) -> Callable[[str], PageOfLog]:
        """Returns where the events of a page are; that is found out once."""
        return lru_cache(_MOST_PAGES)(self._page)

    def _page(self, page: str) -> PageOfLog:
        keys = self.keys(self.shard(page))
        return PageOfLog(keys, keys.heads(page), keys.open(page), keys.dedupe(page))

    @cached_property
    def additions(self) -> Callable[[str, int, str], Prefixes]:
        """Returns the beginnings of the commands that add observations to a page, by room and `on_full`."""
        return lru_cache(_MOST_PAGES)(self._additions)

    def _additions(self, page: str, room: int, on_full: str) -> Prefixes:
        keys, heads, open, _ = self._page(page)
        displaced = displaced_body(self.by) if on_full == "displace" else ""
        names = {"log": keys.log, "tail": keys.tail, "pages": keys.pages, "heads": heads, "open": open, "ids": keys.ids}
        return Prefixes(
            Prefix(ADD(**names, page=page, room=room, displaced=displaced)),
            Prefix(ADD_BATCH(**names, page=page, room=room, mode="each")),
            Prefix(ADD_BATCH(**names, page=page, room=room, mode="all")),
        )

    def shard(self, page: str) -> int:
        """Return the shard of a page."""
        return shard_of(page, self.shards)

    def is_lone(self, position: Position) -> bool:
        """Return whether the event there is known to have displaced nothing; False if it was not of the last append."""
        ms, first, last = self.lone.get(position.shard, (0, 0, 0))
        return position.ms == ms and first <= position.seq <= last


def append(
    log: Log,
    page: str,
    writes: list[Write],
    *,
    room: int = 0,
    on_full: str = "displace",
    mode: Literal["all", "each"] = "all",
) -> Step[Appended]:
    """Append events of one page; see `_append`."""
    steps = _append(log, page, writes, room=room, on_full=on_full, mode=mode)
    return steps if tracing.active is None else tracing.active.publish(page, writes, steps)


def _append(
    log: Log, page: str, writes: list[Write], *, room: int, on_full: str, mode: Literal["all", "each"]
) -> Step[Appended]:
    """Append events of one page: all or, when one is refused, none; mode "each" skips what is refused.

    `room` is how many open observations the page may have, 0 for no limit. Raises what the first refused event was
    refused for. A write whose reply is lost is looked for in the log before it is sent again, so it is never
    appended twice. An EngineError has the id of the first event.
    """
    if page == SYSTEM_PAGE and any(write.op != Op.PUT for write in writes):
        raise InvalidName(f"page: {page!r} is reserved for the bus's own events; write to another page")
    where = log.page(page)
    keys, shard = where.keys, where.keys.shard
    before = log.seen.get(shard) or (yield from _reach(log, shard))
    begun = time.monotonic()
    is_plain = before != _NOTHING and log.unusual.get(page, 0.0) < begun
    for write in writes:
        is_plain = is_plain and write.is_plain
        if ids.OPEN_END in write.said.id:
            whole = write.said.id.replace(ids.OPEN_END, log.bounds[shard])
            write.said = write.event.placed(id=whole)
    first = writes[0].said.id
    wait = (("WAIT", log.replicas, log.replica_ms),) if log.replicas else ()
    scan, attempt = "", 0
    revived: dict[str, list[str]] = {}
    after = bound_of(first) if writes[0].digest else None
    if after is not None:
        scan, archived = yield from look_for(log, shard, after, wanted_of(writes))
        check_same(writes, archived)
        if recalled := positions_of(writes, archived, shard):
            yield Wrote(first, recalled[0])
            return Appended([], recalled)
    events = () if is_plain else _guarded_all(writes)
    while True:
        try:
            if is_plain:
                reply, *copies = yield from _add(log, where, page, writes, room, on_full, mode, wait)
            else:
                command = (ERASE if writes[0].op == Op.ERASE else APPEND)(
                    *events,
                    log=keys.log,
                    tail=keys.tail,
                    origin=keys.origin,
                    pages=keys.pages,
                    heads=where.heads,
                    open=where.open,
                    dedupe=where.dedupe,
                    ids=keys.ids,
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
                reply, *copies = yield Call(shard, (command, *wait), is_write=True)
        except (Interrupted, EngineLoading) as lost:
            scan = yield from _look_for_lost(log, shard, after or before, writes, lost, begun, attempt)
            attempt += 1
        except EngineError as error:
            _note(error, first, is_in_doubt=attempt > 0 or after is not None)
            raise
        else:
            if reply == [b"other"]:
                _remember(log.unusual, page)
            elif reply != [b"full"] and (
                reply[0] != b"refused" or not (yield from _has_revived(log, page, writes, reply, revived))
            ):
                break
        if is_plain:  # no longer
            is_plain, events = False, _guarded_all(writes)
    if revived:
        yield from _drop_revived(keys, page, revived)
    if isinstance(reply, bytes) or reply[0] == b"displaced":
        outcome = _read_added(log, shard, writes, reply)
    else:
        outcome = _read_reply(log, shard, page, room, writes, reply)
    if after is not None and outcome.recalled is not None:
        yield from _check_recalled(log, shard, writes, outcome.recalled)
    counts.append_took.add(time.monotonic() - begun)
    counts.displaced += sum(map(len, outcome.displaced.values()))
    if copies and copies[0] < log.replicas:
        short = NotReplicated(copies[0], log.replicas, first)
        if outcome.wrote is not None:
            short.position, short.fence = outcome.wrote.position, outcome.wrote.fence
        raise short
    if outcome.wrote is not None:
        yield outcome.wrote
    return outcome


def _add(
    log: Log,
    where: PageOfLog,
    page: str,
    writes: list[Write],
    room: int,
    on_full: str,
    mode: str,
    wait: tuple[Command, ...],
) -> Step[list[Any]]:
    """Send additions to the scripts for them; return the reply, and that of what is sent with it."""
    shard, prefixes = where.keys.shard, log.additions(page, room, on_full)
    replies: list[Any]
    if len(writes) > 1:
        events = tuple(chain.from_iterable(map(_addition, writes)))
        _check_size(events, len(writes))
        command = (*(prefixes.all if mode == "all" else prefixes.each), *events)
        replies = yield Call(shard, (command, *wait), True)
        return replies
    event = _addition(writes[0])
    command = (*prefixes.one, *event)
    is_crowded = bool(wait) or log.crowded.get(page, 0.0) > time.monotonic()
    packed: bytes = pack_command(event)  # type: ignore[arg-type]  # it takes a tuple of any length
    own = packed[packed.index(b"\n") + 1 :]  # as `packed_arguments` does it
    joint = Joint(prefixes.one, own, len(event), None if is_crowded else prefixes.each, split_added)
    replies = yield Call(shard, (command, *wait), True, None if wait else joint)
    if replies == [[b"full"]]:  # it was sent with others
        _remember(log.crowded, page)
        replies = yield Call(shard, (command,), True, Joint(prefixes.one, own, len(event)))
    return replies


def _remember(pages: dict[str, float], page: str) -> None:
    """Note that additions to a page are sent otherwise for a while."""
    if len(pages) >= _MOST_PAGES:
        pages.clear()
    pages[page] = time.monotonic() + _REMEMBERED


def first_end(log: Log, shard: int) -> Step[str]:
    """Return the stream id that the log of a shard ended with before anything was written from here."""
    if shard not in log.first:
        yield from _reach(log, shard)
    return log.first[shard]


def _reach(log: Log, shard: int) -> Step[str]:
    """Return the stream id that the log of a shard ends with now, before anything is written from here."""
    tail = yield from ask(shard, "GET", log.keys(shard).tail)
    seen = read_last(tail, shard)[0].stream_id
    log.bounds[shard], log.seen[shard] = (
        bound(seen),
        seen,
    )  # in this order: another thread reads what has been seen first
    log.first.setdefault(shard, seen)
    return seen


def fresh_id(log: Log, page: str) -> Step[str]:
    """Return a new event id whose end is known before its event is appended, so that other ids can derive from it."""
    shard = log.page(page).keys.shard
    if shard not in log.bounds:
        yield from _reach(log, shard)
    return next(ids.words) + log.bounds[shard]


def _look_for_lost(
    log: Log, shard: int, after: str, writes: list[Write], lost: Exception, begun: float, attempt: int
) -> Step[str]:
    """Wait a moment, look in the log for what may have been written, and return behind which id the script looks on.

    Raises EngineUnreachable once that has taken too long.
    """
    first = writes[0].event.id
    if time.monotonic() > begun + log.patience:
        raise _note(EngineUnreachable(str(lost)), first, is_in_doubt=True) from None
    yield Pause(backoff(attempt))
    try:
        scan, _ = yield from look_for(log, shard, after, wanted_of(writes), is_in_doubt=True)
    except EngineError as error:
        raise _note(error, first, is_in_doubt=True) from None
    return scan


def _note(error: EngineError, event_id: str, *, is_in_doubt: bool) -> EngineError:
    """Note in an error which event it is about, and whether that may have been written; return it."""
    error.event_id = event_id
    if is_in_doubt:
        error.in_doubt()
    return error


def _has_revived(
    log: Log, page: str, writes: list[Write], reply: list[Any], revived: dict[str, list[str]]
) -> Step[bool]:
    """Write the head again that a refused write lacks because it was dropped; return whether there is one to write.

    `revived` has the heads that were written, by subject.
    """
    if reply[2] != b"missing":
        return False
    subject = writes[reply[1] - 1].event.subject
    heads = revived.setdefault(subject, [])
    if len(heads) >= TRIES or (head := (yield from revive(log, page, subject))) is None:
        return False
    heads.append(head)
    return True


def _drop_revived(keys: ShardKeys, page: str, revived: dict[str, list[str]]) -> Step[None]:
    """Drop the heads that were not written to since they were revived: else they would stay for good."""
    with suppress(EngineError):  # the write is what counts
        yield from drop_heads(keys, page, {subject: heads[-1] for subject, heads in revived.items() if heads})


def _check_recalled(log: Log, shard: int, writes: list[Write], positions: list[Position]) -> Step[None]:
    key = log.keys(shard).log
    found = yield from ask_all(shard, [("XRANGE", key, each.stream_id, each.stream_id) for each in positions])
    check_same(writes, [entry for entries in found for entry in entries])


def _check_size(arguments: tuple[object, ...], count: int) -> None:
    if count > MAX_BATCH:
        raise TooLarge("batch", count, MAX_BATCH, "events")
    size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
    if size > MAX_BATCH_BYTES:
        raise TooLarge("batch", size, MAX_BATCH_BYTES)


def _addition(write: Write) -> tuple[str | bytes, ...]:
    """Return what the scripts for additions take of a plain write, in the order of `Addition`."""
    said = write.said
    span, start = _placing(write.status, write.status_class, said.type, write.priority or 0)
    return (
        said.id,
        said.subject,
        said.type,
        span,
        start,
        "" if write.expires == "0" else write.expires,
        encode_tags(write.tags or (), write.blocked_by or ()),
        write.body or encode_body(write.event),
    )


@lru_cache
def _placing(status: str, status_class: str, type: str, priority: int) -> tuple[str, str]:
    """Return the `span` and the `start` of an `Addition`."""
    return str(priority * SPAN), f"1|{status}|{CLASSES[status_class]}|{type}|{priority}"


def _guarded_all(writes: list[Write]) -> tuple[Any, ...]:
    """Return what the append script takes of writes. Raises TooLarge."""
    events = tuple(chain.from_iterable(map(_guarded, writes)))
    if len(writes) > 1:
        _check_size(events, len(writes))
    return events


def _guarded(write: Write) -> Guarded:
    """Return what the append script takes of a write."""
    said, version = write.said, write.version
    return Guarded(
        id=said.id,
        digest=f"{write.digest} {to_json(write.event.by).decode()}" if write.digest else "",
        subject=said.subject,
        kind=said.kind,
        type=said.type,
        body=write.body or encode_body(write.event),
        op=write.op,
        version="" if version is None else version or "new",
        allowed=f",{','.join(write.allowed)}," if write.allowed is not None else "",
        status=write.status,
        status_class=CLASSES[write.status_class] if write.status else "",
        priority="" if write.priority is None else write.priority,
        expires=write.expires,
        wake=write.wake,
        argument=write.argument,
        fence="" if write.fence is None else write.fence,
        tags=("" if write.tags is None else encode_tags(write.tags))
        + ("" if write.blocked_by is None else encode_blockers(write.blocked_by)),
        rest=write.rest,
    )


def _read_added(log: Log, shard: int, writes: list[Write], reply: bytes | list[bytes]) -> Appended:
    """Return what became of plain additions, of which the first has the stream id that is answered, and count them."""
    is_lone = isinstance(reply, bytes)
    stream_id = (reply if isinstance(reply, bytes) else reply[1]).decode()
    displaced: dict[str, tuple[str, ...]] = (
        {} if isinstance(reply, bytes) else {writes[0].said.subject: (reply[2].decode(),)}
    )
    ms_text, _, seq_text = stream_id.partition("-")
    ms, seq = int(ms_text), int(seq_text)
    position = _place(Position, (ms, seq, shard))
    written = [Written(position, 1, "added", writes[0].said.subject, 0)]
    for write in writes[1:]:
        seq += 1
        written.append(Written(_place(Position, (ms, seq, shard)), 1, "added", write.said.subject, 0))
    if is_lone:
        log.lone[shard] = ms, int(seq_text), seq
    counts.appended["added"] += len(written)
    if stream_id[:9] != log.seen[shard][:9]:  # another 10 s
        log.bounds[shard] = bound(stream_id)
    log.seen[shard] = stream_id
    return Appended(written, wrote=Wrote(writes[0].said.id, position), displaced=displaced)


def split_added(reply: Any, count: int) -> list[Any]:
    """Return the reply to each of so many additions that were sent as one."""
    if not isinstance(reply, bytes):  # nothing was written
        return [reply] * count
    ms, _, seq = reply.partition(b"-")
    return [b"%b-%d" % (ms, int(seq) + number) for number in range(count)]


def _read_reply(log: Log, shard: int, page: str, room: int, writes: list[Write], reply: list[Any]) -> Appended:
    """Return what became of these writes, and count it.

    Raises what the first refused event was refused for, LogBlocked, or EngineError for a reply that nobody knows.
    """
    written: list[Written] = []
    displaced: dict[str, tuple[str, ...]] = {}
    match reply[0]:
        case b"written":
            _, ms, count, *rows = reply
            rows, pairs = rows[: 5 * len(writes)], [row.decode() for row in rows[5 * len(writes) :]]
            for old, newcomer in zip(pairs[::2], pairs[1::2], strict=True):
                displaced[newcomer] = (*displaced.get(newcomer, ()), old)
            for seq, version, kind, subject, fence in zip(*[iter(rows)] * 5, strict=True):
                written.append(Written(Position(ms, seq, shard), version, kind.decode(), subject.decode(), fence))
        case b"known":
            recalled = [Position.parse(row.decode())._replace(shard=shard) for row in reply[1:] if row]
            return Appended([], recalled, wrote=Wrote(writes[0].event.id, recalled[0]) if recalled else None)
        case b"refused" if reply[2] == b"idle":
            now, soonest, below, priority = reply[3:]
            return Appended([], idle=Idle(now, soonest, below.decode(), priority))
        case b"refused" if reply[2] == b"blocked":
            blocked = LogBlocked(shard, reply[3].decode())
            blocked.event_id = writes[0].event.id
            raise blocked
        case b"refused":
            index = reply[1] - 1
            refuse(page, room, writes[index], index, len(writes), reply[2:])
        case _:
            raise APPEND.unknown(reply)
    wrote = None
    for row in written:
        if row.position.seq:
            counts.appended[row.kind] += 1
            seen = f"{row.position.ms}-{row.position.seq}"
            if seen[:9] != log.seen[shard][:9]:  # another 10 s
                log.bounds[shard] = bound(seen)
            log.seen[shard] = seen
            fence = row.fence if row.kind == "claimed" else None
            wrote = wrote or Wrote(writes[0].event.id, row.position, fence)
    own = [row.position.seq for row in written if row.position.seq]
    if own and len(own) == count:
        log.lone[shard] = ms, own[0], own[-1]
    return Appended(written, wrote=wrote, displaced=displaced)
