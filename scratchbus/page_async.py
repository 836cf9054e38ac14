"""A page: one line per operation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Never, Unpack

from pydantic import BaseModel

from scratchbus.commands import add as additions
from scratchbus.commands import read
from scratchbus.commands.add_many import add_many
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.observation_models import NewObservation, ObservationPatch
from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import Position
from scratchbus.domain.representation import public_names
from scratchbus.domain.values import Duration, Moment, check_page
from scratchbus.projections.filters import Filter, FilterKeywords, filter_of, keywords_of
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from scratchbus import timetravel
    from scratchbus import work as workers
    from scratchbus.commands import bus_state as bus_state
    from scratchbus.commands import change, clear, execution
    from scratchbus.commands import claim as claims
    from scratchbus.commands import erase as erasure
    from scratchbus.commands import exposure as exposure_log
    from scratchbus.commands import refute as refutation
    from scratchbus.commands import trace as trace_queries
    from scratchbus.domain import events as event_kinds
    from scratchbus.domain import exposure as exposures
    from scratchbus.domain import trace as traces
    from scratchbus.readmodel import rebuild as rebuilds
    from scratchbus.readmodel import short_ids

Names = list[str]
Observations = list[Observation]  # inside a class with a method `list`, that name is taken


class AsyncPage:
    """A named scope of a bus in which order is total. Get it from `AsyncBus.page`.

    Every write takes `event_id`, an id the caller chooses to make a retry safe, and `fence`, the proof of a claim. A
    refused write changes nothing: it raises InvalidInput for bad arguments, NotFound, or a Conflict if the current
    state forbids it, such as InvalidTransition, Claimed, StaleFence or EventIdReused. A read sees every write
    acknowledged before it began, or raises Behind after `fresh_timeout`; with `stale_ok` it returns the state folded
    so far. Any operation may raise EngineError.
    """

    def __init__(self, bus: AsyncHost, name: str) -> None:
        self._bus = bus
        self.name = check_page(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._bus!r}>"

    def __dir__(self) -> Names:
        return public_names(self)

    def _stored(self, stale_ok: bool) -> read.StoredPage:
        core = self._bus.core
        return read.StoredPage(core.log, self.name, core.fresh._replace(stale_ok=stale_ok))

    async def add(
        self,
        type: str | BaseModel | Mapping[str, Any],
        content: str | BaseModel | None = None,
        *,
        source: str | None = None,
        owner: str | None = None,
        status: str | None = None,
        confidence: float | None = None,
        context: Mapping[str, Any] | BaseModel | None = None,
        tags: Sequence[str] | None = None,
        ttl: Duration | None = None,
        expires_at: Moment | None = None,
        metadata: Mapping[str, Any] | BaseModel | None = None,
        dedupe_key: str | None = None,
        times: int = 1,
        evidence: Sequence[str] | None = None,
        remind_at: Moment | None = None,
        remind_on: Mapping[str, Any] | None = None,
        blocked_by: Sequence[str] | None = None,
        not_before: Moment | None = None,
        every: str | None = None,
        event_id: str | None = None,
        fence: int | None = None,
        **unknown: Never,
    ) -> Observation:
        """Add an observation; if an open one has the same `dedupe_key`, count it again and return it.

        A `dedupe_key` is shared by all sources on the page: the open observation is returned whole, from any of them.
        Pass its type, content and keywords, or one argument: a NewObservation, a mapping with the same names, or a
        pydantic model that is the `payload_of` a type. Content, context and metadata may be pydantic models too.
        `confidence` is 0 to 1. `ttl` is a number of seconds, "2h", "7d" or "never"; `expires_at` sets the same as a
        time. `evidence` lists ids of observations on any page of the bus, not only this one; `evidence(id)` returns
        them, each with its page. `blocked_by` lists ids on this page: while one of them is open, the observation is not
        active and cannot be claimed. It becomes active at `not_before`, and its `ttl` counts from then. With `every`,
        an interval ("1h") or cron in UTC ("0 3 * * *"), it recurs: an expirer adds a copy for each slot, from
        `not_before` until `expires_at`; archive it to end the recurrence. Content, context and metadata hold up to 64
        KiB each; whole numbers in them have up to 308 digits. On a full page the oldest observation of the lowest
        priority is displaced. Raises PageFull if none may be displaced, UnknownType, UnknownField and InvalidField.
        """
        return await self._bus.converse(additions.add(self._bus.core, self.name, locals()))

    async def add_many(self, items: Sequence[NewObservation], *, event_id: str | None = None) -> Observations:
        """Add up to 1,000 observations in one atomic batch; return them in order. Raises the errors of `add`."""
        return await self._bus.converse(add_many(self._bus.core, self.name, items, event_id))

    async def get(self, id: str, *, stale_ok: bool = False) -> Observation | None:
        """Return an observation, or None if it is not on the page. Raises InvalidId."""
        steps = read.get_one(self._stored(stale_ok), id)
        if self._bus.core.settings.log_reads:
            return await self._bus.converse(exposure_log.logged(self._bus.core, self.name, steps))
        return await self._bus.converse(steps)

    async def list(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        type: str | None = None,
        status: str | Collection[str] | None = None,
        owner: str | None = None,
        source: str | None = None,
        tags: str | Sequence[str] | None = None,
        text: str | None = None,
        context: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        confidence: float | None = None,
        since: Moment | None = None,
        limit: int | None = 100,
        after: Observation | Position | str | None = None,
        stale_ok: bool = False,
    ) -> Observations:
        """Return the observations that match all filters, newest first; `after` is the last item of the previous call.

        At most `limit` are returned; `count` tells how many more match. `type`, `tags` and `owner` use indexes;
        `status` and `source` are checked on the way; `text` (in the content, any case), `context`, `metadata` (every
        name with that value) and `confidence` (at least this) scan every remaining observation. `since` compares
        `created_at`. A mapping `filters` stands for keywords of the same names. Raises InvalidField, UnknownField,
        UnknownType, and NotFound if `after` is not on the page.
        """
        if filters is not None:
            return await self.list(**keywords_of(filters, locals()))
        filter = Filter.parse(locals())
        steps = read.list_all(self._bus.core, self._stored(stale_ok), filter, limit, after)
        if self._bus.core.settings.log_reads:
            steps = exposure_log.logged(self._bus.core, self.name, steps)
        return await self._bus.converse(steps)

    async def count(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        after: Observation | Position | str | None = None,
        limit: int | None = 1_000,
        stale_ok: bool = False,
        **keywords: Unpack[FilterKeywords],
    ) -> int:
        """Return how many observations match the filters of `list`, at most `limit`.

        With `after`, the last item of a list that reached its limit, this counts the remaining matches.
        """
        filter = filter_of(filters, keywords)
        stored = self._stored(stale_ok)
        return len(await self._bus.converse(read.list_all(self._bus.core, stored, filter, limit, after)))

    async def counts(self, *, stale_ok: bool = False) -> read.PageCounts:
        """Return how many observations of each status and type there are, among the newest 10,000."""
        return await self._bus.converse(read.count_all(self._stored(stale_ok)))

    async def active(self, limit: int | None = None, *, stale_ok: bool = False) -> Observations:
        """Return the active observations by priority, then newest first."""
        steps = self._stored(stale_ok).active(limit)
        if self._bus.core.settings.log_reads:
            steps = exposure_log.logged(self._bus.core, self.name, steps)
        return await self._bus.converse(steps)

    async def ready(self, limit: int | None = None) -> Observations:
        """Return the observations that can be claimed now (active, not blocked, not claimed), in the order of `active`.

        `claim_next` hands them out in this order.
        """
        return await self._bus.converse(self._stored(False).ready(limit))

    async def update(
        self,
        id: str,
        /,
        patch: ObservationPatch | None = None,
        *,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
        release: bool = False,
        **changes: Unpack[ObservationPatch],
    ) -> Observation:
        """Replace fields: content, status, owner, confidence, context, tags, metadata, expires_at, blocked_by.

        Pass them as keywords, as one mapping `patch`, or both; a keyword overrides the mapping. `reason` says why the
        status changes. `not_before` moves the time when it becomes active or, if it recurs, its next slot; None makes
        it active now. `every` changes how often it recurs, from now or from the `not_before` given with it. `remind_at`
        moves a reminder. With `release` your claim ends in the same batch. If `expected_version` is given and is not
        the current version, VersionConflict is raised. Raises UnknownField, ReadOnlyField and InvalidField, and
        InvalidTransition for a status, or when scheduling an observation that is not open.
        """
        if patch is not None:
            changes = change.merged(patch, changes)
        return await self._bus.converse(execution.execute(self._bus.core, self.name, change.Update, locals()))

    async def review(
        self,
        id: str,
        *,
        reason: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Send it to review: it stays open, but is not active. Raises InvalidTransition, VersionConflict."""
        return await self._bus.converse(execution.execute(self._bus.core, self.name, change.Review, locals()))

    async def resolve(
        self,
        id: str,
        *,
        reason: str | None = None,
        action: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Close it as done; with an `action`, record that as `link` does, in the same batch.

        Raises InvalidTransition, Claimed, VersionConflict.
        """
        return await self._bus.converse(execution.execute(self._bus.core, self.name, change.Resolve, locals()))

    async def archive(
        self,
        id: str,
        *,
        reason: str | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Archive it for good. Raises InvalidTransition, Claimed, VersionConflict."""
        return await self._bus.converse(
            execution.execute(self._bus.core, self.name, change.ArchiveObservation, locals())
        )

    async def reopen(
        self,
        id: str,
        *,
        reason: str | None = None,
        ttl: Duration | None = None,
        expected_version: int | None = None,
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Observation:
        """Make it active again, for `ttl`, by default its previous time to live.

        A `ttl` starts over; "never" and a time set with `expires_at` stay, but the type's default replaces a time that
        has passed. Raises InvalidTransition, PageFull, InvalidTTL, and KeyHeld if another observation has its dedupe
        key.
        """
        return await self._bus.converse(execution.execute(self._bus.core, self.name, change.Reopen, locals()))

    async def clear_resolved(self, ids: Sequence[str], *, event_id: str | None = None) -> None:
        """Remove resolved observations from the page, all or none; their history stays. `ids` may be a single id.

        Raises InvalidTransition if one is not resolved, and TooLarge for more than 1,000.
        """
        return await self._bus.converse(clear.clear_resolved(self._bus.core, self.name, locals()))

    async def claim(
        self,
        id: str,
        *,
        by: str | None = None,
        ttl: Duration = "30s",
        event_id: str | None = None,
        fence: int | None = None,
    ) -> Claim:
        """Claim an open observation for `ttl`; with `fence`, renew your own claim.

        `ttl` is a number of seconds, or "30s", "10m"; "never" is refused. Raises Claimed, StaleFence,
        InvalidTransition.
        """
        return await self._bus.converse(claims.claim(self._bus.core, self.name, locals()))

    async def claim_next(
        self,
        *,
        types: str | Collection[str] | None = None,
        tags: str | Collection[str] | None = None,
        by: str | None = None,
        ttl: Duration = "30s",
        event_id: str | None = None,
    ) -> workers.AsyncJob | None:
        """Claim the unclaimed active observation with the highest priority, newest first; None if there is none.

        It has one of the types and all of the tags. The claim is not renewed automatically. Raises UnknownType.
        """
        make_job = partial(workers.AsyncJob, self._bus, self.name, ttl)
        steps = workers.claim_next(make_job, self._bus.core, self.name, types, tags, by, ttl, event_id)
        return await self._bus.converse(steps)

    async def release(
        self, id: str, *, by: str | None = None, event_id: str | None = None, fence: int | None = None
    ) -> Observation:
        """Release a claim. Raises NotClaimed, Claimed if another connection holds it, StaleFence."""
        return await self._bus.converse(execution.execute(self._bus.core, self.name, claims.Release, locals()))

    async def link(self, id: str, action: str, *, event_id: str | None = None, fence: int | None = None) -> Observation:
        """Record an action, 1 to 256 printable characters, taken because of it; `trace` finds the observation by it."""
        return await self._bus.converse(execution.execute(self._bus.core, self.name, claims.LinkAction, locals()))

    async def refute(
        self, id: str, *, reason: str, event_id: str | None = None, fence: int | None = None
    ) -> Observation:
        """Archive it as untrue; open observations on any page with it as evidence go to review.

        Raises InvalidField without a reason, and NotChangeable if it is already archived.
        """
        return await self._bus.converse(refutation.refute(self._bus.core, self.name, locals()))

    async def erase(self, id: str, *, reason: str, event_id: str | None = None) -> Erased:
        """Erase its events from the log, and everything derived from them; return the tombstone.

        The tombstone records who erased it, why, when, and at which positions. For a turn, a summary or a task of a
        session, the copies in forks are erased too, and for a private file, the file on this machine. Nothing else
        changes, and only a backup can restore the data. Erasing it again completes an interrupted erasure, and
        otherwise changes nothing. Raises NotFound, Conflict, or RebuildHeld during a rebuild; FilesUnavailable and
        errors of the archive once everything else is erased.
        """
        return await self._bus.converse(erasure.erase(self._bus.core, self.name, id, reason, event_id))

    async def trace(self, action: str) -> traces.Trace:
        """Return what led to an action: the observations linked to it, and their evidence.

        Raises NotFound if nothing on the page is linked to it.
        """
        return await self._bus.converse(trace_queries.trace(bus_state.BusState(self._bus.core), self.name, action))

    async def consequences(self, id: str) -> traces.Consequences:
        """Return its consequences: observations it is evidence for, actions linked to them, and events it caused.

        Raises NotFound if it was never on the page.
        """
        return await self._bus.converse(trace_queries.consequences(bus_state.BusState(self._bus.core), self.name, id))

    async def log_read(self, observations: Sequence[Observation]) -> None:
        """Record that these were read, for example from a view, if `log_reads` is set, like `get` and `list`."""
        if self._bus.core.settings.log_reads:
            await self._bus.converse(exposure_log.log_read(self._bus.core, self.name, observations))

    async def exposure(self, id: str) -> exposures.Exposure:
        """Return the agents that were shown it, when and in which version, and the actions they have linked since.

        Only contexts assembled with `record=True` count. Raises NotFound if it was never on the page.
        """
        return await self._bus.converse(exposure_log.exposure(bus_state.BusState(self._bus.core), self.name, id))

    async def evidence(self, id: str) -> dict[str, Observation]:
        """Return its direct and indirect evidence by id: observations of this page, and of others.

        Evidence that is no longer on any page is left out. Raises NotFound for an id that is not on this page.
        """
        return await self._bus.converse(trace_queries.evidence(bus_state.BusState(self._bus.core), self.name, id))

    async def whole_id(self, text: str) -> str:
        """Return the full id for an id, or for at least 6 characters of its end or beginning.

        Case is ignored. All observations that were ever on the page are searched. Raises InvalidId for a text that is
        not an id or matches several, and NotFound if it matches none.
        """
        return await self._bus.converse(short_ids.whole_id(self._bus.core.log, self.name, text))

    async def displaced(self, newcomer: Observation | Sequence[Observation]) -> Observations:
        """Return the observations displaced by one or several, given as `add`, `add_many` or `reopen` returned them.

        They are archived with the reason code "displaced". Right after an addition that displaced nothing, the engine
        is not asked again. Raises InvalidField for anything but observations, and PositionLost if the events have
        left the log.
        """
        return await self._bus.converse(read.list_displaced(self._bus.core, self.name, newcomer))

    async def history(self, id: str) -> event_kinds.Events:
        """Return its events, oldest first, also after it has left the page.

        Raises NotFound if it was never on the page, and PositionLost if some of its events have left the log.
        """
        return await self._bus.converse(read.list_history(self._bus.core, self.name, id))

    async def as_of(
        self,
        when: timetravel.When,
        without_sources: str | Collection[str] = (),
        *,
        progress: rebuilds.Progress | None = None,
    ) -> timetravel.AsyncPastPage:
        """Return the page at a position or a time; an atomic batch counts as a whole or not at all.

        With `without_sources`, return the page as it would have been without these sources: without their events, and
        without everything that has those as evidence, was caused by them, or happened to their observations, and so on.
        This reads the whole log of all pages up to then; `progress` is called with the number of events read and the
        total.

        A text is a position or a time: ISO 8601, in UTC unless it has a zone, or local time such as "14:02",
        "yesterday 14:02" or "10m ago". Raises InvalidPosition for anything else or for the future, LogRewound for a
        position that the log does not have, and PositionLost for one that it no longer has.
        """
        past = await self._bus.converse(timetravel.as_of(self._bus.core, self.name, when, without_sources, progress))
        return timetravel.AsyncPastPage(self._bus, past)
