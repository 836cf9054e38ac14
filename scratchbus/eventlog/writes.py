"""Events to append, with their guards, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec import Struct

from scratchbus.domain.event import Event
from scratchbus.domain.lifecycle import Lifecycle
from scratchbus.domain.models import trusted
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Constants
from scratchbus.engine.steps import Wrote
from scratchbus.errors import TooLarge

E = TypeVar("E", bound=Event)

MAX_BATCH = 1_000
"""The most events of a batch."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""The most bytes of the bodies of its events."""

MAX_BODIES = MAX_BATCH_BYTES - 1024 * 1024
"""The most bytes of bodies to put into a batch; the rest is enough for ids and other fields."""

NEVER = -1
"""A version that no subject has, so that a write guarded on it only finds an earlier attempt."""

SPLIT_BATCH = "split it into several batches"
"""What to do with a larger one."""


class Op(StrEnum):
    """The guard of an event, by its name in Lua."""

    ADD = "a"  # takes room and, unless `argument` is "", a key: "<length of the body of repeated>:<body><key>"
    UPDATE = "u"  # not when final, nor while anyone but `argument` holds a live claim
    CHANGE_STATUS = "s"  # guarded like UPDATE
    SETTLE = "x"  # a status by time or refutation: no claim and no passed expiry stops it; with `argument`
    # "<stream id>:<ids>" it is refused when something on the page was said since then to rest on one of these
    NOTE = "n"  # the only guard is that the subject exists
    CLEAR = "d"  # off the page for good; guarded like NOTE
    CLAIM = "c"  # `argument` is "<ttl ms>:<holder>", where the holder is a name or "<name>#<owner token>"
    LAPSE = "l"  # of the claim with this `fence`
    PICK = "p"  # claims, alone in its batch, the first free one in the order of the open set, of the types in
    # `allowed` and with all `tags`; `argument` is "<least priority>:<score to look below, or "">:<stream id>:<length of
    # the hint>:<hint><ttl ms>:<holder>", with a hint that an earlier pick returned. What the owner token of this
    # connection holds is picked too, and its claim lapses, if nothing happened to it after that stream id
    END_CLAIM = "e"  # `argument` is "<ms in which it is not to be picked>:<1 if this was no attempt, else 0>:<name>"
    PUT = "g"  # a versioned subject without lifecycle; not when the subject `argument` of the page is final. One
    # that ends in "_" gets the time (ms) behind it, or the next that is free. With `argument` "<subject>:<stream id>" a
    # text is refused, as if its version were wrong, when one above or below its path was written after that id
    ERASE = "r"  # see append_lua/erasing.lua


class Guarded(NamedTuple):
    """A `Write` as the append script takes it; "" for an empty field.

    `digest` ends in the event's writer, as JSON. `version` is "new" or a number, `status_class` is o, c or f, `allowed`
    is a text as ",a,b,", and `tags` one as a head has it; its tags, or the part after them, may be left out and then
    stay unchanged.
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
    due_at: str
    argument: str
    fence: str | int
    tags: str
    not_before: str


class Addition(NamedTuple):
    """A `Write` as the script for additions takes it.

    `shape` is the rest of its head, "<life>|<tags>|<start>": when it expires, "" (never), "+ms" or ms; its tags, as a
    text as ",a,b,"; and the head up to the priority. Many events of a batch have the same one.
    """

    id: str
    subject: str
    shape: str
    body: bytes


ADDITION: Final[Constants] = {
    "ADDITION": ", ".join(Addition._fields),
    "ADDITION_WIDTH": str(len(Addition._fields)),
    "ADDITION_SUBJECT": str(Addition._fields.index("subject")),
    "SHAPE": r"'^([^|]*)|([^|]*)|(1|[^|]*|%a|([^|]*)|(%d+))$'",
}
"""The constants of the script for additions: the fields of `Addition`, and the pattern of a `shape`.

