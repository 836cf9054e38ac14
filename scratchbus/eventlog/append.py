"""The guarded append, and its retry after a lost reply."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

from hiredis import pack_command
from msgspec.structs import replace

from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Call, Collect, Interrupted, Joint, Send, Step, Wrote
from scratchbus.errors import (
    BusClosed,
    EngineError,
    EngineForbidden,
    EngineLoading,
    InvalidName,
    NotReplicated,
    VersionConflict,
)
from scratchbus.eventlog import ids
from scratchbus.eventlog.append_command import append_command, read_reply
from scratchbus.eventlog.bus_log import MAX_PAGES, Log, PageOfLog, read_end
from scratchbus.eventlog.codec import encode_body, encode_tags
from scratchbus.eventlog.dropped_heads import drop_restored_heads, restore_missing_head
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.layouts import CLASSES
from scratchbus.eventlog.retries import annotate, check_recalled, search_lost, search_retried
from scratchbus.eventlog.writes import NEVER, Appended, Op, Write, Written, check_size
from scratchbus.telemetry import tracing
from scratchbus.telemetry.counters import counts

_new_tuple = tuple.__new__  # creates a named tuple without its constructor, which is a Python function
_EMPTY = START.stream_id  # the end of an empty log
_ROUTE_SECONDS = 1.0  # seconds for which a page's additions take the way that the last one needed

_Mode = Literal["all", "each"]
_Meanwhile = Callable[[], object] | None


def append(
    log: Log,
    page: str,
    writes: list[Write],
    *,
    room: int = 0,
    on_full: str = "displace",
    mode: _Mode = "all",
    meanwhile: _Meanwhile = None,
    replica_ms: int | None = None,
) -> Step[Appended]:
    """Append events of one page; see `_append`."""
    steps = _append(
        log, page, writes, room=room, on_full=on_full, mode=mode, meanwhile=meanwhile, replica_ms=replica_ms
    )
    return steps if tracing.active is None else tracing.active.publish(page, writes, steps)


def find_attempt(log: Log, page: str, writes: list[Write]) -> Step[list[Position] | None]:
    """Return the positions of the events that an earlier attempt of these writes has appended; None without one.

    Nothing is published, so a trace does not show it. Raises EventIdReused.
    """
    for write in writes:
        write.version = NEVER
    steps = _append(log, page, writes, room=0, on_full="displace", mode="all", meanwhile=None, replica_ms=None)
    try:
        return (yield from steps).recalled
    except VersionConflict:
        return None


def _append(
    log: Log,
    page: str,
    writes: list[Write],
    *,
    room: int,
    on_full: str,
    mode: _Mode,
    meanwhile: _Meanwhile,
    replica_ms: int | None,
) -> Step[Appended]:
    """Append events of one page: all or none; in mode "each", all that are not refused.

    Mode "each" is not for events that need room: one that is refused might still displace others. `room` is the most
    open observations that the page may have, 0 for no limit. Raises the error of the first refused event. If a reply is
    lost, the events are looked up in the log before they are sent again, so none is appended twice. An EngineError has
    the id of the first event. `meanwhile` is called while the engine adds several observations; it may not be called
    at all. `replica_ms` limits the wait for replicas, 0 for none; then it is no error if too few confirm the events,
    but the outcome `lacks_replicas`.
    """
    if page == SYSTEM_PAGE and any(write.op != Op.PUT for write in writes):
        raise InvalidName(f"page: {page!r} is reserved for the bus's own events; write to another page")
    page_keys = log.page(page)
    shard = page_keys.keys.shard
    before = log.known_ends.get(shard) or (yield from read_end(log, shard))
    started = time.monotonic()
    is_plain = before != _EMPTY and log.guarded_pages.get(page, 0.0) < started
    for write in writes:
        is_plain = is_plain and write.is_plain
        if ids.OPEN_END in write.event_or_draft.id:
            event_id = write.event_or_draft.id.replace(ids.OPEN_END, log.id_bounds[shard])
            write.event_or_draft = write.event.placed(id=event_id)
    first = writes[0].event_or_draft.id
    wait_ms = log.replica_ms if replica_ms is None else replica_ms
    wait = (("WAIT", log.replicas, wait_ms),) if log.replicas and wait_ms else ()
    scan, attempt = "", 0
    restored: dict[str, list[str]] = {}
    after = ids.earliest_bound(write.event_or_draft.id for write in writes) if writes[0].digest else None
    if after is not None:
        scan, recalled = yield from search_retried(log, shard, after, writes)
        if recalled:
            yield Wrote(first, recalled[0])
            return Appended([], recalled)
    while True:
        try:
            if is_plain:
                reply, *copies = yield from _add(log, page_keys, page, writes, room, on_full, mode, wait, meanwhile)
            else:
                command = append_command(log, page_keys, page, writes, room=room, on_full=on_full, mode=mode, scan=scan)
                reply, *copies = yield Call(shard, (command, *wait), is_write=True)
        except (Interrupted, EngineLoading) as lost:
            scan = yield from search_lost(log, shard, after or before, writes, lost, started, attempt)
            attempt += 1
        except (EngineError, BusClosed) as error:
            _note_doubt(error, first, attempt > 0 or after is not None, bool(wait))
            raise
        else:
            if reply == [b"other"]:
                _reroute(log.guarded_pages, page)
            elif reply != [b"full"] and (
                reply[0] != b"refused" or not (yield from restore_missing_head(log, page, writes, reply, restored))
            ):
                break
        is_plain = False  # no longer
    if restored:
        yield from drop_restored_heads(page_keys.keys, page, restored)
    if isinstance(reply, bytes) or reply[0] == b"displaced":
        outcome = _read_added(log, shard, writes, reply)
    else:
        outcome = read_reply(log, shard, page, room, writes, reply)
    if after is not None and outcome.recalled is not None:
        yield from check_recalled(log, shard, writes, outcome.recalled)
    counts.append_took.add(time.monotonic() - started)
    if copies and copies[0] < log.replicas and outcome.idle is None:
        if replica_ms is None:
            raise _not_replicated(log, copies[0], first, outcome)
        outcome = replace(outcome, lacks_replicas=True)
    if outcome.wrote is not None:
        yield outcome.wrote
    return outcome


def _note_doubt(error: EngineError | BusClosed, first: str, is_in_doubt: bool, sends_wait: bool) -> None:
    """Note in the error of an append whether it may have written: before it, or before a WAIT that was denied."""
    is_in_doubt = is_in_doubt or (sends_wait and isinstance(error, EngineForbidden) and "'wait'" in str(error))
    if is_in_doubt or isinstance(error, EngineError):  # else nothing was sent to a closed bus
        annotate(error, first, is_in_doubt=is_in_doubt)


def _not_replicated(log: Log, copies: int, first: str, outcome: Appended) -> NotReplicated:
    """Return the error for too few replicas, with the position and the fence of the write."""
    error = NotReplicated(copies, log.replicas, first)
    if outcome.wrote is not None:
        error.position, error.fence = outcome.wrote.position, outcome.wrote.fence
    return error


def _add(
    log: Log,
    page_keys: PageOfLog,
    page: str,
    writes: list[Write],
    room: int,
    on_full: str,
    mode: str,
    wait: tuple[Command, ...],
    meanwhile: _Meanwhile,
) -> Step[list[Any]]:
    """Send plain additions to the scripts in `add_lua/`; return the reply, followed by that of WAIT if it was sent."""
    shard, prefixes = page_keys.keys.shard, log.additions(page, room, on_full)
    replies: list[Any]
    if len(writes) > 1:
        events = tuple(chain.from_iterable(map(_addition, writes)))
        check_size(events, len(writes))
        command = (*(prefixes.all if mode == "all" else prefixes.each), *events)
        call = Call(shard, (command, *wait), True)
        if meanwhile is None or wait:
            replies = yield call
        else:
            sent = yield Send(call)
            meanwhile()
            replies = yield Collect(sent)
        return replies
    event = _addition(writes[0])
    command = (*prefixes.one, *event)
    is_unjoined = bool(wait) or log.unjoined_pages.get(page, 0.0) > time.monotonic()
    packed: bytes = pack_command(event)  # type: ignore[arg-type]  # it takes a tuple of any length
    packed_event = packed[packed.index(b"\n") + 1 :]  # as `packed_arguments` does it
    joint = Joint(prefixes.one, packed_event, len(event), None if is_unjoined else prefixes.each, split_added)
    replies = yield Call(shard, (command, *wait), True, None if wait else joint)
    if replies == [[b"full"]]:  # it was sent with others
        _reroute(log.unjoined_pages, page)
        replies = yield Call(shard, (command,), True, Joint(prefixes.one, packed_event, len(event)))
    return replies


def _reroute(pages: dict[str, float], page: str) -> None:
    """Note that additions to a page are to be sent in another way for a while."""
    if len(pages) >= MAX_PAGES:
        pages.clear()
    pages[page] = time.monotonic() + _ROUTE_SECONDS


def _addition(write: Write) -> tuple[str | bytes, ...]:
    """Return the arguments of a plain addition for its script, in the order of `Addition`."""
    event = write.event_or_draft
    life = "" if write.expires == "0" else write.expires
    tags = encode_tags(write.tags or (), write.blocked_by or ())
    start = _start(write.status, write.status_class, event.type, write.priority or 0)
    return event.id, event.subject, f"{life}|{tags}|{start}", write.body or encode_body(write.event)


@lru_cache
def _start(status: str, status_class: str, type: str, priority: int) -> str:
    """Return the end of the `shape` of an `Addition`: its head up to the priority."""
    return f"1|{status}|{CLASSES[status_class]}|{type}|{priority}"


def _read_added(log: Log, shard: int, writes: list[Write], reply: bytes | list[bytes]) -> Appended:
    """Return the outcome of plain additions, and count them; the reply has the stream id of the first."""
    displaced: dict[str, tuple[str, ...]] = {}
    if not isinstance(reply, bytes):
        displaced[writes[0].event_or_draft.subject] = (reply[2].decode(),)
        counts.displaced += 1
    stream_id = (reply if isinstance(reply, bytes) else reply[1]).decode()
    ms_text, _, seq_text = stream_id.partition("-")
    ms, seq = int(ms_text), int(seq_text)
    position = _new_tuple(Position, (ms, seq, shard))
    written = [Written(position, 1, "added", writes[0].event_or_draft.subject, 0)]
    for write in writes[1:]:
        seq += 1
        written.append(Written(_new_tuple(Position, (ms, seq, shard)), 1, "added", write.event_or_draft.subject, 0))
    if not displaced:
        log.last_plain_append[shard] = ms, int(seq_text), seq
    counts.appended["added"] += len(written)
    if stream_id[:9] != log.known_ends[shard][:9]:  # another 10 s
        log.id_bounds[shard] = ids.id_bound(stream_id)
    log.known_ends[shard] = stream_id
    return Appended(written, wrote=Wrote(writes[0].event_or_draft.id, position), displaced=displaced)


def split_added(reply: Any, count: int) -> list[Any]:
    """Return the reply to each of several additions that were sent as one call."""
    if not isinstance(reply, bytes):  # nothing was written
        return [reply] * count
    ms, _, seq = reply.partition(b"-")
    return [b"%b-%d" % (ms, int(seq) + number) for number in range(count)]
