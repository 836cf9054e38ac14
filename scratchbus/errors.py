"""The one error tree of scratchbus.

Every message is one line that says what is wrong and what to do about it; what a program needs to react
is in attributes, never only in the text.

    ScratchbusError
    ├── InvalidInput            what was given is not acceptable; nothing was written
    │   ├── InvalidField        a field of an observation or event   (.field)
    │   │   ├── UnknownField    a field nobody knows                 (.field, .known)
    │   │   ├── ReadOnlyField   id, created_at, source …             (.field)
    │   │   └── TooLarge        over a limit                         (.field, .size, .limit)
    │   ├── UnknownType         a type that is not registered        (.type, .nearest, .known)
    │   ├── InvalidTTL · InvalidId · InvalidName · InvalidSource · InvalidPosition · InvalidURL
    │   ├── RegistryError       the types file                       (.file, .line, .key, .allowed)
    │   ├── RulesError          the logwatch or tools file           (.file, .line, .key)
    │   ├── SettingsError       a setting
    │   │   └── SettingsFileError   the settings file             (.file, .line, .key, .allowed)
    │   └── ShardsMismatch      the bus was created with other shards (.expected, .actual)
    ├── NotFound                no such observation, page, file …
    │   └── FileGone            a log file that is not there          (.path)
    ├── Conflict                the state of the bus forbids it; nothing was written
    │   ├── VersionConflict     (.expected, .actual)
    │   ├── InvalidTransition   (.from_status, .to_status, .allowed, .id)
    │   │   └── NotChangeable   in this status it cannot be done
    │   ├── KeyHeld             another has the dedupe key by now    (.id, .key, .holder)
    │   ├── Claimed             someone else holds it                (.by, .until, .id)
    │   ├── NotClaimed          nobody holds it                      (.id)
    │   ├── StaleFence          the claim this fence came from is over (.fence, .actual, .id)
    │   ├── PageFull            no room, and nothing may give way    (.page, .limit)
    │   ├── EventIdReused       same event id, other arguments       (.event_id)
    │   ├── TypeInUse           a type cannot go while it is open    (.type, .open)
    │   ├── SubscriptionMismatch    in use with other filters        (.name, .holder)
    │   ├── SubscriptionHeld    a consumer is at it                  (.name, .holder)
    │   ├── LeaseLost           another consumer may have taken over (.name)
    │   ├── NotDelivered        it was not handed out, or no longer  (.name)
    │   └── TooManyUnacked      too many were handed out and not acked (.name)
    ├── EngineError             the Redis or Valkey server
    │   ├── EngineUnreachable · EngineAuth · EngineTooOld · EngineReadOnly · EngineFull · EngineLoading
    │   ├── EngineMissing       there is no server binary to start
    │   ├── EngineNotStarted    the embedded server could not be started
    │   ├── EngineMisconfigured the server is not set up for what was asked
    │   ├── EngineForbidden     the server's ACL forbids it
    │   ├── NotReplicated       written, but on too few replicas     (.copies, .wanted)
    │   └── ForeignData         the data directory is another engine's
    ├── BusClosed               the bus was closed by its own program
    ├── ViewClosed              the view was closed, or never entered
    └── LogError                reading the log
        ├── Behind              a read could not catch up within fresh_timeout
        ├── PositionLost        the log was trimmed past the position
        ├── LogRewound          the log is not the one that was read before
        ├── LogGap              a position is missing that no trim or erasure explains
        └── CodeTooOld          an event of a newer schema than this code knows
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from reprlib import Repr

_LONGEST = 80  # characters of a value that a message shows
_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = _LONGEST
_short.maxlevel = 2


def shown(value: object) -> str:
    """Return a value as messages quote it: as Python writes it, a long one shortened in its middle."""
    if isinstance(value, int) and value.bit_length() > sys.int_info.default_max_str_digits:
        return "a number beyond all measure"  # Python refuses to write it
    return _short.repr(value).replace("\n", " ")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


class ScratchbusError(Exception):
    """Anything scratchbus raises on purpose."""


# -- input ---------------------------------------------------------------------------------------------------------


class InvalidInput(ScratchbusError, ValueError):
    """What was given is not acceptable. Nothing was written."""


class InvalidField(InvalidInput):
    """A field has a value it cannot have."""

    def __init__(self, field: str, problem: str) -> None:
        is_plain = len(field) <= _LONGEST and field.isprintable()
        super().__init__(f"{field if is_plain else shown(field)}: {problem}")
        self.field = field


class UnknownField(InvalidField):
    """A field nobody knows was given."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        self.known = sorted(known)
        super().__init__(field, f"unknown field; use one of: {_listed(self.known)}")


