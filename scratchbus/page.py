"""A page as a blocking program uses it: one line per operation."""

# Generated from page_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from scratchbus.commands import add as adding
from scratchbus.commands import change
from scratchbus.commands import claim as claiming
from scratchbus.commands import erase as erasing
from scratchbus.commands import exposure as exposing
from scratchbus.commands import read as looking
from scratchbus.commands import refute as refuting
from scratchbus.commands import trace as tracing
from scratchbus.domain.events import Erased, Event
from scratchbus.domain.exposure import Exposure
from scratchbus.domain.observation import Claim, NewObservation, Observation
from scratchbus.domain.position import Position
from scratchbus.domain.trace import Consequences, Trace
from scratchbus.domain.values import Duration, check_page
from scratchbus.readmodel.rebuild import Progress
from scratchbus.readmodel.short_ids import whole_id
from scratchbus.timetravel import PastPage, When, as_of
from scratchbus.work import Host, Job, claim_next

Observations = list[Observation]  # inside a class with a method `list`, that name is taken
Events = list[Event]


class Page:
    """A named scope of a bus, in which order is total. Get it from `Bus.page`.

    Every write takes `event_id`, a caller's own id that makes a retry safe, and `fence`, the proof of a claim. A write
    that is refused leaves nothing behind: it raises InvalidInput for what is not acceptable, NotFound for what is not
    there, and a Conflict for what its state forbids, such as InvalidTransition, Claimed, StaleFence, EventIdReused.
    Every read sees what was acknowledged before it began, or raises Behind after `fresh_timeout`; with `stale_ok` it
    answers from what is folded. Anything may raise EngineError.
    """

    def __init__(self, bus: Host, name: str) -> None:
        self._bus = bus
        self.name = check_page(name)

    def _reads(self, stale_ok: bool) -> looking.AsItIs:
        return looking.as_it_is(self._bus.core, self.name, stale_ok)

    def add(
        self,
        type: str,
        content: str,
        *,
        source: str | None = None,
        owner: str | None = None,
        status: str | None = None,
        confidence: float | None = None,
        context: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        ttl: Duration | None = None,
        expires_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        dedupe_key: str | None = None,
        times: int = 1,
        evidence: Sequence[str] | None = None,
        remind_at: datetime | None = None,
        remind_on: Mapping[str, Any] | None = None,
        event_id: str | None = None,
        fence: int | None = None,
        **unknown: Any,
    ) -> Observation:
        """Add an observation; one that is open with the same `dedupe_key` is counted again and returned instead.

        `confidence` is from 0 to 1; `ttl` a number of seconds, "2h", "7d" or "never", and `expires_at` the same as a
        moment; `evidence` ids of observations that exist, on any page of the bus; content, context and metadata have up
        to 64 KiB, whole numbers in them 308 digits. On a full page the lowest and oldest gives way, and if none may, it
        raises PageFull. Raises UnknownType and InvalidField.
        """
        new = adding.new(
            type, content, source, owner, status, confidence, context, tags, ttl, expires_at, metadata, dedupe_key,
            times, evidence, remind_at, remind_on, unknown,
        )  # fmt: skip
        return self._bus.converse(adding.add(self._bus.core, self.name, new, event_id, fence))

    def add_many(self, items: Sequence[NewObservation], *, event_id: str | None = None) -> Observations:
        """Add up to 1,000 observations in one atomic batch, and return them in that order. Raises as `add` does."""
        return self._bus.converse(adding.add_many(self._bus.core, self.name, items, event_id))

    def get(self, id: str, *, stale_ok: bool = False) -> Observation | None:
        """Return an observation, or None when it is not on the page. Raises InvalidId."""
        return self._bus.converse(looking.get_one(self._reads(stale_ok), id))

    def list(
        self,
        *,
        type: str | None = None,
        status: str | Collection[str] | None = None,
        owner: str | None = None,
        source: str | None = None,
        tags: str | Sequence[str] | None = None,
        text: str | None = None,
        context: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        limit: int | None = 100,
        after: Observation | Position | str | None = None,
        stale_ok: bool = False,
    ) -> Observations:
        """Return the observations that match everything given, newest first; `after` is the last item seen before.

        Type, tags and owner are indexed; status and source are looked at on the way; `text` (in the content, any
        case) and `context` read every observation that the rest leaves. `since` is about `created_at`. Raises
        InvalidField, UnknownType, and NotFound for an `after` that is not on the page.
        """
        wanted = looking.filter_of(type, status, owner, source, tags, text, context, since)
        return self._bus.converse(looking.list_all(self._bus.core, self._reads(stale_ok), wanted, limit, after))

    def active(self, limit: int | None = None, *, stale_ok: bool = False) -> Observations:
        """Return the active observations by priority, then newest first."""
        return self._bus.converse(looking.list_active(self._reads(stale_ok), limit))

    def update(
        self,
        id: str,
        /,
        *,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
        **changes: Any,
    ) -> Observation:
        """Replace content, status, owner, confidence, context, tags, metadata or expires_at.

        With `expected_version` it raises VersionConflict when it has moved on. Raises UnknownField and ReadOnlyField.
        """
        return self._bus.converse(
            change.update(self._bus.core, self.name, id, changes, expected_version, event_id, fence)
        )

    def review(
        self,
        id: str,
        *,
        reason: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Send it back for review: it stays open, but is not active. Raises InvalidTransition, VersionConflict."""
        return self._bus.converse(
            change.transition(self._bus.core, self.name, id, "review", reason, expected_version, event_id, fence)
        )

    def resolve(
        self,
        id: str,
        *,
        reason: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Close it: what it said has been dealt with. Raises InvalidTransition, Claimed, VersionConflict."""
        return self._bus.converse(
            change.transition(self._bus.core, self.name, id, "resolve", reason, expected_version, event_id, fence)
        )

    def archive(
        self,
        id: str,
        *,
        reason: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Put it away for good. Raises InvalidTransition, Claimed, VersionConflict."""
        return self._bus.converse(
            change.transition(self._bus.core, self.name, id, "archive", reason, expected_version, event_id, fence)
        )

    def reopen(
        self,
        id: str,
        *,
        reason: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Make it active again. Raises InvalidTransition, PageFull, and KeyHeld when another has its dedupe key."""
        return self._bus.converse(
            change.transition(self._bus.core, self.name, id, "reopen", reason, expected_version, event_id, fence)
        )

    def clear_resolved(self, ids: Sequence[str], *, event_id: str | None = None) -> None:
        """Take resolved observations off the page, all or none; their history stays. One id may be given bare.

        Raises InvalidTransition for one that is not resolved, and TooLarge for more than 1,000.
        """
        return self._bus.converse(change.clear_resolved(self._bus.core, self.name, ids, event_id))

    def claim(
        self,
        id: str,
        *,
        by: str | None = None,
        ttl: Duration = "30s",
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Claim:
        """Take an open observation for a while; with `fence`, prolong one's own claim.

        `ttl` is a number of seconds, or "30s", "10m" …; it has an end. Raises Claimed, StaleFence, InvalidTransition.
        """
        return self._bus.converse(claiming.claim(self._bus.core, self.name, id, by, ttl, event_id, fence))

    def claim_next(
        self,
        *,
        types: str | Collection[str] | None = None,
        tags: str | Collection[str] | None = None,
        by: str | None = None,
        ttl: Duration = "30s",
        event_id: str | None = None,
    ) -> Job | None:
        """Claim the active observation of the highest priority, newest first, that nobody holds; None if there is none.

        It has one of the types, and all the tags. The claim is not prolonged by itself. Raises UnknownType.
        """
        make = partial(Job, self._bus, self.name, ttl)
        return self._bus.converse(claim_next(make, self._bus.core, self.name, types, tags, by, ttl, event_id))

    def release(
        self, id: str, *, by: str | None = None, event_id: str | None = None, fence: int | None = None
    ) -> Observation:
        """Give a claimed observation back. Raises NotClaimed, Claimed by another, StaleFence."""
        return self._bus.converse(claiming.release(self._bus.core, self.name, id, by, event_id, fence))

    def link(self, id: str, action: str, *, event_id: str | None = None, fence: int | None = None) -> Observation:
        """Record that this action was taken because of it: a text of the caller's, found again by `trace`."""
        return self._bus.converse(claiming.link(self._bus.core, self.name, id, action, event_id, fence))

    def refute(self, id: str, *, reason: str, event_id: str | None = None, fence: int | None = None) -> Observation:
        """Archive it because it is not true; what is open and rests on it goes to review, on every page.

        Raises InvalidField without a reason, and NotChangeable for what is archived already.
        """
        return self._bus.converse(refuting.refute(self._bus.core, self.name, id, reason, event_id, fence))

    def erase(self, id: str, *, reason: str, event_id: str | None = None) -> Erased:
        """Take out of the log all events about it, and out of everything that was made of them; return the tombstone.

        The tombstone says who erased it, why, when, and which positions. Nothing else changes, and nothing brings it
        back but a backup. Erasing it again changes nothing, and ends what was cut short. Raises NotFound, Conflict, or
        RebuildHeld while someone rebuilds.
        """
        return self._bus.converse(erasing.erase(self._bus.core, self.name, id, reason, event_id))

    def trace(self, action: str) -> Trace:
        """Return what led to an action: the observations linked to it, and the evidence they rest on.

        Raises NotFound when nothing on the page is linked to it.
        """
        return self._bus.converse(tracing.trace(self._bus.core, self.name, action))

    def consequences(self, id: str) -> Consequences:
        """Return what it led to: what rests on it, the actions linked to these, and the events it caused.

        Raises NotFound for what never was on the page.
        """
        return self._bus.converse(tracing.consequences(self._bus.core, self.name, id))

    def exposure(self, id: str) -> Exposure:
        """Return who has had it in a context, when and in which version, and the actions they linked to anything since.

        Known is what was assembled with `record=True`. Raises NotFound for what never was on the page.
        """
        return self._bus.converse(exposing.exposure(self._bus.core, self.name, id))

    def evidence(self, id: str) -> dict[str, Observation]:
        """Return what it rests on, directly or not, by id: observations of this page, and of others.

        Evidence that is no longer on any page is left out. Raises NotFound for what is not on this page.
        """
        return self._bus.converse(tracing.evidence(self._bus.core, self.name, id))

    def whole_id(self, text: str) -> str:
        """Return the whole id that a text stands for: an id, or at least the last 6 characters of one, in any case.

        These are looked up among all observations that were ever on the page. Raises InvalidId for a text that is not
        an id or fits several, and NotFound when no id ends in it.
        """
        return self._bus.converse(whole_id(self._bus.core.log, self.name, text))

    def history(self, id: str) -> Events:
        """Return the events about it, oldest first; also when it has left the page.

        Raises NotFound for what never was on it, and PositionLost when some are no longer in the log.
        """
        return self._bus.converse(looking.list_history(self._bus.core, self.name, id))

    def as_of(
        self, when: When, without_sources: str | Collection[str] = (), *, progress: Progress | None = None
    ) -> PastPage:
        """Return the page as it was at a position or time; a batch, being atomic, has happened as a whole or not yet.

        With `without_sources` it is the page as it would have been without what these published and all that rested on
        it: the further events of what is then not there, what they caused, what has it as evidence, and so on. That
        reads the whole log up to then, of all pages; `progress` is told how many events are read, and of how many. A
        text is a position or ISO 8601; a naive time counts as UTC. Raises InvalidPosition for what is none or in the
        future, LogRewound for what the log does not have, and PositionLost for what it no longer has.
        """
        past = self._bus.converse(as_of(self._bus.core, self.name, when, without_sources, progress))
        return PastPage(self._bus, past)
