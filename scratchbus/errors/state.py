"""What is raised when the state of the bus has no such thing, or forbids what was asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from scratchbus.errors.base import ScratchbusError, listed


class NotFound(ScratchbusError, LookupError):
    """There is no such thing."""


class FileGone(NotFound):
    """A log file is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no such file; check --log, or create it and start again")
        self.path = path


class Conflict(ScratchbusError):
    """The state of the bus forbids it. Nothing was written."""


class VersionConflict(Conflict):
    """The subject has moved on since it was read."""

    def __init__(self, id: str, expected: int, actual: int) -> None:
        super().__init__(f"{id} is at version {actual}, not {expected}; read it again and retry")
        self.id = id
        self.expected = expected
        self.actual = actual


class RevisionConflict(VersionConflict):
    """A memory is not at the revision that a write of the whole of it was based on."""

    def __init__(self, what: str, expected: int, actual: int) -> None:
        super().__init__(what, expected, actual)
        problem = "is not empty" if expected == 0 else f"has changed since revision {expected}"
        self.args = (f"the {what} {problem}; read it again, and pass the revision it is at now ({actual})",)


class InvalidTransition(Conflict):
    """The lifecycle has no way from this status to that one."""

    def __init__(self, id: str, from_status: str, to_status: str, allowed: Iterable[str]) -> None:
        self.id = id
        self.from_status = from_status
        self.to_status = to_status
        self.allowed = sorted(allowed)
        super().__init__(
            f"{id} is {from_status} and cannot become {to_status}; from {from_status} it can become: "
            f"{listed(self.allowed)}"
        )


class NotChangeable(InvalidTransition):
    """The observation is in a status in which this cannot be done to it."""

    def __init__(self, id: str, status: str, verb: str, allowed: Iterable[str]) -> None:
        super().__init__(id, status, verb, allowed)
        self.args = (f"{id} is {status} and cannot be {verb}; from {status} it can become: {listed(self.allowed)}",)


class Claimed(Conflict):
    """Another connection holds a live claim."""

    def __init__(self, id: str, by: str, until: datetime) -> None:
        super().__init__(
            f"{id} is claimed by {by} until {until.isoformat(timespec='milliseconds')}; only the connection that"
            " claimed it may use its fence. Wait until then or take something else; a holder that was restarted has to"
            " connect with the same source and instance"
        )
        self.id = id
        self.by = by
        self.until = until


class NotClaimed(Conflict):
    """Nobody holds it, so there is nothing to release."""

    def __init__(self, id: str) -> None:
        super().__init__(f"{id} is not claimed, or no longer; there is nothing to release")
        self.id = id


class StaleFence(Conflict):
    """The claim that this fence came from is over."""

    def __init__(self, id: str, fence: int, actual: int) -> None:
        super().__init__(f"{id}: the claim with fence {fence} is over (the last fence is {actual}); claim it again")
        self.id = id
        self.fence = fence
        self.actual = actual


class PageFull(Conflict):
    """The page has no room, and nothing on it may give way."""

    def __init__(self, page: str, limit: int) -> None:
        super().__init__(
            f"page {page!r} already has its {limit} open observations and none may give way;"
            " resolve some or raise max_observations"
        )
        self.page = page
        self.limit = limit


class KeyHeld(Conflict):
    """Another open observation has the dedupe key by now."""

    def __init__(self, id: str, key: str, holder: str) -> None:
        super().__init__(
            f"{id} cannot be opened again: {holder} is open with the same dedupe_key {key!r}; close it first"
        )
        self.id = id
        self.key = key
        self.holder = holder


class EventIdReused(Conflict):
    """The same event id came with other arguments."""

    event_id: str

    def __init__(self, event_id: str) -> None:
        super().__init__(f"event id {event_id!r} was used before with other arguments; use a new id")
        self.event_id = event_id


class SessionOver(Conflict):
    """The session has ended: what was remembered in it is archived, and nothing more is."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} has ended, and what was remembered in it is archived; begin another one, and read"
            " this one with history() or as_of()"
        )
        self.session = session


class SessionExists(Conflict):
    """A session is to be begun that is there already."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is there already; give the new one a name that is free")
        self.session = session


class TypeInUse(Conflict):
    """A type cannot be removed or change its lifecycle while observations of it are open."""

    def __init__(self, name: str, open_count: int) -> None:
        super().__init__(f"type {name!r} has {open_count} open observations; resolve or archive them first")
        self.type = name
        self.open = open_count


class NotEmpty(Conflict):
    """Events can be imported only into a bus that has none, or only the first of them."""

    def __init__(self, shard: int) -> None:
        super().__init__(
            f"shard {shard}: the bus has events of its own; import into a new one, with a name that is free (--bus)"
        )


class RebuildHeld(Conflict):
    """Someone else is building the state anew, or has taken it over."""

    def __init__(self, shard: int, holder: str) -> None:
        super().__init__(f"shard {shard}: {holder} is building the state anew; wait until that is done")
        self.holder = holder