class ReadOnlyField(InvalidField):
    """A field was given that is set once and never changes."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        super().__init__(field, f"cannot be updated; these can: {_listed(known)}")


class TooLarge(InvalidField):
    """A value is over its limit."""

    def __init__(self, field: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(field, f"{size:,} {unit} is over the limit of {limit:,}; shorten it or raise the limit")
        self.size = size
        self.limit = limit


class UnknownType(InvalidInput):
    """An observation type that the registry does not have."""

    def __init__(self, name: str, known: Iterable[str], nearest: str | None) -> None:
        self.type = name
        self.known = sorted(known)
        self.nearest = nearest
        hint = f"did you mean {nearest!r}? " if nearest else ""
        super().__init__(
            f"unknown observation type {shown(name)}; {hint}known: {_listed(self.known)}"
            " (add a type with `scratchbus types push FILE`)"
        )


class InvalidTTL(InvalidInput):
    """A duration that cannot be read, or is not positive."""


class InvalidId(InvalidInput):
    """An id that is not a ULID, or a suffix that fits several."""


class InvalidName(InvalidInput):
    """The name of a bus or page has characters it cannot have."""


class InvalidSource(InvalidInput):
    """A source that does not match the pattern of sources."""


class InvalidPosition(InvalidInput):
    """A position or token that cannot be read."""


class InvalidURL(InvalidInput):
    """An engine URL that cannot be read."""


class _FileError(InvalidInput):
    """A YAML file says something it may not."""

    def __init__(
        self, file: str, line: int | None, key: str | None, problem: str, allowed: Iterable[str] | None = None
    ) -> None:
        self.file = file
        self.line = line
        self.key = key
        self.allowed = sorted(allowed) if allowed is not None else None
        where = file if line is None else f"{file}:{line}"
        text = f"{where}: {key}: {problem}" if key else f"{where}: {problem}"
        if self.allowed is not None:
            text += f"; allowed: {_listed(self.allowed)}"
        super().__init__(text)


class RegistryError(_FileError):
    """The file of observation types is wrong, at this line and key."""


class RulesError(_FileError):
    """A rules or tools file is wrong, at this line and key."""


class SettingsError(InvalidInput):
    """A setting has a value it cannot have."""


class SettingsFileError(_FileError, SettingsError):
    """The settings file is wrong, at this line and key."""


class ShardsMismatch(InvalidInput):
    """The bus was created with another number of shards."""

    def __init__(self, bus: str, expected: int, actual: int) -> None:
        super().__init__(
            f"bus {bus!r} has {actual} shards, not {expected}; drop the `shards` setting or set it to {actual}"
        )
        self.expected = expected
        self.actual = actual


# -- state ---------------------------------------------------------------------------------------------------------


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


class InvalidTransition(Conflict):
    """The lifecycle has no way from this status to that one."""

    def __init__(self, id: str, from_status: str, to_status: str, allowed: Iterable[str]) -> None:
        self.id = id
        self.from_status = from_status
        self.to_status = to_status
        self.allowed = sorted(allowed)
        super().__init__(
            f"{id} is {from_status} and cannot become {to_status}; from {from_status} it can become: "
            f"{_listed(self.allowed)}"
        )


class NotChangeable(InvalidTransition):
    """The observation is in a status in which this cannot be done to it."""

    def __init__(self, id: str, status: str, verb: str, allowed: Iterable[str]) -> None:
        super().__init__(id, status, verb, allowed)
        self.args = (f"{id} is {status} and cannot be {verb}; from {status} it can become: {_listed(self.allowed)}",)


class Claimed(Conflict):
    """Someone else holds a live claim."""

    def __init__(self, id: str, by: str, until: datetime) -> None:
        super().__init__(
            f"{id} is claimed by {by} until {until.isoformat(timespec='milliseconds')}; wait, or pass the claim's fence"
            f" (only {by} may prolong it)"
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

    def __init__(self, event_id: str) -> None:
        super().__init__(f"event id {event_id!r} was used before with other arguments; use a new id")
        self.event_id = event_id


class TypeInUse(Conflict):
    """A type cannot be removed or change its lifecycle while observations of it are open."""

    def __init__(self, name: str, open_count: int) -> None:
        super().__init__(f"type {name!r} has {open_count} open observations; resolve or archive them first")
        self.type = name
        self.open = open_count


class SubscriptionMismatch(Conflict):
    """Someone consumes the subscription, with other filters."""

    def __init__(self, name: str, holder: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"subscription {name!r} is in use by {holder} with the filters {theirs}, not {ours};"
            " use the same ones, or another name"
        )
        self.name = name
        self.holder = holder


class SubscriptionHeld(Conflict):
    """Someone consumes the subscription, so that this cannot be done to it."""

    def __init__(self, name: str, holder: str, verb: str) -> None:
        super().__init__(f"subscription {name!r} is in use by {holder} and cannot {verb}; end that consumer first")
        self.name = name
        self.holder = holder


class LeaseLost(Conflict):
    """The lease of a subscription ended, and another consumer may have taken over; what was unacked comes again."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"subscription {name!r}: this consumer's lease is over, and what it did not ack is delivered to whoever"
            " holds it now; go on with the next delivery"
        )
        self.name = name


