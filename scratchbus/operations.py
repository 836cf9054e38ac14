"""What can be done to the observations of a page, as conversations with the engine.

Everything given is checked before anything is sent. Each function returns what the `Page` method of its name returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from scratchbus.core import Core, type_of
from scratchbus.domain.events import (
    Changes,
    Claimed,
    Cleared,
    Event,
    Linked,
    ReasonCode,
    Released,
    StatusChanged,
    Updated,
)
from scratchbus.domain.lifecycle import ARCHIVED, DEFAULT, Lifecycle
from scratchbus.domain.observation import UPDATABLE, Claim, NewObservation, Observation
from scratchbus.domain.position import Position, millis, moment
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.trusted import trusted
from scratchbus.domain.values import Duration, check_id, duration_ms
from scratchbus.errors import (
    Conflict,
    InvalidField,
    InvalidTransition,
    InvalidTTL,
    NotFound,
    TooLarge,
    UnknownField,
    UnknownType,
)
from scratchbus.given import (
    as_time,
    check_action,
    check_changes,
    check_guards,
    check_reason,
    digest_of,
    plan_added,
)
from scratchbus.ids import new_event_id
from scratchbus.log.append import MAX_BATCH, Appended, Write, Written, append
from scratchbus.log.steps import Step
from scratchbus.projections import scratch_page
from scratchbus.queries import Filter, active, get, history, read_events, read_head, search

_TRIES = 5
_REASONS: dict[str, ReasonCode] = {
    "pending_review": "reviewed",
    "resolved": "resolved",
    "archived": "archived",
    "active": "reopened",
}


def new(
    type: str,
    content: str,
    source: str | None,
    owner: str | None,
    status: str | None,
    confidence: float | None,
    context: Mapping[str, Any] | None,
    tags: Sequence[str] | None,
    ttl: Duration | None,
    expires_at: datetime | None,
    metadata: Mapping[str, Any] | None,
    dedupe_key: str | None,
    times: int,
    evidence: Sequence[str] | None,
    remind_at: datetime | None,
    remind_on: Mapping[str, Any] | None,
    unknown: Mapping[str, Any],
) -> NewObservation:
    """Return what `add` was given as one object, still unchecked. Raises UnknownField."""
    for name in unknown:
        raise UnknownField(name, NewObservation.model_fields)
    return trusted(
        NewObservation,
        {
            "type": type, "content": content, "source": source, "owner": owner, "status": status,
            "confidence": confidence, "context": context, "tags": tags, "ttl": ttl, "expires_at": expires_at,
            "metadata": metadata, "dedupe_key": dedupe_key, "times": times, "evidence": evidence,
            "remind_at": remind_at, "remind_on": remind_on, "event_id": None,
        },
    )  # fmt: skip


def filter_of(
    type: str | None,
    status: str | Collection[str] | None,
    owner: str | None,
    source: str | None,
    tags: str | Sequence[str] | None,
    text: str | None,
    context: Mapping[str, Any] | None,
    since: datetime | None,
) -> Filter:
    """Return what `list` was given as one object."""
    return Filter(
        type=type,
        status=None if status is None else frozenset([status] if isinstance(status, str) else status),
        owner=owner,
        source=source,
        tags=() if tags is None else (tags,) if isinstance(tags, str) else tuple(tags),
        text=text,
        context=dict(context) if context is not None else None,
        since=None if since is None else as_time("since", since),
    )


# -- adding ----------------------------------------------------------------------------------------------------------


def add(core: Core, page: str, new: NewObservation, event_id: str | None, fence: int | None) -> Step[Observation]:
    """Add an observation, or count it as a repeat of the open one with its dedupe key."""
    (observation,) = yield from _add_all(core, page, [new], event_id, fence)
    return observation


def add_many(core: Core, page: str, items: Sequence[NewObservation], event_id: str | None) -> Step[list[Observation]]:
    """Add a batch: all of it or nothing."""
    if len(items) > MAX_BATCH:
        raise TooLarge("batch", len(items), MAX_BATCH, "observations")
    own = sum(item.event_id is not None for item in items)
    if own not in (0, len(items)) or (own and event_id is not None):
        raise InvalidField("event_id", "give one to every item of a batch, to the batch as a whole, or to none")
    if not items:
        return []
    return (yield from _add_all(core, page, items, event_id, None))


def _add_all(
    core: Core, page: str, items: Sequence[NewObservation], event_id: str | None, fence: int | None
) -> Step[list[Observation]]:
    check_guards(event_id, fence)
    sharing = len(items) if event_id is not None else 1
    writes = []
    for index, item in enumerate(items):
        kind = yield from type_of(core, item.type)
        check_guards(item.event_id, None)
        own = item.event_id if event_id is None else event_id if index == 0 else f"{event_id}/{index}"
        writes.append(plan_added(core, page, kind, item, own, fence, sharing))
    done = yield from append(core.log, page, writes, room=core.max_observations, on_full=core.on_full)
    if done.recalled is not None:
        return (yield from _recall_all(core, page, done.recalled))
    shard = core.log.shard(page)
    added = {
        row.subject: _evolved(None, write.event, row, shard)
        for write, row in zip(writes, done.written, strict=True)
        if row.kind == "added"
    }
    last = {row.subject: row for row in done.written}
    stale = [subject for subject, row in last.items() if row.kind != "added" or row.version > 1]
    if stale:
        added |= yield from get(core.log, page, stale, core.fresh)
    for subject in stale:
        if subject not in added:  # repeated here, and cleared by someone else before it was read
            position = last[subject].position
            assert position is not None
            (added[subject],) = yield from _recall_all(core, page, [position])
    return [added[row.subject] for row in done.written]


def _evolved(before: Observation | None, event: Event, row: Written, shard: int) -> Observation:
    assert row.position is not None
    after = scratch_page.evolve(before, event.placed(ms=row.position.ms, seq=row.position.seq, shard=shard))
    assert after is not None
    return after


def _recall_all(core: Core, page: str, positions: list[Position]) -> Step[list[Observation]]:
    """Return the observations as these events, appended earlier, left them."""
    events = yield from read_events(core.log, positions)
    out = []
    for event in events:
        observation: Observation | None = None
        for earlier in (yield from history(core.log, page, event.subject)):
            if earlier.position <= event.position:
                observation = scratch_page.evolve(observation, earlier)
        if observation is None:
            raise NotFound(f"{event.subject} is no longer on page {page!r}; its history is still there")
        out.append(observation)
    return out


# -- reading ---------------------------------------------------------------------------------------------------------


def get_one(core: Core, page: str, id: str, stale_ok: bool) -> Step[Observation | None]:
    """Return one observation, or None."""
    id = check_id(id)
    found = yield from get(core.log, page, [id], core.fresh._replace(stale_ok=stale_ok))
    return found.get(id)


def list_all(
    core: Core, page: str, wanted: Filter, limit: int | None, after: Observation | Position | str | None, stale_ok: bool
) -> Step[list[Observation]]:
    """Return what matches, newest first."""
    _check_limit(limit)
    below = None
    if isinstance(after, Observation):
        below = after.added_seq
    elif isinstance(after, Position):
        below = after.seq
    elif after is not None:
        id = check_id(after)
        head = yield from read_head(core.log, page, id)
        if head is None:
            raise NotFound(f"after: there is no {id} on page {page!r}; pass the last item of the page before")
        below = head.added
    return (yield from search(core.log, page, core.fresh._replace(stale_ok=stale_ok), wanted, limit, below))


def list_active(core: Core, page: str, limit: int | None, stale_ok: bool) -> Step[list[Observation]]:
    """Return the active observations by priority, then newest."""
    _check_limit(limit)
    return (yield from active(core.log, page, core.fresh._replace(stale_ok=stale_ok), limit))


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise InvalidField("limit", f"{limit!r} is not a number above 0; use None for no limit")


def list_history(core: Core, page: str, id: str) -> Step[list[Event]]:
    """Return the events about an observation, oldest first."""
    id = check_id(id)
    events = yield from history(core.log, page, id)
    if not events:
        raise _not_found(page, id)
    return events


def _not_found(page: str, id: str) -> NotFound:
    return NotFound(f"there is no {id} on page {page!r}; see `scratchbus list`")


# -- changing --------------------------------------------------------------------------------------------------------


def _before(
    core: Core, page: str, id: str, event_id: str | None
) -> Step[tuple[Observation | None, ObservationType | None]]:
    """Return the observation that is about to change and its type.

    With an event id, one that has left the page is no error yet: this may be the retry of what took it away.
    """
    found = yield from get(core.log, page, [id], core.fresh)
    before = found.get(id)
    if before is not None:
        name: str | None = before.type
    else:
        head = (yield from read_head(core.log, page, id)) if event_id is not None else None
        name = head.type if head else None
    if name is None:
        raise _not_found(page, id)
    return before, core.registry.types.get(name) or (yield from _type_or_none(core, name))


def _type_or_none(core: Core, name: str) -> Step[ObservationType | None]:
    try:
        return (yield from type_of(core, name))
    except UnknownType:
        return None  # of a registry that is gone; the default lifecycle has to do


def _finish(
    core: Core, page: str, before: Observation | None, writes: list[Write], done: Appended
) -> Step[Observation]:
    """Return the observation after the writes, folded here when nothing came between."""
    if done.recalled is not None:
        return (yield from _recall_all(core, page, done.recalled[-1:]))[0]
    shard, last = core.log.shard(page), done.written[-1]
    if before is not None and before.version + len(writes) == last.version:
        after = before
        for write, row in zip(writes, done.written, strict=True):
            after = _evolved(after, write.event, row, shard)
        return after
    found = yield from get(core.log, page, [last.subject], core.fresh)
    if last.subject not in found:
        raise _not_found(page, last.subject)
    return found[last.subject]


def update(
    core: Core,
    page: str,
    id: str,
    changes: dict[str, Any],
    expected_version: int | None,
    event_id: str | None,
    fence: int | None,
) -> Step[Observation]:
    """Replace fields; a change of `status` follows the lifecycle. Both together are one atomic batch."""
    id, by = check_id(id), core.acting()
    check_guards(event_id, fence, expected_version)
    given = digest_of("update", page, id, changes, expected_version) if event_id else ""
    before, kind = yield from _before(core, page, id, event_id)
    patch = check_changes(changes, kind, core.max_content)
    status = patch.pop("status", None)
    writes: list[Write] = []
    if patch:
        expires = ""
        if "expires_at" in patch:
            expires = "0" if patch["expires_at"] is None else str(millis(patch["expires_at"]))
        event = Updated(
            id=event_id or new_event_id(), page=page, subject=id, type=_type(kind), by=by, changes=cast(Changes, patch)
        )
        writes.append(
            Write(
                event, "u", given, expected_version, expires=expires, argument=by, fence=fence, verb="updated",
                lifecycle=_life(kind),
            )
        )  # fmt: skip
    if status is not None:
        own = event_id if not writes else event_id and f"{event_id}/status"
        write = _transition(core, page, id, kind, before, status, None, own, given if own else "", fence)
        write.version = None if expected_version is None else expected_version + len(writes)
        writes.append(write)
    if not writes:
        raise InvalidField("changes", f"nothing to update; give one of: {', '.join(UPDATABLE)}")
    done = yield from append(core.log, page, writes, room=core.max_observations, on_full=core.on_full)
    return (yield from _finish(core, page, before, writes, done))


def transition(
    core: Core,
    page: str,
    id: str,
    verb: str,
    reason: str | None,
    expected_version: int | None,
    event_id: str | None,
    fence: int | None,
) -> Step[Observation]:
    """Review, resolve, archive or reopen an observation, as its lifecycle allows."""
    id, reason = check_id(id), check_reason(reason)
    check_guards(event_id, fence, expected_version)
    given = digest_of(verb, page, id, reason, expected_version) if event_id else ""
    for _ in range(_TRIES):
        before, kind = yield from _before(core, page, id, event_id)
        status = _target(_life(kind), verb)
        write = _transition(core, page, id, kind, before, status, reason, event_id, given, fence)
        write.version = expected_version
        try:
            done = yield from append(core.log, page, [write], room=core.max_observations, on_full=core.on_full)
        except InvalidTransition as error:
            if error.from_status not in _life(kind).sources_of(status):
                raise
            continue  # it was closed or reopened since it was read
        return (yield from _finish(core, page, before, [write], done))
    raise Conflict(f"{id} keeps changing between open and closed; try again")


def _target(life: Lifecycle, verb: str) -> str:
    """Return the status that a verb means in a lifecycle."""
    name = {"review": "pending_review", "resolve": "resolved", "archive": ARCHIVED, "reopen": "active"}[verb]
    if name in life.statuses:
        return name
    closed = sorted(life.of_class("closed"))
    if verb == "resolve" and len(closed) == 1:
        return closed[0]
    if verb == "reopen":
        return life.initial[0]
    raise InvalidField(
        "status", f"lifecycle {life.name!r} has no {name!r}; use update(id, status=…) with: {', '.join(life.statuses)}"
    )


def _transition(
    core: Core,
    page: str,
    id: str,
    kind: ObservationType | None,
    before: Observation | None,
    status: str,
    reason: str | None,
    event_id: str | None,
    digest: str,
    fence: int | None,
) -> Write:
    life = _life(kind)
    status_class = life.class_of(status)
    archive_after = None
    if status_class == "closed" and core.archive_after_ms is not None:
        archive_after = kind.archive_after_ms(core.archive_after_ms) if kind else core.archive_after_ms
    reopens = status_class == "open" and before is not None and before.status_class == "closed"
    sources = life.sources_of(status)
    if status_class == "open" and before is not None and before.status_class != "final":
        sources &= life.of_class("closed" if reopens else "open")  # only a reopened one begins a new life
    ttl = (kind.ttl_ms(core.default_ttl_ms) if kind else core.default_ttl_ms) or 0
    event = StatusChanged(
        id=event_id or new_event_id(),
        page=page,
        subject=id,
        type=_type(kind),
        by=core.by,
        status=status,
        status_class=status_class,
        reason_code=_REASONS.get(status, "changed"),
        reason=reason,
        archive_after=archive_after,
        ttl=ttl if reopens else None,
    )
    return Write(
        event,
        "s",
        digest,
        allowed=sources,
        status=status,
        status_class=status_class,
        expires=f"+{ttl}" if reopens and ttl else "0" if reopens else "",
        wake=f"+{archive_after}" if archive_after is not None else "",
        argument=core.by,
        fence=fence,
        lifecycle=life,
    )


def _life(kind: ObservationType | None) -> Lifecycle:
    return kind.lifecycle if kind is not None else DEFAULT


def _type(kind: ObservationType | None) -> str:
    return kind.name if kind is not None else ""


def clear_resolved(core: Core, page: str, ids: Sequence[str], event_id: str | None) -> Step[None]:
    """Take resolved observations off the page, all or none; their history stays."""
    checked = list(dict.fromkeys(check_id(id) for id in ids))
    check_guards(event_id, None)
    if not checked:
        return
    if len(checked) > MAX_BATCH:
        raise TooLarge("ids", len(checked), MAX_BATCH, "observations")
    digest = digest_of("clear", page, checked) if event_id else ""
    found = yield from get(core.log, page, checked, core.fresh)
    writes = []
    for index, id in enumerate(checked):
        kind = (yield from _type_or_none(core, found[id].type)) if id in found else None
        own = event_id and (event_id if index == 0 else f"{event_id}/{index}")
        event = Cleared(id=own or new_event_id(), page=page, subject=id, by=core.by)
        life = _life(kind)
        writes.append(Write(event, "d", digest, allowed=life.of_class("closed"), verb="cleared", lifecycle=life))
    yield from append(core.log, page, writes)


# -- claims and links ------------------------------------------------------------------------------------------------


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
        id=event_id or new_event_id(), page=page, subject=id, by=core.by, holder=holder, ttl=ttl_ms, fence=fence
    )
    write = Write(
        event, "c", digest, argument=f"{ttl_ms}:{holder}", fence=fence, verb="claimed", lifecycle=DEFAULT
    )  # fmt: skip
    done = yield from append(core.log, page, [write])
    if done.recalled is not None:
        (after,) = yield from _recall_all(core, page, done.recalled)
        assert after.claim is not None
        return after.claim
    row = done.written[0]
    assert row.position is not None
    return Claim(by=holder, fence=row.fence, until=moment(row.position.ms + ttl_ms))


def release(
    core: Core, page: str, id: str, by: str | None, event_id: str | None, fence: int | None
) -> Step[Observation]:
    """Give a claimed observation back."""
    id, holder = check_id(id), core.acting(by)
    check_guards(event_id, fence)
    digest = digest_of("release", page, id, holder, fence) if event_id else ""
    before, _ = yield from _before(core, page, id, event_id)
    event = Released(id=event_id or new_event_id(), page=page, subject=id, by=core.by)
    write = Write(event, "e", digest, argument=holder, fence=fence, verb="released", lifecycle=DEFAULT)
    done = yield from append(core.log, page, [write])
    return (yield from _finish(core, page, before, [write], done))


def link(core: Core, page: str, id: str, action: str, event_id: str | None, fence: int | None) -> Step[Observation]:
    """Record that an action was taken because of an observation."""
    id, action = check_id(id), check_action(action)
    check_guards(event_id, fence)
    digest = digest_of("link", page, id, action) if event_id else ""
    before, _ = yield from _before(core, page, id, event_id)
    event = Linked(id=event_id or new_event_id(), page=page, subject=id, by=core.by, action=action)
    write = Write(event, "n", digest, fence=fence, verb="linked", lifecycle=DEFAULT)
    done = yield from append(core.log, page, [write])
    return (yield from _finish(core, page, before, [write], done))
