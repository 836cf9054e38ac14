"""Recurring observations: for each slot, add a copy and set the next slot, in one batch.

The ids of these events derive from the slot, so each slot is filled once, however many expirers run. Slots that
passed while none ran count as one.
"""

from __future__ import annotations

from datetime import UTC, datetime

from scratchbus.commands.add import decide
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import Due
from scratchbus.domain.recurrence import next_slot
from scratchbus.domain.values import moment
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, EventIdReused, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.ids import new_id
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.writes import Ids, Op, Write
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core, type_of
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

_LOG_EVERY = 60_000  # milliseconds

_COPIED = ("content", "source", "owner", "confidence", "context", "tags", "metadata", "evidence")

logger = stderr_logger()


def recurs(subject: str, head: Head) -> bool:
    """Return whether the head belongs to a recurring observation: it is blocked by itself."""
    return head.tags.endswith(f"%{subject}")


def fill_slot(core: Core, page: str, subject: str, head: Head, now: int) -> Step[int]:
    """Add a copy of a recurring observation for the due slot; return the number of events appended."""
    recurring = (yield from get(core.log, page, [subject], core.fresh)).get(subject)
    if recurring is None or recurring.every is None or recurring.version != head.version:
        return 0
    try:
        writes = [_due_write(core, recurring, head, now), (yield from _added_write(core, recurring, head.due_at))]
        settings = core.settings
        appended = yield from append(core.log, page, writes, room=settings.max_observations, on_full=settings.on_full)
    except (VersionConflict, EventIdReused):  # another expirer was faster
        return 0
    except (Conflict, ValueError) as problem:
        # the page is full, its type has changed (InvalidInput), or `every` is of another version: at the next sweep
        if _is_logged(core, now - head.due_at):
            logger.warning("a recurring observation was not added", observation=subject, reason=str(problem))
        return 0
    counts.fallen_due["due"] += 1
    return len(appended.written)


def _is_logged(core: Core, late: int) -> bool:
    """Return whether a slot that is so many milliseconds late is logged: by one sweep a minute."""
    interval = core.settings.ms("sweep_interval") or 0
    return late // _LOG_EVERY != (late - interval) // _LOG_EVERY


def _due_write(core: Core, recurring: Observation, head: Head, now: int) -> Write:
    """Return the write that sets the next slot."""
    following = next_slot(recurring.every or "", head.due_at, now)
    event = Due(
        id=f"{recurring.id}/{head.due_at}",
        page=recurring.page,
        subject=recurring.id,
        type=recurring.type,
        by=core.by,
        next=moment(following),
    )
    return Write(event, Op.NOTE, "every", version=head.version, due_at=str(following), not_before=str(following))


def _added_write(core: Core, recurring: Observation, slot: int) -> Step[Write]:
    """Return the write that adds a copy; while the previous copy is open, that one is counted again."""
    fields = {name: value for name in _COPIED if (value := getattr(recurring, name)) not in (None, [], {})}
    fields |= {"type": recurring.type, "dedupe_key": f"every:{recurring.id}"}
    ids = Ids(new_id(), f"{recurring.id}/{slot}/added")
    kind = yield from type_of(core, recurring.type)
    cause = {"cause": str(recurring.position)}
    write = decide(datetime.now(UTC), ids, core.settings, kind, fields, recurring.page, cause)
    write.digest, write.is_plain = "every", False
    return write
