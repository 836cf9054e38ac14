"""Events to append: what has to hold for each, and what the append script answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar

from pydantic_core import to_json

from scratchbus.domain.events import Event
from scratchbus.domain.lifecycle import Lifecycle
from scratchbus.domain.position import Position, moment
from scratchbus.engine.scripts import Constants
from scratchbus.errors import (
    Claimed,
    Conflict,
    EventIdReused,
    InvalidTransition,
    KeyHeld,
    LogBlocked,
    NotChangeable,
    NotClaimed,
    NotFound,
    PageFull,
    ScratchbusError,
    SessionOver,
    StaleFence,
    VersionConflict,
)
from scratchbus.eventlog.codec import encode_body
from scratchbus.eventlog.layouts import encode_tags
from scratchbus.projections.session import PAGES as SESSIONS
from scratchbus.telemetry.counters import counts

E = TypeVar("E", bound=Event)

_CLASS = {"open": "o", "closed": "c", "final": "f"}

Op = Literal["a", "u", "s", "x", "n", "d", "c", "p", "e", "l", "g", "r"]

OPS: Final[Mapping[str, Op]] = {
    "ADD": "a",  # takes room and, unless `argument` is "", a key: "<length of the body of repeated>:<body><key>"
    "UPDATE": "u",  # not when final, nor while someone else than `argument` holds a live claim
    "CHANGE_STATUS": "s",  # guarded like UPDATE
    "SETTLE": "x",  # a status by time or refutation: no claim and no passed expiry stops it; with `argument`
    # "<stream id>:<ids>" it is refused when something on the page was said since then to rest on one of these
    "NOTE": "n",  # no guard but existence
    "CLEAR": "d",  # off the page for good; guarded like NOTE
    "CLAIM": "c",  # `argument` is "<ttl ms>:<holder>", where the holder is a name or "<name>#<owner token>"
    "LAPSE": "l",  # of the claim with this `fence`
    "PICK": "p",  # claims, alone in its batch, the first free one in the order of the open set, of the types in
    # `allowed` and with all `tags`; `argument` is "<least priority>:<score to look below, or "">:<stream id>:<ttl
    # ms>:<holder>". What the owner token of this connection holds is picked too, and its claim lapses, if nothing
    # happened to it after that stream id
    "END_CLAIM": "e",  # `argument` is "<ms in which it is not to be picked>:<1 if this was no attempt, else 0>:<name>"
    "PUT": "g",  # a versioned subject without lifecycle; not when the subject `argument` of the page is final. One
    # that ends in "_" gets the time (ms) behind it, or the next that is free
    "ERASE": "r",  # see append_lua/erasing.lua
}
"""How an event is guarded, by the name that Lua has for it."""


class Guarded(NamedTuple):
    """What the append script takes of one event; "" where a field says nothing.

    `digest` is "<digest> <who wrote it, as JSON>" of an id that the caller chose. `version` is "new" or a number.
    `allowed` are statuses and `tags` are tags, as ",a,b,". `status_class` is o, c or f. `priority` is that of what is
    added. `expires` and `wake` are "0" for never, "+ms" from now, or ms. `argument` belongs to the op.
    """

    id: str
    digest: str
    subject: str
    kind: str
    type: str
    body: bytes
    op: Op
    version: str | int
    allowed: str
    status: str
    status_class: str
    priority: str | int
    expires: str
    wake: str
    argument: str
    fence: str | int
    tags: str


GUARDED: Final[Constants] = {
    "WIDTH": str(len(Guarded._fields)),
    **{name.upper(): str(number) for number, name in enumerate(Guarded._fields)},
    **{name: f"'{op}'" for name, op in OPS.items()},
}
"""What the append script knows of `Guarded`: the number of each field, counted from 0, and the ops by their names."""


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

    def guarded(self) -> Guarded:
        """Return what the append script takes."""
        event = self.event
        version = "" if self.version is None else "new" if self.version == 0 else self.version
        return Guarded(
            id=event.id,
            digest=f"{self.digest} {to_json(event.by).decode()}" if self.digest else "",
            subject=event.subject,
            kind=event.kind,
            type=event.type,
            body=self.body or encode_body(event),
            op=self.op,
            version=version,
            allowed=f",{','.join(self.allowed)}," if self.allowed is not None else "",
            status=self.status,
            status_class=_CLASS[self.status_class] if self.status else "",
            priority="" if self.priority is None else self.priority,
            expires=self.expires,
            wake=self.wake,
            argument=self.argument,
            fence="" if self.fence is None else self.fence,
            tags="" if self.tags is None else encode_tags(self.tags),
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


class Written(NamedTuple):
    """What became of one write. One that mode "each" skipped has a position without `seq`, and the reason as kind."""

    position: Position
    version: int
    kind: str
    subject: str
    fence: int

    def placed(self, event: E) -> E:
        """Return the event of this write as it is in the log."""
        ms, seq, shard = self.position
        return event.placed(subject=self.subject, ms=ms, seq=seq, shard=shard)


class Idle(NamedTuple):
    """Why nothing was picked: what is free has less than the least priority, or something may be free at `soonest`.

    Times are ms, 0 for never; `priority` is -1 when nothing is free. `below` is the score to look on below, if any.
    """

    now: int
    soonest: int
    below: str
    priority: int


class Appended(NamedTuple):
    """The outcome of an append. `recalled`: the events were in the log before, and only their positions are known."""

    written: list[Written]
    recalled: list[Position] | None = None
    idle: Idle | None = None


def read_reply(shard: int, page: str, room: int, writes: list[Write], reply: list[Any]) -> Appended | None:
    """Return what became of these writes; None for a reply that this code does not know.

    Raises what the first refused event was refused for, or LogBlocked.
    """
    match reply[0]:
        case b"written":
            _, ms, *rows = reply
            written = [
                Written(Position(ms, seq, shard), version, kind.decode(), subject.decode(), fence)
                for seq, version, kind, subject, fence in zip(*[iter(rows)] * 5, strict=True)
            ]
            return Appended(written)
        case b"added":
            _, ms, first = reply
            written = [
                Written(Position(ms, seq, shard), 1, write.event.kind, write.event.subject, 0)
                for seq, write in enumerate(writes, first)
            ]
            return Appended(written)
        case b"known":
            return Appended([], [_position(row, shard) for row in reply[1:] if row])
        case b"refused" if reply[2] == b"idle":
            now, soonest, below, priority = reply[3:]
            return Appended([], idle=Idle(now, soonest, below.decode(), priority))
        case b"refused" if reply[2] == b"blocked":
            raise LogBlocked(shard, reply[3].decode())
        case b"refused":
            index = reply[1] - 1
            _refuse(page, room, writes[index], index, len(writes), reply[2:])
    return None


def _position(row: bytes, shard: int) -> Position:
    return Position.parse(row.decode())._replace(shard=shard)


def _refuse(page: str, room: int, write: Write, index: int, total: int, why: list[object]) -> NoReturn:
    reason, *details = [part.decode() if isinstance(part, bytes) else part for part in why]
    error = refusal(page, room, write, str(reason), details)
    error.index = index  # type: ignore[attr-defined]  # which item of a batch
    counts.refused[type(error).__name__] += 1
    if total > 1:
        error.args = (f"item {index + 1} of {total}: {error}; nothing was written",)
    raise error
