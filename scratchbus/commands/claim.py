"""Claiming observations, one by its id or the next there is, and linking them to actions."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple, cast

from scratchbus.commands.outcome import before_of, finish, recall_all
from scratchbus.commands.read import check_some
from scratchbus.domain.checks import MAX_LABEL, check_action, check_guards, check_tags
from scratchbus.domain.digest import digest_of
from scratchbus.domain.events import Claimed, Linked, Released
from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.ownership import held_as
from scratchbus.domain.position import START, moment
from scratchbus.domain.values import Duration, check_id, duration_ms
from scratchbus.engine.steps import Abandoned, Step
from scratchbus.errors import InvalidTTL
from scratchbus.eventlog.append import append, first_end
from scratchbus.eventlog.because import reasons
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.writes import Idle, Write
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core, type_of


def claim(
    core: Core, page: str, id: str, by: str | None, ttl: Duration, event_id: str | None, fence: int | None
) -> Step[Claim]:
    """Take an observation for a while, or renew one's own claim by its fence."""
    id, holder, ttl_ms = check_id(id), core.acting(by), _ttl_ms(ttl)
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
        owner=core.log.owner,
    )
    argument = f"{ttl_ms}:{held_as(holder, event.owner)}"
    write = Write(event, "c", digest, argument=argument, fence=fence, verb="claimed", lifecycle=DEFAULT)
    done = yield from append(core.log, page, [write])
    if done.recalled is not None:
        (after,) = yield from recall_all(core, page, done.recalled)
        return cast(Claim, after.claim)
    row = done.written[0]
    return Claim(by=holder, fence=row.fence, until=moment(row.position.ms + ttl_ms), owner=event.owner)


def _ttl_ms(ttl: Duration) -> int:
    ms = duration_ms(ttl)
    if ms is None:
        raise InvalidTTL(
            'ttl: a claim must have an end; use a duration such as "30s" or "10m", and renew it with fence='
        )
    return ms


class Wanted(NamedTuple):
    """What is picked: of one of these types, None for any, and with all of these tags."""

    types: frozenset[str] | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, types: str | Collection[str] | None, tags: str | Collection[str] | None) -> Wanted:
        """Make it from what callers give: a text counts as a list of one. Raises InvalidField."""
        labels = [tags] if isinstance(tags, str) else tags
        return cls(check_some("types", types), tuple(sorted(check_tags(labels, MAX_LABEL))))


class Back(NamedTuple):
    """How something is given back: for how long (ms) it is not picked, whether it was not tried, else why in vain."""

    backoff: int = 0
    untried: bool = False
    reason: str | None = None


TRIED = Back()


class Picked(NamedTuple):
    """What was picked, and the claim on it, which was asked for at a monotonic second and lasts at least from then."""

    observation: Observation
    claim: Claim
    asked: float


def pick(
    core: Core,
    page: str,
    wanted: Wanted,
    by: str | None,
    ttl: Duration,
    *,
    event_id: str | None = None,
    work: str | None = None,
    least: int = 0,
) -> Step[Picked | Idle]:
    """Claim what is next on a page: of the highest priority, newest first, active, not held, and not resting.

    What has less than the `least` priority is left alone. For work, an instance that was named also takes what it held
    before it was restarted. Raises UnknownType.
    """
    holder, ttl_ms = core.acting(by), _ttl_ms(ttl)
    check_guards(event_id, None)
    for name in wanted.types or ():
        yield from type_of(core, name)
    digest = digest_of("claim_next", page, wanted.types, wanted.tags, holder, ttl_ms) if event_id else ""
    takes_over = core.takes_over and work is not None
    left = (yield from first_end(core.log, core.log.shard(page))) if takes_over else START.stream_id
    soonest, below = 0, ""
    while True:
        asked = time.monotonic()
        event = Claimed(
            id=event_id or new_event_id(), page=page, by=core.by, **reasons(), holder=holder, ttl=ttl_ms,
            picked=True, work=work, owner=core.log.owner,
        )  # fmt: skip
        write = Write(
            event, "p", digest, allowed=wanted.types, tags=wanted.tags,
            argument=f"{least}:{below}:{left}:{ttl_ms}:{held_as(holder, event.owner)}",
            verb="claimed", lifecycle=DEFAULT,
        )  # fmt: skip
        done = yield from append(core.log, page, [write])
        if done.recalled is not None:
            (after,) = yield from recall_all(core, page, done.recalled)
            return Picked(after, cast(Claim, after.claim), asked)
        if done.idle is not None:
            soonest, below = min(filter(None, (soonest, done.idle.soonest)), default=0), done.idle.below
            if not below:
                return done.idle._replace(soonest=soonest)
            continue
        row = done.written[0]
        found = (yield from get(core.log, page, [row.subject], core.fresh)).get(row.subject)
        if found is not None and found.is_open and found.fence == row.fence:
            until = moment(row.position.ms + ttl_ms)
            return Picked(found, Claim(by=holder, fence=row.fence, until=until, owner=event.owner), asked)
        soonest, below = 0, ""  # it was closed as soon as it was picked
        yield Abandoned()


def release(
    core: Core,
    page: str,
    id: str,
    by: str | None,
    event_id: str | None,
    fence: int | None,
    back: Back = TRIED,
) -> Step[Observation]:
    """Give a claimed observation back."""
    id = check_id(id)
    check_guards(event_id, fence)
    write = plan_release(core, page, id, by, event_id, fence, back)
    before, _ = yield from before_of(core, page, id, event_id)
    done = yield from append(core.log, page, [write])
    return (yield from finish(core, page, before, [write], done))


def plan_release(
    core: Core,
    page: str,
    id: str,
    by: str | None,
    event_id: str | None,
    fence: int | None,
    back: Back = TRIED,
) -> Write:
    """Return the write that gives a claimed observation back."""
    holder = core.acting(by)
    event = Released(id=event_id or new_event_id(), page=page, subject=id, by=core.by, **reasons(), **back._asdict())
    digest = digest_of("release", page, id, holder, fence) if event_id else ""
    argument = f"{back.backoff}:{back.untried:d}:{holder}"
    return Write(event, "e", digest, argument=argument, fence=fence, verb="released", lifecycle=DEFAULT)


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