class NotDelivered(Conflict):
    """An event was acked, or failed, that is not handed out."""

    def __init__(self, name: str, position: object) -> None:
        super().__init__(
            f"subscription {name!r}: the event at {position} is not handed out here, or no longer: it was acked, or it"
            " failed; ack each delivery once, after handling it"
        )
        self.name = name


class TooManyUnacked(Conflict):
    """A consumer goes on taking deliveries without acking any."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"subscription {name!r}: {count:,} deliveries are not acked; ack each after handling it")
        self.name = name


# -- engine --------------------------------------------------------------------------------------------------------


class EngineError(ScratchbusError):
    """The Redis or Valkey server cannot do its part."""


class EngineUnreachable(EngineError):
    """There is no answer from the server."""


class EngineAuth(EngineError):
    """The server refuses the user name or password."""


class EngineTooOld(EngineError):
    """The server's version is below what scratchbus needs."""


class EngineReadOnly(EngineError):
    """The server takes no writes."""


class EngineFull(EngineError):
    """The server is out of memory."""


class EngineLoading(EngineError):
    """The server is still loading its data."""


class EngineMissing(EngineError):
    """There is no server binary to start."""


class EngineNotStarted(EngineError):
    """The embedded server could not be started: its directory is unusable, or it gave up and its log says why."""


class EngineMisconfigured(EngineError):
    """The server is not set up for what was asked."""


class NotReplicated(EngineError):
    """The write is on the server, but on fewer replicas than `ack=replica` asks for."""

    def __init__(self, copies: int, wanted: int) -> None:
        super().__init__(
            f"written, but {copies} of {wanted} replicas have it; retry with the same event_id to wait again, or see"
            " whether the replicas are up"
        )
        self.copies = copies
        self.wanted = wanted


class EngineForbidden(EngineError):
    """The server's access list forbids it."""


class ForeignData(EngineError):
    """The data directory belongs to another or a newer engine."""


class BusClosed(ScratchbusError):
    """The bus was closed, or its `with` has ended; nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this bus is closed; connect again, or close it later")


class ViewClosed(ScratchbusError):
    """The `with` of a view has ended, or not yet begun."""

    def __init__(self, page: str) -> None:
        super().__init__(f"this view of page {page!r} is not open; use it inside `with bus.view(…) as view:`")


# -- the log -------------------------------------------------------------------------------------------------------


class LogError(ScratchbusError):
    """Reading the log cannot go on as asked."""


class Behind(LogError):
    """A read could not catch up with the log within `fresh_timeout`, or a stale one would be older than that."""


class PositionLost(LogError):
    """The log was trimmed past the position that was asked for."""


class LogRewound(LogError):
    """The log is not the one that was read before: flushed, replaced or rewound by a failover."""


class LogGap(LogError):
    """A position is missing that no trim and no erasure explains."""


class CodeTooOld(LogError):
    """An event has a newer schema than this code knows; upgrade scratchbus."""
