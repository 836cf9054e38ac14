"""The Scratch Page: the fold of a page's events into its observations.

`evolve` never reads a clock or the registry; everything it needs was decided when the event was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from scratchbus.domain.event import Event
from scratchbus.domain.models import MODEL_SLOTS, trusted
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.observation_models import ObservationFields
from scratchbus.domain.page_events import Added
from scratchbus.domain.schedule import is_scheduled
from scratchbus.domain.values import MAX_SAFE_INTEGER, millis, moment
from scratchbus.projections.folded_changes import CHANGES
from scratchbus.projections.projection import FoldError
from scratchbus.projections.stored_observation import NO_DETAILS, AnyObservation, StoredObservation

NAME = "scratch_page"

FORM = 5
"""The version of the stored state. It grows when a fold would produce other documents or indexes than those stored."""

PAGED = 6
"""The version of a state with documents that were paged out: code that knows only `FORM` would consider them lost."""

IN_TABLES = 7
"""The version of a state of whose index of paged-out documents a part is in the archive: `PAGED` would miss it."""

WAITING = ("waiting", "event")
"""The index of the reminders that wait for an event."""

INDEXED = ("tags", "owner", "remind_on")
"""The fields that can change and that an index depends on."""

_PLAIN_VALUES = dict.fromkeys(Observation.model_fields) | asdict(NO_DETAILS) | {"displaced": ()}
"""All fields in order: filling a copy of it is faster than filling an empty dictionary."""

_new = object.__new__
_set_values, _set_fields_set, _set_extra, _set_private = MODEL_SLOTS
_NO_FIELDS_SET = set[str]()
"""The set of given fields that all models made from stored forms share."""


def evolve(observation: Observation | None, event: Event, *, in_place: bool = False) -> Observation | None:
    """Return the observation after the event; None once it has left the page.

    Events that are not about observations do not change it. With `in_place`, the observation is changed and not copied,
    which is half the work; the caller must be its only user. Raises FoldError for an event about an observation that
    was never added.
    """
    if isinstance(event, Added):
        fields = event.__dict__  # half the cost of attribute access
        position = fields["ms"], fields["seq"], fields["shard"]
        return added(fields["subject"], fields["page"], fields["type"], fields, position)
    if event.kind == "erased":
        return None
    change = CHANGES.get(event.kind)
    if change is None and event.kind != "cleared":
        return observation
    if observation is None:
        raise FoldError(f"{event.kind} of an observation that is not on the page")
    if change is None:
        return None
    changes = change(observation, event)
    changes.update(version=observation.version + 1, ms=event.ms, seq=event.seq)
    if in_place:
        observation.__dict__.update(changes)
        return observation
    return trusted(Observation, observation.__dict__ | changes)


def as_observation(observation: AnyObservation) -> Observation:
    """Return an observation as the model that users see; unless its details are plain, it shares their objects."""
    if not isinstance(observation, StoredObservation):  # isinstance is slow for models
        return observation
    details, values = observation.details, _PLAIN_VALUES.copy()
    values["added_ms"] = values["ms"] = observation.added_ms
    values["added_seq"] = values["seq"] = observation.added_seq
    if details is NO_DETAILS:
        values["context"], values["metadata"] = {}, {}
        values["evidence"], values["links"] = [], []
        values["chain"], values["seen_by"], values["followed"], values["blocked_by"] = [], [], [], []
    else:
        values.update(asdict(details))
        if details.claim is not None:
            values["claim"] = trusted(Claim, asdict(details.claim))
        if not details.seq:
            values["ms"], values["seq"] = observation.added_ms, observation.added_seq
    values["id"], values["page"] = observation.id, observation.page
    values["type"], values["source"] = observation.type, observation.source
    values["content"], values["tags"] = observation.content, observation.tags
    values["priority"], values["expires_at"] = observation.priority, observation.expires_at
    model = _new(Observation)  # like `trusted`
    _set_values(model, values)
    _set_fields_set(model, _NO_FIELDS_SET)
    _set_extra(model, None)
    _set_private(model, None)
    return model


def settled(observation: AnyObservation, now_ms: int) -> Observation:
    """Return the observation as it reads at this time: archived once expired, even if no event records it yet."""
    return as_observation(settled_all([observation], now_ms)[0])


def settled_all(observations: Iterable[AnyObservation], now_ms: int) -> list[AnyObservation]:
    """Return observations as they read at this time; those that time has not changed keep their form."""
    now, settled = moment(now_ms), list[AnyObservation]()
    for each in observations:
        expires_at = each.expires_at
        if expires_at is None or expires_at > now:
            if isinstance(each, StoredObservation):
                details = each.details
                if details is NO_DETAILS or (details.claim is None and details.not_before is None):
                    settled.append(each)
                    continue
        elif each.status_class == "open":
            settled.append(_expired(as_observation(each)))
            continue
        changes = dict[str, Any]()
        if each.claim is not None and each.claim.until <= now:
            changes["claim"] = None
        if each.not_before is not None and each.not_before <= now:
            changes["not_before"] = None
        settled.append(as_observation(each).model_copy(update=changes) if changes else each)
    return settled


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
    """Return whether an observation is open, and neither pending review nor scheduled for later."""
    if isinstance(observation, StoredObservation) and observation.details is NO_DETAILS:
        return True
    is_open = observation.status_class == "open" and observation.status != "pending_review"
    if observation.not_before is None and observation.every is None:
        return is_open
    return is_open and not is_scheduled(observation)


def is_ready(observation: AnyObservation) -> bool:
    """Return whether an observation is active, neither claimed nor in backoff; it may still be blocked."""
    return is_active(observation) and observation.claim is None and observation.not_before is None


def by_priority(observation: AnyObservation) -> tuple[int, int]:
    """Return a sort key: by priority, then newest first."""
    return (-observation.priority, -observation.added_seq)


def next_moment(observation: AnyObservation) -> int | None:
    """Return when (ms) time changes the observation next, None for never."""
    moments = [observation.archive_at, observation.remind_at]
    if observation.status_class == "open":
        moments.append(observation.expires_at)
        if observation.claim is not None:
            moments.append(observation.claim.until)
    times = [millis(moment) for moment in moments if moment is not None]
    return min(times, default=None)


def may_be_paged_out(observation: AnyObservation) -> bool:
    """Return whether a document is final and can be folded again from its events."""
    is_done = observation.status_class == "final" and next_moment(observation) is None
    return is_done and not observation.damaged


def index_entries(observation: AnyObservation) -> list[tuple[str, str]]:
    """Return the (index, value) pairs under which an observation is found."""
    tags = observation.tags
    entries = [("type", observation.type), *[("tag", tag) for tag in (tags if len(tags) < 2 else set(tags))]]
    if isinstance(observation, StoredObservation) and observation.details is NO_DETAILS:
        return entries
    if observation.owner is not None:
        entries.append(("owner", observation.owner))
    if observation.remind_on is not None:
        entries.append(WAITING)
    return entries


_NEW_VALUES = {
    name: None if field.is_required() or field.default_factory else field.default
    for name, field in Observation.model_fields.items()
}
"""The default values of a new observation; lists and dicts are created for each one."""

_ADDED_FIELDS = frozenset(ObservationFields.model_fields)
"""The fields that an observation takes unchanged from the event that adds it."""


def added(
    subject: str,
    page: str,
    type: str,
    fields: Mapping[str, Any],
    position: tuple[int, int, int] | None,
    incomplete: Observation | None = None,
) -> Observation:
    """Return the observation that an event adds, with these fields of its body; missing fields have their defaults.

    `position` is the event's (ms, seq, shard), None while it is not known; the returned observation is then passed as
    `incomplete` to complete it.
    """
    if incomplete is None:
        values = _NEW_VALUES.copy()  # faster than setting each
        values["context"], values["tags"], values["metadata"], values["evidence"] = {}, [], {}, []
        values["links"], values["chain"], values["seen_by"], values["followed"] = [], [], [], []
        values["blocked_by"] = []
        for name in _ADDED_FIELDS.intersection(fields):
            values[name] = fields[name]
        values["id"], values["page"], values["type"] = subject, page, type
        values["source"] = fields.get("source") or fields["by"]
        if "times" in fields:
            values["occurrences"] = min(fields["times"], MAX_SAFE_INTEGER)
        incomplete = _new(Observation)  # like `trusted`
        _set_values(incomplete, values)
        _set_fields_set(incomplete, set())
        _set_extra(incomplete, None)
        _set_private(incomplete, None)
    else:
        values = incomplete.__dict__
    if position is not None:
        ms, seq, values["shard"] = position
        values["added_ms"] = values["ms"] = ms
        values["added_seq"] = values["seq"] = seq
        ttl = fields.get("ttl")
        if ttl is not None:
            values["expires_at"] = moment(ms + ttl)
    return incomplete
