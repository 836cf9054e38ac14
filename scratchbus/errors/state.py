"""Errors for what does not exist, and for what the state of the bus, of an object or of local files does not allow."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from scratchbus.errors.base import ScratchbusError, listed


class NotFound(ScratchbusError, LookupError):
    """It does not exist."""


class FileGone(NotFound):
    """The log file does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no such file; check --log, or create it and start again")
        self.path = path


class Conflict(ScratchbusError):
    """The state of the bus does not allow it. Nothing was written."""


class VersionConflict(Conflict):
    """The subject has changed since it was read."""

    def __init__(self, id: str, expected: int, actual: int) -> None:
        super().__init__(f"{id} is at version {actual}, not {expected}; read it again and retry")
        self.id = id
        self.expected = expected
        self.actual = actual


class RevisionConflict(VersionConflict):
    """The memory has changed since the revision that the write is based on."""

    def __init__(self, what: str, expected: int, actual: int) -> None:
        super().__init__(what, expected, actual)
        problem = "is not empty" if expected == 0 else f"has changed since revision {expected}"
        self.args = (f"the {what} {problem}; read it again and pass its current revision ({actual})",)


class InvalidTransition(Conflict):
    """The lifecycle does not allow this change of status."""

    _verb = "become"

    def __init__(
        self, id: str, from_status: str, to_status: str, allowed: Iterable[str], advice: str | None = None
    ) -> None:
        self.id = id
        self.from_status = from_status
        self.to_status = to_status
        self.allowed = sorted(allowed)
        advice = advice or f"from {from_status} it can become: {listed(self.allowed)}"
        super().__init__(f"{id} is {from_status} and cannot {self._verb} {to_status}; {advice}")


class NotChangeable(InvalidTransition):
    """The observation's status does not allow this."""

    _verb = "be"


class Claimed(Conflict):
    """Another connection holds a live claim."""

    def __init__(self, id: str, by: str, until: datetime) -> None:
        super().__init__(
            f"{id} is claimed by {by} until {until.isoformat(timespec='milliseconds')}; only the connection that"
            " claimed it may use its fence. Wait until then or choose another; a holder that was restarted must connect"
            " with the same source and instance"
        )
        self.id = id
        self.by = by
        self.until = until


class NotClaimed(Conflict):
    """The observation is not claimed, so there is nothing to release."""

    def __init__(self, id: str) -> None:
        super().__init__(f"{id} is not claimed, or the claim has ended; there is nothing to release")
        self.id = id


class NotReady(Conflict):
    """The observation cannot be claimed yet: another one blocks it, or it is scheduled for later."""

    def __init__(self, id: str, why: str) -> None:
        super().__init__(f"{id} is not ready: {why}; `ready` lists what can be claimed")
        self.id = id


class StaleFence(Conflict):
    """The claim of this fence has ended, or no claim has had this fence."""

    def __init__(self, id: str, fence: int, actual: int) -> None:
        if fence > actual:
            latest = f"the latest is {actual}" if actual else "it was never claimed"
            super().__init__(f"{id}: no claim has fence {fence} ({latest}); pass the fence of your claim, or claim it")
        else:
            super().__init__(
                f"{id}: the claim with fence {fence} has ended (the latest fence is {actual}); read it, and claim it "
                "again if it is still open"
            )
        self.id = id
        self.fence = fence
        self.actual = actual


class PageFull(Conflict):
    """The page is full, and no observation may be displaced."""

    def __init__(self, page: str, limit: int) -> None:
        noun = "observation" if limit == 1 else "observations"
        super().__init__(
            f"page {page!r} has {limit} open {noun}, the limit, and none may be displaced; those that wait for"
            " review count too, as they may become active again; resolve some or raise max_observations"
        )
        self.page = page
        self.limit = limit


class KeyHeld(Conflict):
    """Another open observation has the dedupe key."""

    def __init__(self, id: str, key: str, holder: str) -> None:
        super().__init__(
            f"{id} cannot be reopened: {holder} is open with the same dedupe_key {key!r}; close that one first"
        )
        self.id = id
        self.key = key
        self.holder = holder


