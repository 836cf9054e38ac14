"""Claiming observations, and linking them to actions."""

from __future__ import annotations

from typing import cast

from scratchbus.core import Core
from scratchbus.domain.checks import check_action, check_guards
from scratchbus.domain.events import Claimed, Linked, Released
from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.position import moment
from scratchbus.domain.values import Duration, check_id, duration_ms
from scratchbus.errors import InvalidTTL
from scratchbus.ids import new_event_id
from scratchbus.log.append import append
from scratchbus.log.steps import Step
from scratchbus.log.writes import Write
from scratchbus.operations.outcome import before_of, digest_of, finish, recall_all
from scratchbus.why import reasons


def claim(
    core: Core, page: str, id: str, by: str | None, ttl: Duration, event_id: str | None, fence: int | None
) -> Step[Claim]:
    """Take an observation for a while, or prolong one's own claim by its fence."""
    id, holder, ttl_ms = check_id(id), core.acting(by), duration_ms(ttl)
    if ttl_ms is None:
        raise InvalidTTL('ttl: a claim has to end; write "30s", "10m" …, and prolong it with fence=')
    check_guards(event_id, fence)
    digest = digest_of("claim", page, id, holder, ttl_ms, fence) if event_id else ""
    event = Claimed(
        id=event_id or new_event_id(),
        page=page,
        subject=id,
        by=core.by,
        **reasons(),
        holder=holder,
        ttl=ttl_ms,
        fence=fence,
    )
    write = Write(
        event, "c", digest, argument=f"{ttl_ms}:{holder}", fence=fence, verb="claimed", lifecycle=DEFAULT
    )  # fmt: skip
    done = yield from append(core.log, page, [write])
    if done.recalled is not None:
        (after,) = yield from recall_all(core, page, done.recalled)
        return cast(Claim, after.claim)
    row = done.written[0]
    return Claim(by=holder, fence=row.fence, until=moment(row.position.ms + ttl_ms))


def release(
    core: Core, page: str, id: str, by: str | None, event_id: str | None, fence: int | None
) -> Step[Observation]:
    """Give a claimed observation back."""
    id, holder = check_id(id), core.acting(by)
    check_guards(event_id, fence)
    digest = digest_of("release", page, id, holder, fence) if event_id else ""
    before, _ = yield from before_of(core, page, id, event_id)
    event = Released(id=event_id or new_event_id(), page=page, subject=id, by=core.by, **reasons())
    write = Write(event, "e", digest, argument=holder, fence=fence, verb="released", lifecycle=DEFAULT)
    done = yield from append(core.log, page, [write])
    return (yield from finish(core, page, before, [write], done))


def link(core: Core, page: str, id: str, action: str, event_id: str | None, fence: int | None) -> Step[Observation]:
    """Record that an action was taken because of an observation."""
    id, action = check_id(id), check_action(action)
    check_guards(event_id, fence)
    digest = digest_of("link", page, id, action) if event_id else ""
    before, _ = yield from before_of(core, page, id, event_id)
    event = Linked(id=event_id or new_event_id(), page=page, subject=id, by=core.by, **reasons(), action=action)
    write = Write(event, "n", digest, fence=fence, verb="linked", lifecycle=DEFAULT)
    done = yield from append(core.log, page, [write])
    return (yield from finish(core, page, before, [write], done))
