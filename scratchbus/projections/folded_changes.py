"""The changes that each kind of event makes to an observation, in either form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scratchbus.domain.event import Event
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.page_events import Claimed, Due, Linked, Released, Repeated, StatusChanged, Updated
from scratchbus.domain.schedule import is_scheduled
from scratchbus.domain.values import MAX_SAFE_INTEGER, moment
from scratchbus.projections.stored_observation import Details

_Observation = Observation | Details
"""An observation as a model, or the details of its stored form, which have all fields that these changes depend on."""


def _updated(observation: _Observation, event: Updated) -> dict[str, Any]:
    return dict(event.changes)


def _repeated(observation: _Observation, event: Repeated) -> dict[str, Any]:
    changes: dict[str, Any] = {"occurrences": min(observation.occurrences + event.times, MAX_SAFE_INTEGER)}
    if event.ttl is not None:
        changes["expires_at"] = moment(event.ms + event.ttl)
    elif event.expires_at is not None:
        changes["expires_at"] = event.expires_at
    if event.evidence and (more := [id for id in event.evidence if id not in observation.evidence]):
        changes["evidence"] = observation.evidence + more
    return changes


def _status_changed(observation: _Observation, event: StatusChanged) -> dict[str, Any]:
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


def _claimed(observation: _Observation, event: Claimed) -> dict[str, Any]:
    fence = observation.fence + (event.fence is None)
    claim = Claim(by=event.holder, fence=fence, until=moment(event.ms + event.ttl), owner=event.owner)
    return {"fence": fence, "claim": claim, "attempts": observation.attempts + event.picked}


def _released(observation: _Observation, event: Released) -> dict[str, Any]:
    start = observation.not_before
    if start is None or start <= moment(event.ms) or not is_scheduled(observation):  # a schedule outlives the claim
        start = moment(event.ms + event.backoff) if event.backoff else None
    return {"claim": None, "attempts": max(0, observation.attempts - event.untried), "not_before": start}


def _lapsed(observation: _Observation, event: Event) -> dict[str, Any]:
    return {"claim": None}


def _linked(observation: _Observation, event: Linked) -> dict[str, Any]:
    return {} if event.action in observation.links else {"links": [*observation.links, event.action]}


def _due(observation: _Observation, event: Due) -> dict[str, Any]:
    changes: dict[str, Any] = {"due_at": moment(event.ms), "remind_at": event.next, "remind_on": None}
    return changes if event.next is None else changes | {"not_before": event.next}


CHANGES: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "updated": _updated,
    "repeated": _repeated,
    "status_changed": _status_changed,
    "claimed": _claimed,
    "released": _released,
    "lapsed": _lapsed,
    "linked": _linked,
    "due": _due,
}
"""The kinds of events that change an observation on the page, each with the function for its changes."""
