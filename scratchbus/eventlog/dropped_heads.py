"""The dropped heads of final observations, and how they are restored.

A final observation is known only by its document or, if paged out, by its events. A link to it, or a refused change of
it, restores the head and finds it as if it had never been dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from scratchbus.domain.observation import Observation
from scratchbus.domain.ownership import holder_in_head
from scratchbus.domain.schedule import blockers_in_head
from scratchbus.domain.values import millis
from scratchbus.engine.scripts import MAX_ARGUMENTS, Command, Key, lua_script
from scratchbus.engine.steps import Call, Step, ask, ask_all, batches
from scratchbus.errors import BusClosed, EngineError
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.codec import encode_tags
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.layouts import CLASSES, Head
from scratchbus.eventlog.paged_out import locate, rebuild
from scratchbus.eventlog.stored_documents import decode_observation
from scratchbus.eventlog.writes import Write
from scratchbus.projections.subjects import is_remembered

_TRIES = 5
"""How often a head is restored for one write: paging out may drop it again at once."""


@lua_script("eventlog/restore_head")
def _restore_head(*, heads: Key, never: Key, subject: str, head: str, source: str, field: str, value: bytes) -> None:
    """Restore the head of a subject, if the hash at the key `source` still has this value in this field."""


@lua_script("eventlog/drop_heads")
def _drop_heads(*subjects_and_heads: object, heads: Key, never: Key) -> None:
    """Drop the heads of subjects, each followed by the head as it was read."""


def restore_head(log: Log, page: str, subject: str) -> Step[str | None]:
    """Restore the head of a final subject; return it if it is there now."""
    keys = log.keys(log.shard(page))
    if is_remembered(subject):
        return None
    for _ in range(_TRIES):
        checkpoint = yield from read_checkpoint(keys)
        names = keys.page(page, checkpoint.build)
        reads: list[Command] = [("HGET", names.docs, subject), ("HGET", names.places, "moves")]
        stored, moves = yield from ask_all(keys.shard, reads)
        key, name = names.docs, subject
        document = decode_observation(stored) if stored else None
        if document is None and checkpoint.is_paged:
            key, name, stored = names.places, "moves", moves
            entry = (yield from locate(log, names, keys.shard, [subject])).get(subject)
            if entry is not None:
                document = next(iter((yield from rebuild(log, keys.shard, [entry]))), None)
            elif moves != (yield from ask(keys.shard, "HGET", key, name)):
                continue  # it was paged in meanwhile
        if document is None or document.status_class != "final":
            return None
        head = str(head_of(document))
        command = _restore_head(
            heads=keys.heads(page),
            never=keys.ids,
            subject=subject,
            head=head,
            source=key,
            field=name,
            value=stored or b"",
        )
        (reply,) = yield Call(keys.shard, (command,))
        if _restore_head.answer(reply, 1, 0)[0]:
            return head
    return None


def drop_heads(keys: ShardKeys, page: str, heads: Mapping[str, str | bytes]) -> Step[None]:
    """Drop those of these heads that have not changed since they were read."""
    flat = [part for each in heads.items() for part in each]
    for batch in batches(flat, MAX_ARGUMENTS):
        command = _drop_heads(*batch, heads=keys.heads(page), never=keys.ids)
        yield from ask_all(keys.shard, [command])  # safe to send twice


def restore_missing_head(
    log: Log, page: str, writes: Sequence[Write], reply: Sequence[Any], restored: dict[str, list[str]]
) -> Step[bool]:
    """Restore the dropped head that a refused write needs; return whether there is one.

    `restored` has the restored heads, by subject.
    """
    if reply[2] != b"missing":
        return False
    subject = writes[reply[1] - 1].event.subject
    heads = restored.setdefault(subject, [])
    if len(heads) >= _TRIES or (head := (yield from restore_head(log, page, subject))) is None:
        return False
    heads.append(head)
    return True


def drop_restored_heads(keys: ShardKeys, page: str, restored: dict[str, list[str]]) -> Step[None]:
    """Drop the restored heads that nothing was written to: otherwise they would stay for good."""
    with suppress(EngineError, BusClosed):  # the write is what counts
        yield from drop_heads(keys, page, {subject: heads[-1] for subject, heads in restored.items() if heads})


def head_of(document: Observation) -> Head:
    """Return the head of an observation, computed from its document."""
    due_at = document.remind_at if document.is_open else document.archive_at
    claim = document.claim
    blockers = blockers_in_head(document.id, document.every, document.blocked_by)
    return Head(
        version=document.version,
        status=document.status,
        status_class=CLASSES.get(document.status_class, "?"),
        type=document.type,
        priority=document.priority,
        added=document.added_seq,
        expires=millis(document.expires_at) if document.expires_at else 0,
        due_at=millis(due_at) if due_at else 0,
        fence=document.fence,
        holder=holder_in_head(claim.by, claim.owner) if claim else "",
        until=millis(claim.until) if claim else 0,
        position=document.position.stream_id,
        tries=document.attempts,
        not_before=millis(document.not_before) if document.not_before else 0,
        tags=encode_tags(document.tags, blockers or ()),
        dedupe_key=document.dedupe_key or "",
    )
