"""The tools that add observations, and read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, cast

from pydantic import Field

import scratchbus
from scratchbus import EVENT_KINDS, Event, NewObservation, Observation
from scratchbus.errors import InvalidField, InvalidId, InvalidPosition, LogRewound, PositionLost, ScratchbusError
from scratchbus.mcp.answers import (
    AddedIds,
    AddedObservation,
    FoundObservation,
    Happened,
    News,
    Object,
    ObservationList,
    brief,
    happened,
    whole,
)
from scratchbus.mcp.observation_fields import (
    Confidence,
    Content,
    Id,
    Lasting,
    Metadata,
    NewItem,
    Owner,
    Times,
    Trigger,
    TypeName,
    When,
)
from scratchbus.mcp.paging import after_id, after_rank, cursor_of, first, no_cursor, position_in, search
from scratchbus.mcp.tool_parameters import Cursor, EventId, Limit, Tags
from scratchbus.mcp.toolbox import ADDS, READS, ToolGroup, tool

NEWS: Final = tuple(kind for kind in EVENT_KINDS if kind != "context_rendered")
"""The kinds of events that `changes_since` reports: all but `context_rendered`."""


class ObservationTools(ToolGroup):
    """The tools that add observations to one page, and read them."""

    @tool("Add an observation", ADDS)
    async def add_observation(
        self,
        type: TypeName,
        content: Content,
        status: str | None = None,
        confidence: Confidence = None,
        tags: Tags = None,
        owner: Owner = None,
        ttl: Lasting = None,
        expires_at: When = None,
        remind_at: When = None,
        remind_on: Trigger = None,
        context: Annotated[Object | None, Field(description='As {"task_id": "T-1"}.')] = None,
        metadata: Metadata = None,
        dedupe_key: Annotated[str | None, Field(description="Counts an open one again.")] = None,
        times: Times = 1,
        evidence: Annotated[list[str] | None, Field(description="Ids supporting it.")] = None,
        blocked_by: list[str] | None = None,
        not_before: When = None,
        event_id: EventId = None,
    ) -> AddedObservation:
        """Tell everyone on the page what you saw."""
        _check_reminder(type, remind_at or not_before, remind_on)
        added = await self._page.add(
            type, content, status=status, confidence=confidence, tags=tags, owner=owner, ttl=ttl,
            expires_at=expires_at, remind_at=remind_at, remind_on=remind_on, context=context, metadata=metadata,
            dedupe_key=dedupe_key, times=times, evidence=evidence, blocked_by=blocked_by, not_before=not_before,
            event_id=event_id,
        )  # fmt: skip
        answer = cast(AddedObservation, brief(added))
        await self._add_displaced(answer, added)
        return answer

    @tool("Add several observations", ADDS)
    async def add_observations(
        self,
        observations: Annotated[list[NewItem], Field(min_length=1, max_length=1000)],
        event_id: EventId = None,
    ) -> AddedIds:
        """Add up to 1,000 observations at once, all or none."""
        for index, each in enumerate(observations):
            _check_reminder(
                each.type, each.remind_at or each.not_before or each.every, each.remind_on, f"observations[{index}]."
            )
        items = [NewObservation(**each.model_dump(exclude_none=True)) for each in observations]
        added = await self._page.add_many(items, event_id=event_id)
        answer: AddedIds = {"ids": [each.id for each in added]}
        await self._add_displaced(answer, added)
        return answer

    async def _add_displaced(
        self, answer: AddedObservation | AddedIds, added: Observation | Sequence[Observation]
    ) -> None:
        """Add to an answer which observations made room, if any did; null if that cannot be read."""
        try:
            displaced = await self._page.displaced(added)
        except ScratchbusError:  # they are added all the same
            answer["displaced"] = None
        else:
            if displaced:
                answer["displaced"] = [each.id for each in displaced]

    @tool("See active observations", READS)
    async def get_active_observations(self, limit: Limit = 20, cursor: Cursor = None) -> ObservationList:
        """See what is going on: the page's active observations, by priority, then newest first."""
        view = await self._workspace.look()
        return await self._read(after_rank(cursor, view.active()), limit, cursor_of)

    @tool("Find observations", READS)
    async def list_observations(
        self,
        type: str | None = None,
        status: Annotated[
            str | None, Field(description="active, pending_review, resolved, archived; else all.")
        ] = None,
        owner: str | None = None,
        source: str | None = None,
        tags: list[str] | None = None,
        text: Annotated[str | None, Field(description="Words to find.")] = None,
        context: Object | None = None,
        metadata: Object | None = None,
        confidence: Annotated[float | None, Field(description="At least.")] = None,
        since: When = None,
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> ObservationList:
        """Find observations that match every filter, newest first."""
        view = await self._workspace.look()
        filters: dict[str, Any] = {"type": type, "status": status, "owner": owner, "source": source, "tags": tags}
        filters |= {"context": context, "metadata": metadata, "confidence": confidence, "since": since}
        if text is not None:
            matching = after_id(cursor, search(text, view.list(**filters, limit=None)))
            return await self._read(matching, limit, lambda last: last.id)
        found = view.list(**filters, limit=limit + 1, after=None if cursor is None else position_in(cursor))
        if len(found) > limit:  # counting the rest takes longer, so only when there is one
            found += view.list(**filters, limit=None, after=found[-1])
        return await self._read(found, limit, lambda last: str(last.added))

    async def _read(
        self, found: list[Observation], limit: int, cursor_of: Callable[[Observation], str]
    ) -> ObservationList:
        await self._page.log_read(found[:limit])
        return first(found, limit, cursor_of)

    @tool("Get an observation", READS)
    async def get_observation(self, id: Id) -> FoundObservation:
        """Get an observation in full, or null."""
        found = await self._workspace.read_observation(id)
        if found is None:
            return {"observation": None, "hint": f"no {id} on page {self._page.name}; find ids with list_observations"}
        return {"observation": whole(found, self._workspace.bus.owner)}

    @tool("See recent changes", READS)
    async def changes_since(
        self,
        cursor: Annotated[str | None, Field(description="`next_cursor` of the last answer; default: now.")] = None,
        limit: Limit = 50,
    ) -> News:
        """See the page's events since your last call, oldest first, each with its observation."""
        if cursor is None:
            return {"changes": [], "next_cursor": str(await self._workspace.bus.position()), "has_more": False}
        view = await self._workspace.look()
        reached, changes = view.position, list[Happened]()
        try:
            async for event in self._workspace.bus.events(after=cursor, pages=[self._page.name], kinds=NEWS):
                if len(changes) == limit:
                    return {"changes": changes, "next_cursor": changes[-1]["position"], "has_more": True}
                changes.append(happened(event, _subject_of(event, view)))
                reached = max(reached, event.position)
        except InvalidPosition:
            raise no_cursor(cursor) from None
        except (PositionLost, LogRewound) as lost:
            hint = "for the current state, call list_observations; for later changes, changes_since without a cursor"
            raise type(lost)(f"{lost}. You may have missed changes: {hint}") from None
        return {"changes": changes, "next_cursor": str(reached), "has_more": False}


def _subject_of(event: Event, view: scratchbus.AsyncView) -> Observation | None:
    """Return the observation that an event is about; None for another subject, such as a note, or if it has left."""
    try:
        return view.get(event.subject)
    except InvalidId:
        return None


def _check_reminder(type: str, when: object, remind_on: dict[str, Any] | None, item: str = "") -> None:
    """Raise InvalidField for a reminder that would never fall due."""
    if type == "reminder" and when is None and remind_on is None:
        raise InvalidField(
            f"{item}remind_at",
            "is missing: a reminder needs a time, such as 2026-01-31T09:00:00Z, or in remind_on the event that makes it"
            " due",
        )