The pattern captures the life, the tags and the start, and in the start the type and the priority.
"""

GUARDED: Final[Constants] = {
    "WIDTH": str(len(Guarded._fields)),
    **{name.upper(): str(number) for number, name in enumerate(Guarded._fields)},
    **{name: f"'{op}'" for name, op in Op.__members__.items()},
}
"""The constants of the append script: the number of each field of `Guarded`, from 0, and the ops by name."""


def check_size(arguments: tuple[object, ...], count: int) -> None:
    """Raise TooLarge for more events, or more bytes, than a batch may have."""
    if count > MAX_BATCH:
        raise TooLarge("batch", count, MAX_BATCH, "events", SPLIT_BATCH)
    size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
    if size > MAX_BATCH_BYTES:
        raise TooLarge("batch", size, MAX_BATCH_BYTES, advice=SPLIT_BATCH)


class Ids(Struct, frozen=True, gc=False):
    """The ids of an observation and of the event that adds it.

    `batch_size` is the number of events whose ids derive from one id of their caller: all but the first have a number
    appended to it. It is 0 without such an id.
    """

    subject: str
    event: str
    batch_size: int = 0


class Draft(Struct, frozen=True, gc=False):
    """An event that is made on first use; most additions are appended without it.

    `fields` are the fields of its body that are not default.
    """

    cls: type[Event]
    id: str
    page: str
    subject: str
    type: str
    fields: dict[str, Any]

    @property
    def kind(self) -> str:
        """Its kind."""
        return _kind_of(self.cls)

    def event(self) -> Event:
        """Return the event."""
        envelope = {"id": self.id, "page": self.page, "subject": self.subject, "type": self.type}
        defaults = {name: default if make is None else make() for name, default, make in _defaults(self.cls)}
        return trusted(self.cls, {**defaults, **self.fields, **envelope})


@cache
def _kind_of(cls: type[Event]) -> str:
    return str(cls.model_fields["kind"].default)


@cache
def _defaults(cls: type[Event]) -> list[tuple[str, Any, Callable[[], Any] | None]]:
    """Return the optional fields of an event, each with its default or with what makes one.

    Pydantic's `get_default` inspects the signature of what makes a default, each time.
    """
    fields = cls.model_fields.items()
    return [(name, each.default, cast(Any, each.default_factory)) for name, each in fields if not each.is_required()]


class Write(Struct):
    """One event to append, what has to hold for it, and what it does to its head.

    `event_or_draft` is the event, or its draft, which has the same `id`, `subject`, `kind` and `type`; `event` is the
    event in any case. `digest` is that of the caller's arguments under an event id of its own, "" without one.
    `version` is 0 for a subject that must be new and None for any. `allowed` are the statuses it may follow, None for
    any. `priority` is that of an added observation, `argument` belongs to the op. `expires`, `due_at` and `not_before`,
    before which it is not picked, are "" (unchanged), "0" (never), "+ms" or ms. `body` is the encoded event, where it
    is known already. `is_plain` says of an addition that only a lack of room can prevent it. `tags` and `blocked_by`
    are the new ones, None if they do not change. `verb` and `lifecycle` explain a refusal.
    A retry may compute the fields, or changes, in `varying` otherwise, and lack the next event if `may_be_followed`.
    """

    event_or_draft: Event | Draft
    op: Op
    digest: str = ""
    version: int | None = None
    allowed: frozenset[str] | None = None
    status: str = ""
    status_class: str = ""
    priority: int | None = None
    expires: str = ""
    due_at: str = ""
    argument: str = ""
    fence: int | None = None
    tags: Collection[str] | None = None
    blocked_by: Collection[str] | None = None
    not_before: str = ""
    body: bytes = b""
    is_plain: bool = False
    verb: str = "changed"
    lifecycle: Lifecycle | None = None
    varying: frozenset[str] = frozenset()
    may_be_followed: bool = False

    @property
    def event(self) -> Event:
        """The event."""
        if isinstance(self.event_or_draft, Draft):
            self.event_or_draft = self.event_or_draft.event()
        return self.event_or_draft


class Written(Struct, frozen=True, gc=False):
    """The outcome of one write. One that mode "each" skipped has a position without `seq`, and the reason as kind."""

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
    """Why nothing was picked: the free ones have a lower priority than the least, or one may become free at `soonest`.

    Times are ms, 0 for never; `priority` is that of the first free one, -1 for none. `below` is the score below which
    the search continues, if it does. `hint` is for the next pick; see `Appended`.
    """

    now: int
    soonest: int
    below: str
    priority: int
    hint: str


class Appended(Struct, frozen=True, gc=False):
    """The outcome of an append. `recalled`: the events were in the log before, and only their positions are known.

    `wrote` is the first of these events that is in the log now. `displaced` has the ids displaced by each newcomer.
    `lacks_replicas`: too few replicas confirmed them in the time that was given.
    `hint` tells the next pick with the same types and tags where nothing is free, if that is worth knowing; the script
    checks that it still holds.
    """

    written: list[Written]
    recalled: list[Position] | None = None
    idle: Idle | None = None
    wrote: Wrote | None = None
    displaced: dict[str, tuple[str, ...]] = {}
    hint: str = ""
    lacks_replicas: bool = False
