"""Reschedule an observation: change when it becomes active, when it recurs next, or when it is due."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from scratchbus.commands.execution import Occasion
from scratchbus.commands.observations import lifecycle_of
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import Changes
from scratchbus.domain.page_events import Updated
from scratchbus.domain.recurrence import first_slot
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.schedule import check_start, end_after, is_scheduled
from scratchbus.domain.values import millis, moment
from scratchbus.errors import InvalidField
from scratchbus.eventlog.writes import Op, Write

FIELDS: Final = frozenset(("not_before", "every", "remind_at"))
"""The fields of an update that reschedule an observation."""


class Rescheduled(NamedTuple):
    """The changed fields, the statuses in which they may change, and the `due_at` and `not_before` of the write."""

    fields: dict[str, Any]
    allowed: frozenset[str]
    due_at: str = ""
    not_before: str = ""


def rescheduled(
    changes: Mapping[str, Any], before: Observation, kind: ObservationType | None, occasion: Occasion
) -> Rescheduled:
    """Return the changes that follow from an update of the schedule. Raises InvalidField and InvalidTTL."""
    if "status" in changes:
        raise InvalidField(
            "status", f"cannot be given together with {_first_field(changes)}: a change of status ends a schedule"
        )
    if "remind_at" in changes and ("not_before" in changes or "every" in changes):
        raise InvalidField("remind_at", f"cannot be given together with {_first_field(changes)}; leave one of them out")
    statuses = lifecycle_of(kind, before).of_class("open")
    if before.every is not None:
        return _recurring(changes, before, occasion, statuses)
    if "every" in changes:
        raise InvalidField("every", f"{before.id} does not recur; add a new one that does: add(…, every='1h')")
    if "remind_at" in changes:
        return _reminded(changes["remind_at"], before, statuses)
    return _scheduled(changes, before, kind, occasion, statuses - {"pending_review"})


def _first_field(changes: Mapping[str, Any]) -> str:
    """Return the name of a given field of a schedule; `remind_at` only if it is the only one."""
    return next(name for name in ("not_before", "every", "remind_at") if name in changes)


def _recurring(
    changes: Mapping[str, Any], before: Observation, occasion: Occasion, statuses: frozenset[str]
) -> Rescheduled:
    """Set when a recurring observation recurs next; if `every` is given, by that interval."""
    for name in ("every", "not_before"):
        if name in changes and changes[name] is None:
            raise InvalidField(name, f"{before.id} recurs and must have one; archive it to end the recurrence")
    if "remind_at" in changes:
        raise InvalidField("remind_at", f"{before.id} recurs; give not_before, the time when it recurs next")
    every, now = changes.get("every") or before.every, occasion.now
    assert every is not None  # noqa: S101 - it recurs
    check_start(changes.get("not_before"))
    slot = first_slot(every, now, changes.get("not_before"))
    at = moment(slot)
    end_after(at, now, None, changes.get("expires_at", before.expires_at), recurs=True)
    return Rescheduled({"not_before": at, "remind_at": at}, statuses, str(slot), str(slot))


def _reminded(at: datetime | None, before: Observation, statuses: frozenset[str]) -> Rescheduled:
    """Set when an observation is due, or that it never is."""
    if is_scheduled(before):
        raise InvalidField("remind_at", f"{before.id} is scheduled; give not_before, the time when it becomes active")
    return Rescheduled({"remind_at": at}, statuses, _text(at))


def _scheduled(
    changes: Mapping[str, Any],
    before: Observation,
    kind: ObservationType | None,
    occasion: Occasion,
    statuses: frozenset[str],
) -> Rescheduled:
    """Set when an observation becomes active; it is due at that time, which replaces any reminder. None unschedules it.

    If it would expire before then, it gets the lifetime of its type, counted from then.
    """
    start, now = changes["not_before"], occasion.now
    check_start(start)
    if start is None:
        fields = {"not_before": None} | ({"remind_at": None} if is_scheduled(before) else {})
        return Rescheduled(fields, statuses, "0" if len(fields) > 1 else "", "0")
    if before.remind_on is not None:
        raise InvalidField("not_before", f"{before.id} waits for an event (remind_on) and cannot be scheduled too")
    fields = {"not_before": start, "remind_at": start}
    if "expires_at" in changes:
        end_after(start, now, None, changes["expires_at"], recurs=False)
    elif before.expires_at is not None and before.expires_at <= start:
        default = occasion.settings.default_ttl_ms
        ttl = kind.ttl_ms(default) if kind else default
        fields["expires_at"] = start + timedelta(milliseconds=ttl) if ttl else None
    return Rescheduled(fields, statuses, _text(start), _text(start))


def resumed(
    occasion: Occasion, before: Observation | None, kind: ObservationType | None, status_class: str, ahead: int
) -> list[Write]:
    """Return the write that keeps an observation recurring after its status has changed; none if it does not recur.

    A reopened one continues at its next slot from now, others at the slot they have. `ahead` are the writes before
    this one in its batch. The status alone does not decide whether there is a write: a retry needs the same number.
    """
    if before is None or before.every is None or status_class != "open":
        return []
    at = before.remind_at if before.status_class == "open" else None
    slot = first_slot(before.every, occasion.now, None) if at is None else millis(at)
    fields = {"not_before": moment(slot), "remind_at": moment(slot)}
    return [
        Write(
            occasion.event(Updated, before.id, "/schedule", changes=cast(Changes, fields)),
            Op.UPDATE,
            occasion.digest,
            before.version + ahead,
            due_at=str(slot),
            not_before=str(slot),
            argument=occasion.by,
            verb="rescheduled",
            lifecycle=lifecycle_of(kind),
            varying=frozenset(fields),
        )
    ]


def _text(at: datetime | None) -> str:
    return "0" if at is None else str(millis(at))
