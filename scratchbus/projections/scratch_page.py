"""The Scratch Page: what the events of a page make of its observations.

`evolve` never reads a clock or the registry; whatever it needs was decided when the event was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import asdict
from pydantic_core import PydanticUndefined

from scratchbus.domain.events import (
    Added,
    Claimed,
    ContextRendered,
    Due,
    Event,
    Linked,
    Released,
    Repeated,
    StatusChanged,
    Updated,
)
from scratchbus.domain.observation import Claim, Observation, ObservationFields
from scratchbus.domain.position import Position
from scratchbus.domain.values import LARGEST, MODEL_SLOTS, millis, moment, trusted
from scratchbus.projections.projection import FoldError
from scratchbus.projections.stored_observation import AnyObservation

NAME = "scratch_page"

FORM = 3
"""The form of what is stored of it. It grows when stored documents or indexes would no longer be what a fold makes."""

PAGED = 4
"""The form of state of which some documents were paged out: code that knows only `FORM` would take them for lost."""

WAITING = ("waiting", "event")
"""The index of the reminders that wait for an event."""

INDEXED = ("tags", "owner", "remind_on")
"""The fields that can change and that an index follows."""

_new = object.__new__
_set_values, _set_given, _set_extra, _set_private = MODEL_SLOTS

RELATIONS = ("evidence", "links", "causes", "seen", "actions")
"""The relations that an event may tell of; see `log.keys.PageKeys`."""


def evolve(observation: Observation | None, event: Event, *, in_place: bool = False) -> Observation | None:
    """Return the observation after the event; None once it is off the page.

    Events that are not about observations leave it as it is. With `in_place` nobody else has the observation yet, so it
    is changed and not copied, which is half the work. Raises FoldError for an event about an observation that was never
    added.
    """
    if isinstance(event, Added):
        return added(event)
    if event.kind == "erased":
        return None
    change = _CHANGES.get(event.kind)
    if change is None:
        return observation
    if observation is None:
        raise FoldError(f"{event.kind} of an observation that is not on the page")
    if event.kind == "cleared":
        return None
    changes = change(observation, event)
    changes.update(version=observation.version + 1, ms=event.ms, seq=event.seq)
    if in_place:
        observation.__dict__.update(changes)
        return observation
    return trusted(Observation, observation.__dict__ | changes)


def whole(observation: AnyObservation) -> Observation:
    """Return an observation as users see it."""
    if isinstance(observation, Observation):
        return observation
    fields = asdict(observation)
    if not observation.seq:
        fields["ms"], fields["seq"] = observation.added_ms, observation.added_seq
    if observation.claim is not None:
        fields["claim"] = trusted(Claim, asdict(observation.claim))
    made = _new(Observation)  # as `trusted` does it
    _set_values(made, fields)
    _set_given(made, set())
    _set_extra(made, None)
    _set_private(made, None)
    return made


def settled(observation: Observation, now_ms: int) -> Observation:
    """Return the observation as it reads at this time: archived once it has expired, swept or not."""
    return settled_all([observation], now_ms)[0]


def settled_all(observations: Iterable[AnyObservation], now_ms: int) -> list[Observation]:
    """Return observations as users see them, as they read at this time."""
    now, read = moment(now_ms), list[Observation]()
    for each in map(whole, observations):
        expires_at, claim = each.expires_at, each.claim
        if expires_at is not None and expires_at <= now and each.status_class == "open":
            each = _expired(each)
        elif claim is not None and claim.until <= now:
            each = each.model_copy(update={"claim": None})
        read.append(each)
    return read


def _expired(observation: Observation) -> Observation:
    return observation.model_copy(
        update={
            "status": "archived",
            "status_class": "final",
            "reason_code": "expired",
            "reason": None,
            "claim": None,
            "attempts": 0,
            "not_before": None,
        }
    )


def is_active(observation: AnyObservation) -> bool:
    """Return whether an observation is open and does not wait for review."""
    return observation.status_class == "open" and observation.status != "pending_review"


def by_priority(observation: AnyObservation) -> tuple[int, int]:
    """Return what sorts observations by priority, then newest first."""
    return (-observation.priority, -observation.added_seq)


def next_moment(observation: AnyObservation) -> int | None:
    """Return when (ms) time does something to the observation next, if it ever does."""
    moments = [observation.archive_at, observation.remind_at]
    if observation.status_class == "open":
        moments.append(observation.expires_at)
        if observation.claim is not None:
            moments.append(observation.claim.until)
    due = [millis(moment) for moment in moments if moment is not None]
    return min(due, default=None)


def may_be_paged_out(observation: AnyObservation) -> bool:
    """Return whether a document is final, and follows from its events alone."""
    is_done = observation.status_class == "final" and next_moment(observation) is None
    return is_done and not observation.damaged


def index_entries(observation: AnyObservation) -> list[tuple[str, str]]:
    """Return the (index, value) pairs under which an observation is found."""
    tags = observation.tags
    entries = [("type", observation.type), *[("tag", tag) for tag in (tags if len(tags) < 2 else set(tags))]]
    if observation.owner is not None:
        entries.append(("owner", observation.owner))
    if observation.remind_on is not None:
        entries.append(WAITING)
    return entries


def relations(event: Event) -> Iterator[tuple[str, str, str]]:
    """Yield what an event says of how things hang together: (relation, from what, to what); see `log.keys.PageKeys`.

    It stays true for ever, also when an observation has left its page.
    """
    if isinstance(event, Added | Repeated):
        for id in event.evidence:
            yield "evidence", id, f"{event.subject}@{event.page}"
    elif isinstance(event, Linked):
        yield "links", f"{event.page}#{event.action}", f"{event.subject}@{event.position.stream_id}"
        yield "actions", event.by, event.position.stream_id
    elif isinstance(event, ContextRendered):
        for id in event.observations:
            yield "seen", id, f"{event.subject}@{event.page}"
    if event.cause is not None:
        yield "causes", event.cause, event.position.stream_id


_UNTOUCHED = {
    name: field.default for name, field in Observation.model_fields.items() if field.default is not PydanticUndefined
}
"""What a new observation has where its event says nothing."""


_FIELDS = tuple(ObservationFields.model_fields)


def added(event: Added, place: Position | None = None) -> Observation:
    """Return the observation that begins with an event, which was appended at this place, or knows where it is."""
    given = event.__dict__  # half as dear as the attributes, and this is what a projector does most
    ms, seq, shard = place or (given["ms"], given["seq"], given["shard"])
    values = {
        **_UNTOUCHED,
        "id": given["subject"],
        "page": given["page"],
        "type": given["type"],
        "source": given["source"] or given["by"],
        "occurrences": min(given["times"], LARGEST),
        "links": [],
        "chain": [],
        "seen_by": [],
        "followed": [],
        "shard": shard,
        "added_ms": ms,
        "added_seq": seq,
        "ms": ms,
        "seq": seq,
    }
    for name in _FIELDS:
        values[name] = given[name]
    ttl = given["ttl"]
    if ttl is not None:
        values["expires_at"] = moment(ms + ttl)
    return trusted(Observation, values)


def _updated(observation: Observation, event: Updated) -> dict[str, Any]:
    return dict(event.changes)


def _repeated(observation: Observation, event: Repeated) -> dict[str, Any]:
    changes: dict[str, Any] = {"occurrences": min(observation.occurrences + event.times, LARGEST)}
    if event.ttl is not None:
        changes["expires_at"] = moment(event.ms + event.ttl)
    elif event.expires_at is not None:
        changes["expires_at"] = event.expires_at
    if event.evidence and (more := [id for id in event.evidence if id not in observation.evidence]):
        changes["evidence"] = observation.evidence + more
    return changes


def _status_changed(observation: Observation, event: StatusChanged) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "status": event.status,
        "status_class": event.status_class,
        "reason": event.reason,
        "reason_code": event.reason_code,
        "chain": event.chain,
        "seen_by": event.seen_by,
        "followed": event.followed,
        "attempts": 0,
        "not_before": None,
    }
    if event.status_class != "open":
        changes["claim"] = None
    if event.status_class != "open" or observation.status_class != "open":
        changes["remind_at"] = changes["remind_on"] = changes["archive_at"] = None
    if event.archive_after is not None:
        changes["archive_at"] = moment(event.ms + event.archive_after)
    if event.ttl is not None:
        changes["expires_at"] = moment(event.ms + event.ttl) if event.ttl else None
    return changes


def _claimed(observation: Observation, event: Claimed) -> dict[str, Any]:
    fence = observation.fence + (event.fence is None)
    claim = Claim(by=event.holder, fence=fence, until=moment(event.ms + event.ttl), owner=event.owner)
    return {"fence": fence, "claim": claim, "attempts": observation.attempts + event.picked}


def _released(observation: Observation, event: Released) -> dict[str, Any]:
    return {
        "claim": None,
        "attempts": max(0, observation.attempts - event.untried),
        "not_before": moment(event.ms + event.backoff) if event.backoff else None,
    }


def _lapsed(observation: Observation, event: Event) -> dict[str, Any]:
    return {"claim": None}


def _linked(observation: Observation, event: Linked) -> dict[str, Any]:
    return {} if event.action in observation.links else {"links": [*observation.links, event.action]}


def _due(observation: Observation, event: Due) -> dict[str, Any]:
    return {"due_at": moment(event.ms), "remind_at": None, "remind_on": None}


def _cleared(observation: Observation, event: Event) -> dict[str, Any]:
    return {}


_CHANGES: dict[str, Callable[[Observation, Any], dict[str, Any]]] = {
    "updated": _updated,
    "repeated": _repeated,
    "status_changed": _status_changed,
    "claimed": _claimed,
    "released": _released,
    "lapsed": _lapsed,
    "linked": _linked,
    "due": _due,
    "cleared": _cleared,
}
"""What each kind of event changes; the kinds that this projection folds, besides `added`."""

CHANGING = {kind.encode(): change for kind, change in _CHANGES.items() if kind != "cleared"}
"""The kinds of events after which an observation is still there, each with what returns the fields that it changes."""
