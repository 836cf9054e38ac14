"""The events of a page's observations, of a bus's types and relations, and of contexts.

They are apart from those of the memories, which most programs never meet: their classes take a tenth of the time in
which a short program starts.
"""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from datetime import datetime
from typing import Final, Literal, get_args

from pydantic import Field

from scratchbus.domain.event import Event
from scratchbus.domain.observation_models import Changes, ObservationFields
from scratchbus.domain.values import Whole


class Added(ObservationFields, Event):
    """An observation was added to the page. `ttl` is in milliseconds; `source` is left out if it equals `by`."""

    kind: Literal["added"] = "added"
    source: str | None = None
    ttl: Whole | None = None
    times: int = 1

    __hash__ = Event.__hash__  # pydantic would hash all fields


class Updated(Event):
    """Some fields were replaced: `changes` maps a field to its new value."""

    kind: Literal["updated"] = "updated"
    changes: Changes


class Repeated(Event):
    """The same thing was seen again, `times` times; `ttl` (milliseconds) or `expires_at` sets its new expiry."""

    kind: Literal["repeated"] = "repeated"
    times: int = 1
    ttl: Whole | None = None
    expires_at: datetime | None = None
    evidence: list[str] = Field(default_factory=list)


ReasonCode = Literal[
    "reviewed", "resolved", "archived", "reopened", "changed", "expired", "auto_archived", "displaced", "refuted"
]


class StatusChanged(Event):
    """The status changed, for the reason named by `reason_code`.

    `archive_after` (milliseconds) says when a closed observation is archived automatically; `ttl` (milliseconds) is how
    long a reopened one lives from now on, 0 for no limit. `chain` is set if its evidence was refuted: the ids from the
    refuted observation to the one that it names as evidence; of a long chain, the first and the nearest. For a refuted
    observation, `seen_by` lists the sessions and agents that had it in their contexts, and `followed` the actions they
    have taken since; the last ones, if there are many.
    """

    kind: Literal["status_changed"] = "status_changed"
    status: str
    status_class: str
    reason_code: ReasonCode
    reason: str | None = None
    archive_after: Whole | None = None
    ttl: Whole | None = None
    chain: list[str] = Field(default_factory=list)
    seen_by: list[str] = Field(default_factory=list)
    followed: list[str] = Field(default_factory=list)


class Claimed(Event):
    """`holder` claimed the observation for `ttl` milliseconds; with `fence`, it renewed its claim.

    `picked` says that it was picked as the next job, which counts as an attempt; `work` is the name of the work.
    `owner` is the token of the only connection that may use the fence; None in events from before claims had owners.
    """

    kind: Literal["claimed"] = "claimed"
    holder: str
    ttl: Whole
    fence: Whole | None = None
    picked: bool = False
    work: str | None = None
    owner: str | None = Field(default=None, pattern=r"^[0-9a-f]{1,64}$")


class Released(Event):
    """The holder released the observation, which is not picked again within `backoff` milliseconds.

    `untried` says that it made no attempt; otherwise `reason` may say how the attempt failed.
    """

    kind: Literal["released"] = "released"
    backoff: Whole = 0
    untried: bool = False
    reason: str | None = None


class Lapsed(Event):
    """A claim expired."""

    kind: Literal["lapsed"] = "lapsed"


class Linked(Event):
    """An action was taken because of it."""

    kind: Literal["linked"] = "linked"
    action: str


class Due(Event):
    """A reminder fell due, at its time or by the event at position `trigger`, or a scheduled observation became active.

    A recurring one is due again at `next`.
    """

    kind: Literal["due"] = "due"
    trigger: str | None = None
    next: datetime | None = None


class Cleared(Event):
    """It was removed from the page; its history stays."""

    kind: Literal["cleared"] = "cleared"


class Erased(Event):
    """It was erased: the events at these positions (stream ids) were removed from the log for good.

    `version` is the subject's version after the erasure.
    """

    kind: Literal["erased"] = "erased"
    reason: str
    positions: list[str]
    version: Whole


class TypesChanged(Event):
    """The registry of observation types was replaced by this text (YAML)."""

    kind: Literal["types_changed"] = "types_changed"
    text: str


class RelationsChanged(Event):
    """The relations of facts were replaced by this text (YAML)."""

    kind: Literal["relations_changed"] = "relations_changed"
    text: str


class ContextRendered(Event):
    """A context was rendered for a session or an agent; `observations` are the versions of those in it, by id.

    `files` are the files whose text was in it, such as rules: the SHA-256 of each by path. The subject is `context_`
    and the viewer: `session:<id>`, or `agent:<name>`.
    """

    kind: Literal["context_rendered"] = "context_rendered"
    session: str | None = None
    agent: str | None = None
    observations: dict[str, Whole]
    files: dict[str, str] = Field(default_factory=dict)
    tokens: Whole


PageEvent = (
    Added
    | Updated
    | Repeated
    | StatusChanged
    | Claimed
    | Released
    | Lapsed
    | Linked
    | Due
    | Cleared
    | Erased
    | TypesChanged
    | RelationsChanged
    | ContextRendered
)

PAGE_EVENTS: Final[dict[str, type[Event]]] = {each.model_fields["kind"].default: each for each in get_args(PageEvent)}
"""The class of each of these kinds."""
