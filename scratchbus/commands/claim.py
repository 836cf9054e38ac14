"""Claim observations, by id or the next one in order, and link them to actions."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple, cast

from scratchbus.commands.execution import Actor, Command, Occasion
from scratchbus.commands.observations import recall_all
from scratchbus.domain.checks import MAX_LABEL, check_action, check_own_event_id, check_some, check_tags
from scratchbus.domain.event import Event
from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.ownership import holder_in_head
from scratchbus.domain.page_events import Claimed, Linked, Released
from scratchbus.domain.position import START
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.values import Duration, check_source, duration_ms, moment
from scratchbus.engine.steps import Abandoned, Step
from scratchbus.errors import EventIdReused, InvalidTTL, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.bus_log import first_end
from scratchbus.eventlog.lag import read_clock
from scratchbus.eventlog.writes import Idle, Op, Write, Written
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core, type_of


def _ttl_ms(ttl: object) -> int:
    try:
        ms = duration_ms(ttl)
    except InvalidTTL:
        problem = f"{shown(ttl)} is not a valid duration here; use a positive number of seconds or"
    else:
        if ms is not None:
            return ms
        problem = "a claim must have an end; use"
    raise InvalidTTL(f'ttl: {problem} a duration such as "30s" or "10m", and renew it with fence=')


class TakeClaim(Command):
    """Claim an observation for a while, or renew one's own claim by its fence."""

    verb = "claim"
    by: Actor = None
    ttl: Annotated[int, CheckedBy(_ttl_ms)]  # milliseconds

    def retry_arguments(self, by: str) -> tuple[object, ...]:
        """See `Command`."""
        return self.by or by, self.ttl, self.fence

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """See `Command`."""
        holder = self.by or occasion.by
        event = occasion.event(Claimed, self.id, holder=holder, ttl=self.ttl, fence=self.fence, owner=occasion.owner)
        argument = f"{self.ttl}:{holder_in_head(holder, event.owner)}"
        return [_guarded_write(occasion, event, Op.CLAIM, "claimed", self.fence, argument)]


def claim(core: Core, page: str, arguments: Mapping[str, Any], replica_ms: int | None = None) -> Step[Claim]:
    """Claim an observation for a while, or renew one's own claim by its fence; for `replica_ms` see `append`."""
    command = TakeClaim.parse(arguments)
    writes = command.decide(command.on(core, page), None, None)
    appended = yield from append(core.log, page, writes, replica_ms=replica_ms)
    if appended.recalled is not None:
        (after,) = yield from recall_all(core, page, appended.recalled)
        return cast(Claim, after.claim)
    return _claim(cast(Claimed, writes[0].event), appended.written[0])


def _claim(event: Claimed, row: Written) -> Claim:
    return Claim(by=event.holder, fence=row.fence, until=moment(row.position.ms + event.ttl), owner=event.owner)


def _guarded_write(
    occasion: Occasion, event: Event, op: Op, verb: str, fence: int | None, argument: str = "", **fields: Any
) -> Write:
    """Return the write of an event about an observation, whatever its status."""
    return Write(event, op, occasion.digest, argument=argument, fence=fence, verb=verb, lifecycle=DEFAULT, **fields)


class PickFilter(NamedTuple):
    """A filter for picking: one of these types, None for any, and all of these tags."""

    types: frozenset[str] | None = None
    tags: tuple[str, ...] = ()

    def has(self, observation: Observation) -> bool:
        """Return whether an observation has one of these types, and these tags."""
        return (self.types is None or observation.type in self.types) and set(self.tags) <= set(observation.tags)

    @classmethod
    def of(cls, types: str | Collection[str] | None, tags: str | Collection[str] | None) -> PickFilter:
        """Make a filter from a caller's arguments: a text counts as a list of one. Raises InvalidField."""
        labels = [tags] if isinstance(tags, str) else tags
        return cls(check_some("types", types), tuple(sorted(check_tags(labels, MAX_LABEL))))


class ReleaseTerms(NamedTuple):
    """How a job is released: it is not picked for `backoff` ms; it is `untried`, or `reason` says why it failed."""

    backoff: int = 0
    untried: bool = False
    reason: str | None = None


TRIED, UNTRIED = ReleaseTerms(), ReleaseTerms(untried=True)

_MAX_HINTS = 1_000  # kept by one process


class Picked(NamedTuple):
    """A picked observation and its claim.

    `asked_at` is when it was first requested, in monotonic seconds; the claim lasts for its full duration from then at
    least. `lacks_replicas`: too few replicas have confirmed the claim.
    """

    observation: Observation
    claim: Claim
    asked_at: float
    lacks_replicas: bool = False