class EventIdReused(Conflict):
    """The event id was used before, with other arguments or without another event of its batch."""

    event_id: str

    def __init__(self, event_id: str, new: str | None = None) -> None:
        reason = " with other arguments; use a new id"
        if new is not None:
            reason = f", but {new!r}, of the same batch, was not; send the new items in a batch of their own"
        super().__init__(f"event id {event_id!r} was used before{reason}")
        self.event_id = event_id


class SessionOver(Conflict):
    """The session has ended; its memories are archived and it takes no new ones."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} has ended and its memories are archived; start another session, and read this one"
            " with history() or as_of()"
        )
        self.session = session


class SessionExists(Conflict):
    """A session of this name exists."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} already exists; choose another name")
        self.session = session


class TypeInUse(Conflict):
    """A type cannot be removed or change its lifecycle while observations of it are open."""

    def __init__(self, name: str, open_count: int) -> None:
        found, them = ("1 open observation", "it") if open_count == 1 else (f"{open_count} open observations", "them")
        super().__init__(
            f"type {name!r} has {found}; resolve or archive {them} first, or keep it with its lifecycle and add a type "
            "of another name"
        )
        self.type = name
        self.open = open_count


class NotEmpty(Conflict):
    """Events can be imported only into an empty bus, or one whose import was interrupted."""

    def __init__(self, shard: int) -> None:
        super().__init__(
            f"shard {shard}: the bus already has events; import into a new bus, under an unused name (--bus)"
        )


class RebuildHeld(Conflict):
    """Someone else is rebuilding the state, or has taken over the rebuild."""

    def __init__(self, shard: int, holder: str) -> None:
        super().__init__(f"shard {shard}: {holder} is rebuilding the state; wait until that is done")
        self.holder = holder


class SubscriptionMismatch(Conflict):
    """The subscription is in use with other filters."""

    def __init__(self, name: str, holder: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"subscription {name!r} is in use by {holder} with the filters {theirs}, not {ours};"
            " use the same filters, or another name"
        )
        self.name = name
        self.holder = holder


class SubscriptionHeld(Conflict):
    """The subscription has a consumer, which prevents this."""

    def __init__(self, name: str, holder: str, verb: str) -> None:
        super().__init__(f"subscription {name!r} is in use by {holder} and cannot {verb}; stop that consumer first")
        self.name = name
        self.holder = holder


class LeaseLost(Conflict):
    """The consumer lost its lease; another may have taken over, and unacked events are delivered again."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"subscription {name!r}: this consumer's lease has ended, and the events it did not ack are delivered to"
            " the current holder; continue with the next delivery"
        )
        self.name = name


class NotDelivered(Conflict):
    """The event that was acked or failed is not out for delivery."""

    def __init__(self, name: str, position: object) -> None:
        super().__init__(
            f"subscription {name!r}: the event at {position} is not, or no longer, delivered to this consumer: it was"
            " acked, or it failed. Ack each delivery once, after handling it"
        )
        self.name = name


class TooManyUnacked(Conflict):
    """The consumer takes deliveries without acking any."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"subscription {name!r}: {count:,} deliveries are not acked; ack each after handling it")
        self.name = name


class ArchiveBusy(Conflict):
    """Another archiver is archiving this log."""

    def __init__(self, shard: int, who: str) -> None:
        super().__init__(
            f"shard {shard}: {who} is archiving it, or was a few seconds ago; wait, or stop that archiver first"
        )
        self.shard = shard
        self.who = who


class IndexFailed(ScratchbusError):
    """The temporary index of facts cannot be written or read. Nothing is lost: the next call makes it again."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the temporary index of facts failed: {problem}; free space where $TMPDIR is, and try again")


class FilesUnavailable(ScratchbusError):
    """The directory of private files cannot be read or written: no space, no permission, or in use by someone else."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"{where}: {problem}; free space or fix the permissions, or choose another directory with the setting home"
        )
        self.where = where


class BusClosed(ScratchbusError):
    """The bus was closed, or its `with` block has ended. Nothing was written, unless the error has an `event_id`."""

    def __init__(self) -> None:
        super().__init__("this bus is closed; connect again, or close it later")


class ViewClosed(ScratchbusError):
    """The view is used outside its `with` block."""

    def __init__(self, page: str) -> None:
        super().__init__(f"this view of page {page!r} is not open; use it inside `with bus.view(…) as view:`")
