"""Errors for the append script's refusals, which say what to do."""

from __future__ import annotations

from typing import NoReturn

from scratchbus.domain.values import SESSION_PAGES, moment
from scratchbus.errors import (
    Claimed,
    Conflict,
    EventIdReused,
    InvalidField,
    InvalidTransition,
    KeyHeld,
    NotChangeable,
    NotClaimed,
    NotFound,
    NotReady,
    PageFull,
    ScratchbusError,
    SessionOver,
    StaleFence,
    VersionConflict,
)
from scratchbus.eventlog.writes import Write
from scratchbus.telemetry.counters import counts

_CLOSED = "it is closed; claim an open one, or reopen it if its lifecycle allows that"
_LEFTOVER = "the lifecycle of its type no longer has this closed status, so it can only be archived or cleared"


def refuse(page: str, room: int, write: Write, index: int, total: int, reply: list[object]) -> NoReturn:
    """Raise the error for a write that the append script refused; `index` is its index in the batch, from 0."""
    reason, *details = [part.decode() if isinstance(part, bytes) else part for part in reply]
    error = _refusal(page, room, write, str(reason), details)
    error.index = index  # type: ignore[attr-defined]  # which item of a batch
    counts.refused[type(error).__name__] += 1
    if total > 1:
        error.args = (f"item {index + 1} of {total}: {error}; nothing was written",)
    raise error


def reused_in_part(known: str, new: str) -> EventIdReused:
    """Return the error for a batch with a known event id and a new one, which may derive from the known one."""
    return EventIdReused(known, None if new.startswith(f"{known}/") else new)


def _refusal(page: str, room: int, write: Write, reason: str, details: list[object]) -> ScratchbusError:
    subject = write.event.subject
    match reason, details:
        case "id", [event_id]:
            return EventIdReused(str(event_id))
        case "part", [known, new]:
            return reused_in_part(str(known), str(new))
        case "version", [int(expected), int(actual)]:
            return VersionConflict(subject, expected, actual)
        case "over", _:
            return SessionOver(page.removeprefix(SESSION_PAGES))
        case "erased", _:
            return NotFound("what this event id wrote was erased; the history of its subject says why")
        case "missing", _:
            return NotFound(f"there is no {subject} on page {page!r}; list the page to find ids")
        case "fence", [int(actual), str(holder)]:
            return StaleFence(holder, write.fence or 0, actual)
        case "claimed", [str(by), int(until), str(id)]:
            return Claimed(id, by, moment(until))
        case "rested", _:
            return Conflict(f"new observations were based on {subject} while it was being {write.verb}; try again")
        case "behind", _:
            return Conflict(f"{subject}: its last event is not folded yet; try again")
        case "rebuilt" | "archived", _:
            return Conflict(f"{subject}: someone is rebuilding or archiving; try again when that is done")
        case "late", _:
            return Conflict(f"event {write.event.id} was sent again meanwhile; the outcome of that retry counts")
        case "unready", [str(id)]:
            obstacle = "it recurs, and only what it adds can be claimed" if id == subject else f"{id} blocks it"
            return NotReady(subject, obstacle)
        case "scheduled", [int(until)]:
            return NotReady(subject, f"it is scheduled for {moment(until).isoformat(timespec='milliseconds')}")
        case "circular", _:
            return InvalidField("blocked_by", f"{subject} would be blocked by itself, through others; leave one out")
        case "unheld", _:
            return NotClaimed(subject)
        case "full", _:
            return PageFull(page, room)
        case "key", [str(key), str(holder)]:
            return KeyHeld(subject, key, holder)
        case "status" | "closed", [str(status), *_]:
            lifecycle = write.lifecycle
            allowed = lifecycle.allowed_from(status) if lifecycle and status in lifecycle.statuses else frozenset[str]()
            advice = _CLOSED if reason == "closed" else None
            if lifecycle is not None and status == lifecycle.leftover:
                advice = _LEFTOVER
            if write.op == "s":
                return InvalidTransition(subject, status, write.status, allowed, advice)
            return NotChangeable(subject, status, write.verb, allowed, advice)
    raise AssertionError(f"the append script answered {reason!r} {details!r}")