def work_replica_ms(core: Core, ttl: Duration) -> int:
    """Return for how many milliseconds a pick for work waits for replicas: three quarters of its claim at most."""
    return min(core.log.replica_ms, _ttl_ms(ttl) * 3 // 4)


def pick(
    core: Core,
    page: str,
    wanted: PickFilter,
    by: str | None,
    ttl: Duration,
    *,
    event_id: str | None = None,
    work: str | None = None,
    min_priority: int = 0,
) -> Step[Picked | Idle]:
    """Claim the next ready observation of a page: of the highest priority, and of these the newest.

    Ready ones are active, and neither claimed nor in backoff. Those below `min_priority` are skipped. For work, a named
    instance also picks the one that it held before a restart, a retry does not return one that was closed since, and
    a claim that too few replicas confirm within three quarters of `ttl` is no error. Raises UnknownType.
    """
    holder, ttl_ms = core.by if by is None else check_source(by, "by"), _ttl_ms(ttl)
    check_own_event_id(event_id)
    for name in wanted.types or ():
        yield from type_of(core, name)
    takes_over = core.settings.instance is not None and work is not None
    left = (yield from first_end(core.log, core.log.shard(page))) if takes_over else START.stream_id
    replica_ms = None if work is None else work_replica_ms(core, ttl)
    hints, hint_key = core.pick_hints, (page, *wanted, left)
    next_due, below, hint = 0, "", hints.get(hint_key, "")
    while True:
        asked_at = time.monotonic()
        occasion = Occasion.of(core, page, event_id, "claim_next", *wanted, holder, ttl_ms)
        event = occasion.event(Claimed, "", holder=holder, ttl=ttl_ms, picked=True, work=work, owner=occasion.owner)
        terms = f"{ttl_ms}:{holder_in_head(holder, event.owner)}"
        argument = f"{min_priority}:{below}:{left}:{len(hint.encode())}:{hint}{terms}"
        write = _guarded_write(
            occasion, event, Op.PICK, "claimed", None, argument, allowed=wanted.types, tags=wanted.tags
        )
        appended = yield from append(core.log, page, [write], replica_ms=replica_ms)
        hint = (appended.idle or appended).hint
        if appended.recalled is not None:
            (after,) = yield from recall_all(core, page, appended.recalled)
            if not wanted.has(after):
                raise EventIdReused(write.event.id)
            claim = cast(Claim, after.claim)
            if work is not None and (yield from _held_by(core, page, after.id, claim.fence)) is None:
                event_id, next_due, below = None, 0, ""
                yield Abandoned()
                continue
            age_ms = (yield from read_clock(core.log.shard(page))) - appended.recalled[0].ms
            return Picked(after, claim, asked_at - max(0.0, age_ms / 1000), appended.lacks_replicas)
        if appended.idle is not None:
            next_due, below = min(filter(None, (next_due, appended.idle.soonest)), default=0), appended.idle.below
            if below:
                continue
            _keep_hint(hints, hint_key, hint)
            return appended.idle._replace(soonest=next_due)
        _keep_hint(hints, hint_key, hint)
        row = appended.written[0]
        found = yield from _held_by(core, page, row.subject, row.fence)
        if found is not None:
            return Picked(found, _claim(event, row), asked_at, appended.lacks_replicas)
        next_due, below = 0, ""  # it was closed right after it was picked
        yield Abandoned()


def _keep_hint(hints: dict[tuple[object, ...], str], key: tuple[object, ...], hint: str) -> None:
    if len(hints) >= _MAX_HINTS:
        hints.clear()
    if hint:
        hints[key] = hint
    else:
        hints.pop(key, None)


def _held_by(core: Core, page: str, id: str, fence: int) -> Step[Observation | None]:
    """Return an observation; None unless it is open, and nobody has claimed it since the claim with this fence."""
    found = (yield from get(core.log, page, [id], core.fresh)).get(id)
    return found if found is not None and found.is_open and found.fence == fence else None


class Release(Command):
    """Release a claim."""

    verb = "release"
    by: Actor = None
    back: ReleaseTerms = TRIED

    def retry_arguments(self, by: str) -> tuple[object, ...]:
        """See `Command`. How long a job waits is not among them, as it varies."""
        terms = () if self.back == TRIED else (self.back.untried, self.back.reason)
        return self.by or by, self.fence, *terms

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """See `Command`."""
        return [release_write(occasion, self.id, self.fence, self.back, self.by)]


def release_write(
    occasion: Occasion, id: str, fence: int | None, back: ReleaseTerms = TRIED, by: str | None = None
) -> Write:
    """Return the write that releases a claim."""
    argument = f"{back.backoff}:{back.untried:d}:{by or occasion.by}"
    event = occasion.event(Released, id, **back._asdict())
    return _guarded_write(occasion, event, Op.END_CLAIM, "released", fence, argument)


def put_back(core: Core, page: str, picked: Picked) -> Step[None]:
    """Release a picked observation untried, without waiting for replicas."""
    claim = picked.claim
    command = Release.parse({"id": picked.observation.id, "by": claim.by, "back": UNTRIED, "fence": claim.fence})
    yield from append(core.log, page, command.decide(command.on(core, page), None, None), replica_ms=0)


class LinkAction(Command):
    """Record that an action was taken because of an observation."""

    verb = "link"
    action: Annotated[str, CheckedBy(check_action)]

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """See `Command`."""
        return [link_write(occasion, self.id, self.action, self.fence)]


def link_write(occasion: Occasion, id: str, action: str, fence: int | None, version: int | None = None) -> Write:
    """Return the write that records an action."""
    event = occasion.event(Linked, id, action=action)
    return _guarded_write(occasion, event, Op.NOTE, "linked", fence, version=version)
