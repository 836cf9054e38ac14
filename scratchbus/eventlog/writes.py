"""One event to append: what has to hold for it, and why it was refused when that does not hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pydantic_core import to_json

from scratchbus.domain.events import Event
from scratchbus.domain.lifecycle import Lifecycle
from scratchbus.domain.position import moment
from scratchbus.errors import (
    Claimed,
    Conflict,
    EventIdReused,
    InvalidTransition,
    KeyHeld,
    NotChangeable,
    NotClaimed,
    NotFound,
    PageFull,
    ScratchbusError,
    SessionOver,
    StaleFence,
    VersionConflict,
)
from scratchbus.eventlog.codec import encode_body, encode_tags
from scratchbus.projections.session import PAGES as SESSIONS

_CLASS = {"open": "o", "closed": "c", "final": "f"}

Op = Literal["a", "u", "s", "x", "n", "d", "c", "p", "e", "l", "g", "r"]
"""How an event is guarded; see append/inputs.lua, and append/erasing.lua for r."""

FIELDS = (
    "id", "digest", "subject", "kind", "type", "body", "op", "version", "allowed", "status", "class", "priority",
    "expires", "wake", "argument", "fence", "tags",
)  # fmt: skip
"""What the script takes of each event, in this order."""


@dataclass(slots=True)
class Write:
    """One event to append, what has to hold for it, and what it does to its head.

    `version` is 0 for a subject that must be new and None for any. `allowed` are the statuses it may follow, None for
    any. `expires` and `wake` are "" (as it is), "0" (never), "+ms" or ms. `body` is the encoded event, where it is
    known already. `tags` are those it has from now on, None as they are. `verb` and `lifecycle` explain a refusal.
    """

    event: Event
    op: Op
    digest: str = ""
    version: int | None = None
    allowed: frozenset[str] | None = None
    status: str = ""
    status_class: str = ""
    priority: int | None = None
    expires: str = ""
    wake: str = ""
    argument: str = ""
    fence: int | None = None
    tags: Collection[str] | None = None
    body: bytes = b""
    verb: str = "changed"
    lifecycle: Lifecycle | None = None

    def arguments(self) -> tuple[object, ...]:
        """Return the `FIELDS` that the script takes."""
        event = self.event
        version = "" if self.version is None else "new" if self.version == 0 else self.version
        return (
            event.id,
            f"{self.digest} {to_json(event.by).decode()}" if self.digest else "",
            event.subject,
            event.kind,
            event.type,
            self.body or encode_body(event),
            self.op,
            version,
            f",{','.join(self.allowed)}," if self.allowed is not None else "",
            self.status,
            _CLASS[self.status_class] if self.status else "",
            "" if self.priority is None else self.priority,
            self.expires,
            self.wake,
            self.argument,
            "" if self.fence is None else self.fence,
            "" if self.tags is None else encode_tags(self.tags),
        )


def refusal(page: str, room: int, write: Write, reason: str, details: list[object]) -> ScratchbusError:
    """Return the error for what the append script answered about a write."""
    subject = write.event.subject
    match reason, details:
        case "id", [event_id]:
            return EventIdReused(str(event_id))
        case "version", [int(expected), int(actual)]:
            return VersionConflict(subject, expected, actual)
        case "over", _:
            return SessionOver(page.removeprefix(SESSIONS))
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
        case "unheld", _:
            return NotClaimed(subject)
        case "full", _:
            return PageFull(page, room)
        case "key", [str(key), str(holder)]:
            return KeyHeld(subject, key, holder)
        case "status", [str(status), _]:
            life = write.lifecycle
            allowed = life.allowed_from(status) if life and status in life.statuses else frozenset[str]()
            if write.op == "s":
                return InvalidTransition(subject, status, write.status, allowed)
            return NotChangeable(subject, status, write.verb, allowed)
    raise AssertionError(f"the append script answered {reason!r} {details!r}")
