"""Erasing: what a subject said is taken out of the log and all that was made of it; a tombstone says so."""

from __future__ import annotations

import os
import socket
from typing import cast

from scratchbus.core import Core
from scratchbus.domain.checks import check_guards, check_reason
from scratchbus.domain.events import Erased, Event
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_id
from scratchbus.errors import Conflict, EventIdReused, InvalidField
from scratchbus.folding import catch_up
from scratchbus.histories import history
from scratchbus.ids import new_event_id
from scratchbus.log.append import ERASE, append
from scratchbus.log.codec import Head
from scratchbus.log.gaps import STATUS
from scratchbus.log.rebuild import Lease, clear, take
from scratchbus.log.steps import Step, ask
from scratchbus.log.subscription import names
from scratchbus.log.writes import Write
from scratchbus.operations.outcome import digest_of, not_found
from scratchbus.projections import scratch_page
from scratchbus.queries import read_head
from scratchbus.why import reasons

_TRIES = 5


def erase(core: Core, page: str, id: str, reason: str, event_id: str | None) -> Step[Erased]:
    """Erase all events about a subject; return the tombstone. One that is erased already stays as it is.

    What is left to do when this was cut short is done when it is called again.
    """
    id, reason = check_id(id), cast(str, check_reason(reason))
    if not reason:
        raise InvalidField("reason", "say why it is erased: the tombstone keeps it")
    check_guards(event_id, None, None)
    keys = core.log.keys(core.log.shard(page))
    head = yield from read_head(core.log, page, id)
    if head is None:
        raise not_found(page, id)
    if head.status != STATUS:
        lease = yield from take(keys, f"{core.by}@{socket.gethostname()}:{os.getpid()}")
        try:
            yield from clear(lease, kept=(lease.live,))  # what a rebuild that was killed has left
            yield from _erase(core, lease, page, id, reason, event_id)
        except Exception:
            yield from lease.leave()
            raise
        yield from lease.leave()
    tombstone = cast(Erased, (yield from history(core.log, page, id))[-1])
    yield from catch_up(core.log, keys.shard)  # so that the document goes at once
    yield from _forget_letters(core, tombstone)
    return tombstone


def _erase(core: Core, lease: Lease, page: str, id: str, reason: str, event_id: str | None) -> Step[None]:
    """Append the tombstone, and take what it stands for out of the log, at once."""
    shard = lease.keys.shard
    digest = digest_of("erase", page, id, reason) if event_id else ""
    for _ in range(_TRIES):
        yield from catch_up(core.log, shard)
        head = cast(Head, (yield from read_head(core.log, page, id)))
        if head.status == STATUS:
            return
        events = yield from history(core.log, page, id)
        tombstone = Erased(
            id=event_id or new_event_id(),
            page=page,
            subject=id,
            type=head.type,
            by=core.acting(),
            **reasons(),
            reason=reason,
            positions=[event.position.stream_id for event in events],
        )
        write = Write(tombstone, "r", digest, head.version, argument=_argument(lease.token, events), verb="erased")
        try:
            yield from append(core.log, page, [write], script=ERASE)
            return
        except EventIdReused:
            raise
        except Conflict:
            yield from lease.keep()  # raises when another has taken over
    raise Conflict(f"{id} keeps changing; try again")


def _argument(token: str, events: list[Event]) -> str:
    """Return what the script takes: the lease, the entries that go, and the members of relations that they made."""
    parts = [token, str(len(events)), *(event.position.stream_id for event in events)]
    for event in events:
        for relation, start, end in scratch_page.relations(event):
            parts += [relation, f"{start}\t{end}"]
    return "".join(f"{len(part.encode())}:{part}" for part in parts)


def _forget_letters(core: Core, tombstone: Erased) -> Step[None]:
    """Take away what subscriptions noted of the events that are gone."""
    keys, shard = core.log.keys(0), core.log.shard(tombstone.page)
    places = [str(Position.parse(place)._replace(shard=shard)) for place in tombstone.positions]
    if places:
        for name in (yield from names(keys)):
            yield from ask(0, "HDEL", keys.dead(name), *places)
            yield from ask(0, "HDEL", keys.again(name), *places)
