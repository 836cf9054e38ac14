"""Heads that were dropped below the floor of a log: until someone asks, only its document knows what is final.

A link to it, or a change that has to be refused, then finds its head as if it had never been away.
"""

from __future__ import annotations

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import millis
from scratchbus.log.codec import Head, decode_document
from scratchbus.log.commit import read_checkpoint
from scratchbus.log.keys import PageKeys, ShardKeys
from scratchbus.log.script_replies import reply_of
from scratchbus.log.steps import Call, Script, Step, ask

_SCRIPT = Script("revive")


def revive(keys: ShardKeys, page: str, subject: str) -> Step[bool]:
    """Put back the head of a subject whose last event is below the floor; say whether it is there now."""
    if not (yield from ask(keys.shard, "GET", keys.floor)):
        return False
    docs = PageKeys(keys, page, (yield from read_checkpoint(keys)).build).docs
    stored = yield from ask(keys.shard, "HGET", docs, subject)
    document = decode_document(stored) if stored else None
    if document is None or document.status_class != "final":
        return False
    arguments = (subject, str(head_of(document)), docs, stored)
    (reply,) = yield Call(keys.shard, (_SCRIPT.command((keys.heads(page), keys.ids), arguments),))
    return reply_of("revive", reply, 1, 0) == [1]


def head_of(document: Observation) -> Head:
    """Return the head of an observation that nothing happens to any more, by its document."""
    return Head(
        version=document.version,
        status=document.status,
        status_class=document.status_class[0],
        type=document.type,
        priority=document.priority,
        added=document.added_seq,
        expires=millis(document.expires_at) if document.expires_at else 0,
        wake=0,
        fence=document.fence,
        holder="",
        until=0,
        position=document.position.stream_id,
        tries=0,
        rest=0,
        tags=tuple(document.tags),
        dedupe_key=document.dedupe_key or "",
    )
