"""The command of the append script for some writes, and the outcome read from its reply."""

from __future__ import annotations

from itertools import chain
from typing import Any, Literal

from pydantic_core import to_json

from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Wrote
from scratchbus.errors import LogBlocked
from scratchbus.eventlog.append_script import APPEND, ERASE
from scratchbus.eventlog.bus_log import Log, PageOfLog
from scratchbus.eventlog.codec import encode_blockers, encode_body, encode_tags
from scratchbus.eventlog.ids import id_bound
from scratchbus.eventlog.layouts import CLASSES
from scratchbus.eventlog.refusals import refuse
from scratchbus.eventlog.writes import Appended, Guarded, Idle, Op, Write, Written, check_size
from scratchbus.telemetry.counters import counts


def append_command(
    log: Log,
    page_keys: PageOfLog,
    page: str,
    writes: list[Write],
    *,
    room: int,
    on_full: str,
    mode: Literal["all", "each"],
    scan: str,
) -> Command:
    """Return the command that appends these in every case; see `append_script`. Raises TooLarge."""
    keys, events = page_keys.keys, tuple(chain.from_iterable(map(_arguments, writes)))
    if len(writes) > 1:
        check_size(events, len(writes))
    return (ERASE if writes[0].op == Op.ERASE else APPEND)(
        *events,
        log=keys.log,
        tail=keys.tail,
        origin=keys.origin,
        pages=keys.pages,
        heads=page_keys.heads,
        open=page_keys.open,
        dedupe=page_keys.dedupe,
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


def _arguments(write: Write) -> Guarded:
    event, version = write.event_or_draft, write.version
    return Guarded(
        id=event.id,
        digest=f"{write.digest} {to_json(write.event.by).decode()}" if write.digest else "",
        subject=event.subject,
        kind=event.kind,
        type=event.type,
        body=write.body or encode_body(write.event),
        op=write.op,
        version="" if version is None else version or "new",
        allowed=f",{','.join(write.allowed)}," if write.allowed is not None else "",
        status=write.status,
        status_class=CLASSES[write.status_class] if write.status else "",
        priority="" if write.priority is None else write.priority,
        expires=write.expires,
        due_at=write.due_at,
        argument=write.argument,
        fence="" if write.fence is None else write.fence,
        tags=("" if write.tags is None else encode_tags(write.tags))
        + ("" if write.blocked_by is None else encode_blockers(write.blocked_by)),
        not_before=write.not_before,
    )


def read_reply(log: Log, shard: int, page: str, room: int, writes: list[Write], reply: list[Any]) -> Appended:
    """Return the outcome of these writes, and count it.

    Raises the error for the first refused event, LogBlocked, or EngineError for an unknown reply.
    """
    written: list[Written] = []
    displaced: dict[str, tuple[str, ...]] = {}
    match reply[0]:
        case b"written":
            _, ms, count, *rows = reply
            rows, pairs = rows[: 5 * len(writes)], [row.decode() for row in rows[5 * len(writes) :]]
            hint = pairs.pop() if writes[0].op == Op.PICK else ""
            counts.displaced += len(pairs) // 2
            for displaced_id, newcomer in zip(pairs[::2], pairs[1::2], strict=True):
                displaced[newcomer] = (*displaced.get(newcomer, ()), displaced_id)
            for seq, version, kind, subject, fence in zip(*[iter(rows)] * 5, strict=True):
                written.append(Written(Position(ms, seq, shard), version, kind.decode(), subject.decode(), fence))
        case b"known":
            recalled = [Position.parse(row.decode())._replace(shard=shard) for row in reply[1:] if row]
            return Appended([], recalled, wrote=Wrote(writes[0].event.id, recalled[0]) if recalled else None)
        case b"refused" if reply[2] == b"idle":
            now, soonest, below, priority, hint = reply[3:]
            return Appended([], idle=Idle(now, soonest, below.decode(), priority, hint.decode()))
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
            end = f"{row.position.ms}-{row.position.seq}"
            if end[:9] != log.known_ends[shard][:9]:  # another 10 s
                log.id_bounds[shard] = id_bound(end)
            log.known_ends[shard] = end
            fence = row.fence if row.kind == "claimed" else None
            wrote = wrote or Wrote(writes[0].event.id, row.position, fence)
    seqs = [row.position.seq for row in written if row.position.seq]
    if seqs and len(seqs) == count:
        log.last_plain_append[shard] = ms, seqs[0], seqs[-1]
    return Appended(written, wrote=wrote, displaced=displaced, hint=hint)
