"""The tools for observations."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import uuid4

from pydantic import AwareDatetime, Field

from scratchbus import EVENT_KINDS, Observation, Position
from scratchbus.errors import EngineError, InvalidField, InvalidPosition, NotFound, shown
from scratchbus.mcp.answers import (
    ClearedIds,
    Happened,
    HeldClaim,
    News,
    ObservationAnswer,
    ObservationList,
    brief,
    happened,
    held,
    page_of,
    whole,
)
from scratchbus.mcp.parameters import Cursor, EventId, Tags
from scratchbus.mcp.toolbox import ADDS, EDITS, READS, REPLACES, SETS, ToolGroup, tool
from scratchbus.mcp.workspace import Workspace

MOST: Final = 100
LONGEST_CURSOR: Final = 30

NEWS: Final = tuple(kind for kind in EVENT_KINDS if kind != "context_rendered")
"""The kinds of events that `changes_since` reports: all but the record that a context was shown."""

Id = Annotated[str, Field(description="The id of an observation.")]
Content = Annotated[str, Field(description="What you observed, in one or a few sentences.")]
Confidence = Annotated[float | None, Field(ge=0, le=1, description="How sure you are, from 0 to 1.")]
Context = Annotated[dict[str, Any] | None, Field(description='What it relates to, such as {"task": "T-1"}.')]
Metadata = Annotated[dict[str, Any] | None, Field(description="Details for programs.")]
Reason = Annotated[str | None, Field(description="Why; kept in the history.")]
Fence = Annotated[int | None, Field(description="The fence of your claim, if you hold one.")]
Limit = Annotated[int, Field(ge=1, le=MOST, description="Maximum number to return.")]


class ObservationTools(ToolGroup):
    """The tools for the observations of one page."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._page = workspace.page

    @tool("Add an observation", ADDS)
    async def add_observation(
        self,
        type: Annotated[str, Field(description="A registered type; the error for an unknown type lists them.")],
        content: Content,
        confidence: Confidence = None,
        tags: Tags = None,
        owner: Annotated[str | None, Field(description="Who should deal with it.")] = None,
        ttl: Annotated[
            str | None, Field(description='How long it stays relevant, such as "30m", "2h", "7d" or "never".')
        ] = None,
        context: Context = None,
        metadata: Metadata = None,
        dedupe_key: Annotated[
            str | None, Field(description="If an open observation has this key, it is counted once more instead.")
        ] = None,
        times: Annotated[int, Field(ge=1, description="How often you saw it.")] = 1,
        evidence: Annotated[list[str] | None, Field(description="Ids of the observations that support it.")] = None,
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Share what you observed with everyone who works on this page. You are recorded as its source."""
        added = await self._page.add(
            type, content, confidence=confidence, tags=tags, owner=owner, ttl=ttl, context=context,
            metadata=metadata, dedupe_key=dedupe_key, times=times, evidence=evidence, event_id=event_id,
        )  # fmt: skip
        return brief(added)

    @tool("See active observations", READS)
    async def get_active_observations(self, limit: Limit = 20, cursor: Cursor = None) -> ObservationList:
        """See what is going on: the active observations of the page, highest priority first, then newest first."""
        place = _rank_of(cursor) if cursor is not None else None
        view = await self._workspace.look()
        found = view.active(limit + 1) if place is None else [x for x in view.active() if _rank(x) > place]
        return page_of(found[:limit], _cursor_of(found[limit - 1]) if len(found) > limit else "")

    @tool("Find observations", READS)
    async def list_observations(
        self,
        type: str | None = None,
        status: Annotated[
            str | None, Field(description="Such as active, pending_review, resolved or archived.")
        ] = None,
        owner: str | None = None,
        source: Annotated[str | None, Field(description="Who reported it.")] = None,
        tags: Annotated[list[str] | None, Field(description="Only observations that have all of these tags.")] = None,
        text: Annotated[str | None, Field(description="Text to find in the content, ignoring case.")] = None,
        context: Annotated[
            dict[str, Any] | None, Field(description="Only observations whose context has all of these values.")
        ] = None,
        since: Annotated[
            AwareDatetime | None, Field(description="Created at this time or later, with a time zone.")
        ] = None,
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> ObservationList:
        """Find observations of the page, closed ones included, that match every filter given; newest first."""
        after = None if cursor is None else _position(cursor)
        view = await self._workspace.look()
        found = view.list(
            type=type, status=status, owner=owner, source=source, tags=tags, text=text, context=context, since=since,
            limit=limit + 1, after=after,
        )  # fmt: skip
        return page_of(found[:limit], str(found[limit - 1].added) if len(found) > limit else "")

    @tool("Get an observation", READS)
    async def get_observation(self, id: Id) -> ObservationAnswer:
        """Get one observation in full: complete content, evidence, context and metadata."""
        found = (await self._workspace.look()).get(id)
        if found is None:
            raise NotFound(f"there is no {id} on page {self._page.name!r}; find ids with list_observations")
        return whole(found, self._workspace.bus.owner)

    @tool("Change an observation", REPLACES)
    async def update_observation(
        self,
        id: Id,
        content: Annotated[str | None, Field(description="The new content.")] = None,
        status: Annotated[
            str | None, Field(description='"pending_review" marks it as doubtful; "active" reopens it.')
        ] = None,
        owner: Annotated[str | None, Field(description="Who should deal with it.")] = None,
        confidence: Confidence = None,
        tags: Tags = None,
        context: Context = None,
        metadata: Metadata = None,
        expected_version: Annotated[
            int | None, Field(description="The version you read; the update is refused if it has changed since.")
        ] = None,
        fence: Fence = None,
        release: Annotated[bool, Field(description="Also release your claim.")] = False,
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Change fields of an observation. Arguments you leave out change nothing."""
        fields: dict[str, Any] = {"content": content, "status": status, "owner": owner, "confidence": confidence}
        fields |= {"tags": tags, "context": context, "metadata": metadata}
        changes = {name: value for name, value in fields.items() if value is not None}
        if not release:
            how: dict[str, Any] = {"expected_version": expected_version, "fence": fence, "event_id": event_id}
            return brief(await self._page.update(id, **how, **changes))
        own = event_id or uuid4().hex
        try:
            if changes:
                await self._page.update(id, expected_version=expected_version, fence=fence, event_id=own, **changes)
            return brief(await self._page.release(id, fence=fence, event_id=f"{own}/release"))
        except EngineError as error:
            error.event_id = own  # of both writes
            error.in_doubt()
            raise

    @tool("Resolve an observation", SETS)
    async def resolve_observation(
        self, id: Id, reason: Reason = None, fence: Fence = None, event_id: EventId = None
    ) -> ObservationAnswer:
        """Close an observation that has been dealt with."""
        return brief(await self._page.resolve(id, reason=reason, fence=fence, event_id=event_id))

    @tool("Archive an observation", REPLACES)
    async def archive_observation(
        self, id: Id, reason: Reason = None, fence: Fence = None, event_id: EventId = None
    ) -> ObservationAnswer:
        """Archive an observation that no longer matters; its history stays."""
        return brief(await self._page.archive(id, reason=reason, fence=fence, event_id=event_id))

    @tool("Clear resolved observations", EDITS)
    async def clear_resolved(
        self,
        ids: Annotated[list[str], Field(min_length=1, max_length=1000, description="Ids of resolved observations.")],
        event_id: EventId = None,
    ) -> ClearedIds:
        """Remove resolved observations from the page, all of them or none; their history stays."""
        await self._page.clear_resolved(ids, event_id=event_id)
        return {"cleared": ids}

    @tool("Claim an observation", ADDS)
    async def claim_observation(
        self,
        id: Id,
        ttl: Annotated[str, Field(description='How long you need it, such as "30s" or "10m".')] = "5m",
        fence: Annotated[int | None, Field(description="To renew your claim: its fence.")] = None,
        event_id: EventId = None,
    ) -> HeldClaim:
        """Claim an open observation before you act on it, so that nobody else does. The claim ends after `ttl`."""
        return held(id, await self._page.claim(id, ttl=ttl, fence=fence, event_id=event_id))

    @tool("Link an action to an observation", SETS)
    async def link_observation(
        self,
        id: Id,
        action: Annotated[str, Field(description="What you did because of it, such as a ticket or commit.")],
        fence: Fence = None,
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Record an action you took because of an observation, so that it can be traced back."""
        return brief(await self._page.link(id, action, fence=fence, event_id=event_id))

    @tool("See recent changes", READS)
    async def changes_since(
        self,
        cursor: Annotated[
            str | None,
            Field(description="The `next_cursor` of the previous answer; leave it out to get a cursor for now."),
        ] = None,
        limit: Limit = 50,
    ) -> News:
        """See what happened on the page since your last call, oldest first."""
        if cursor is None:
            return {"changes": [], "next_cursor": str(await self._workspace.bus.position()), "has_more": False}
        changes: list[Happened] = []
        has_more = False
        async for event in self._workspace.bus.events(after=cursor, pages=[self._page.name], kinds=NEWS):
            has_more = len(changes) == limit
            if has_more:
                break
            changes.append(happened(event))
        return {"changes": changes, "next_cursor": changes[-1]["position"] if changes else cursor, "has_more": has_more}


def _cursor_of(observation: Observation) -> str:
    priority, place = _rank(observation)
    return f"{-priority}.{-place}"


def _rank(observation: Observation) -> tuple[int, int]:
    """Return what sorts the active observations: by priority, then newest first."""
    return (-observation.priority, -observation.added_seq)


def _rank_of(cursor: str) -> tuple[int, int]:
    """Return the rank that an active observation had. Raises InvalidField."""
    priority, _, place = cursor.partition(".")
    if not (priority.isdecimal() and place.isdecimal() and len(cursor) < LONGEST_CURSOR):
        raise _no_cursor(cursor)
    return -int(priority), -int(place)


def _position(cursor: str) -> Position:
    try:
        return Position.parse(cursor)
    except InvalidPosition:
        raise _no_cursor(cursor) from None


def _no_cursor(cursor: str) -> InvalidField:
    return InvalidField(
        "cursor", f"{shown(cursor)} is not a cursor from this tool; pass the next_cursor of its last answer"
    )
