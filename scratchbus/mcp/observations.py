"""The tools for observations."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import AwareDatetime, Field

from scratchbus import Observation
from scratchbus.domain.events import EVENTS
from scratchbus.domain.position import Position
from scratchbus.errors import EngineError, InvalidField, InvalidPosition, NotFound, shown
from scratchbus.eventlog.ids import new_id
from scratchbus.mcp.answers import Cleared, Happened, Held, News, Page, Seen, brief, happened, held, page_of, whole
from scratchbus.mcp.desk import Desk
from scratchbus.mcp.toolbox import ADDS, EDITS, READS, REPLACES, SETS, Row
from scratchbus.projections.scratch_page import by_priority

MOST: Final = 100
LONGEST_CURSOR: Final = 30

NEWS: Final = tuple(kind for kind in EVENTS if kind != "context_rendered")
"""The kinds of events that are news: that someone was shown what there was is none."""

Id = Annotated[str, Field(description="The id of an observation.")]
Tags = Annotated[list[str] | None, Field(description="Words to find it by.")]
Content = Annotated[str, Field(description="What you saw, in a sentence or a few; 64 KiB at most.")]
Confidence = Annotated[float | None, Field(ge=0, le=1, description="How sure you are, from 0 to 1.")]
Context = Annotated[dict[str, Any] | None, Field(description="What it belongs to, such as a task id.")]
Metadata = Annotated[dict[str, Any] | None, Field(description="Details for programs.")]
Reason = Annotated[str | None, Field(description="Why, for those who read the history.")]
Fence = Annotated[int | None, Field(description="The fence of your claim, if you claimed it.")]
EventId = Annotated[str | None, Field(description="An id of your own: a retry with it changes nothing more.")]
Limit = Annotated[int, Field(ge=1, le=MOST, description="How many at most.")]
Cursor = Annotated[str | None, Field(description="The `next_cursor` of the answer before.")]


class Observations:
    """The tools for the observations of one page."""

    TOOLS: ClassVar[tuple[Row, ...]] = (
        Row("add_observation", "Add an observation", ADDS),
        Row("get_active_observations", "See what is going on", READS),
        Row("list_observations", "Find observations", READS),
        Row("get_observation", "Look at an observation", READS),
        Row("update_observation", "Change an observation", REPLACES),
        Row("resolve_observation", "Resolve an observation", SETS),
        Row("archive_observation", "Archive an observation", REPLACES),
        Row("clear_resolved", "Clear resolved observations", EDITS),
        Row("claim_observation", "Claim an observation", ADDS),
        Row("link_observation", "Link an action to an observation", SETS),
        Row("changes_since", "See what has changed", READS),
    )

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._page = desk.page

    async def add_observation(
        self,
        type: Annotated[str, Field(description="One of the registered types; a wrong one is told which there are.")],
        content: Content,
        confidence: Confidence = None,
        tags: Tags = None,
        owner: Annotated[str | None, Field(description="Who should deal with it.")] = None,
        ttl: Annotated[str | None, Field(description='How long it matters: "30m", "2h", "7d" or "never".')] = None,
        context: Context = None,
        metadata: Metadata = None,
        dedupe_key: Annotated[
            str | None, Field(description="An open observation with this key is counted again instead.")
        ] = None,
        times: Annotated[int, Field(ge=1, description="How often you saw it.")] = 1,
        evidence: Annotated[list[str] | None, Field(description="Ids of the observations it rests on.")] = None,
        event_id: EventId = None,
    ) -> Seen:
        """Put on the page what you saw, for everyone who works there. You are its source."""
        added = await self._page.add(
            type, content, confidence=confidence, tags=tags, owner=owner, ttl=ttl, context=context,
            metadata=metadata, dedupe_key=dedupe_key, times=times, evidence=evidence, event_id=event_id,
        )  # fmt: skip
        return brief(added)

    async def get_active_observations(self, limit: Limit = 20, cursor: Cursor = None) -> Page:
        """See the active observations of the page, by priority, then newest first."""
        place = _rank_of(cursor) if cursor is not None else None
        view = await self._desk.look()
        found = view.active(limit + 1) if place is None else [x for x in view.active() if by_priority(x) > place]
        return page_of(found[:limit], _cursor_of(found[limit - 1]) if len(found) > limit else "")

    async def list_observations(
        self,
        type: str | None = None,
        status: Annotated[str | None, Field(description="active, pending_review, resolved or archived …")] = None,
        owner: str | None = None,
        source: Annotated[str | None, Field(description="Who said so.")] = None,
        tags: Annotated[list[str] | None, Field(description="It has all of these.")] = None,
        text: Annotated[str | None, Field(description="A part of its content, in any case.")] = None,
        context: Annotated[dict[str, Any] | None, Field(description="Its context has all of these.")] = None,
        since: Annotated[AwareDatetime | None, Field(description="Created then or later; with a time zone.")] = None,
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> Page:
        """Find the observations of the page that match everything given, newest first."""
        after = None if cursor is None else _position(cursor)
        view = await self._desk.look()
        found = view.list(
            type=type, status=status, owner=owner, source=source, tags=tags, text=text, context=context, since=since,
            limit=limit + 1, after=after,
        )  # fmt: skip
        return page_of(found[:limit], str(found[limit - 1].added) if len(found) > limit else "")

    async def get_observation(self, id: Id) -> Seen:
        """See all of one observation."""
        found = (await self._desk.look()).get(id)
        if found is None:
            raise NotFound(f"there is no {id} on page {self._page.name!r}; list_observations shows what there is")
        return whole(found, self._desk.bus.owner)

    async def update_observation(
        self,
        id: Id,
        content: Annotated[str | None, Field(description="What it should say.")] = None,
        status: Annotated[
            str | None, Field(description='"pending_review" sends it back as doubtful, "active" brings it back.')
        ] = None,
        owner: Annotated[str | None, Field(description="Who should deal with it.")] = None,
        confidence: Confidence = None,
        tags: Tags = None,
        context: Context = None,
        metadata: Metadata = None,
        expected_version: Annotated[int | None, Field(description="Refuse if it has changed since.")] = None,
        fence: Fence = None,
        release: Annotated[bool, Field(description="Give your claim back as well.")] = False,
        event_id: EventId = None,
    ) -> Seen:
        """Replace fields of an observation; what is left out stays as it is."""
        fields: dict[str, Any] = {"content": content, "status": status, "owner": owner, "confidence": confidence}
        fields |= {"tags": tags, "context": context, "metadata": metadata}
        changes = {name: value for name, value in fields.items() if value is not None}
        if not release:
            how: dict[str, Any] = {"expected_version": expected_version, "fence": fence, "event_id": event_id}
            return brief(await self._page.update(id, **how, **changes))
        own = event_id or new_id()
        try:
            if changes:
                await self._page.update(id, expected_version=expected_version, fence=fence, event_id=own, **changes)
            return brief(await self._page.release(id, fence=fence, event_id=f"{own}/release"))
        except EngineError as error:
            error.event_id = own  # of both writes
            error.in_doubt()
            raise

    async def resolve_observation(
        self, id: Id, reason: Reason = None, fence: Fence = None, event_id: EventId = None
    ) -> Seen:
        """Close an observation: what it said has been dealt with."""
        return brief(await self._page.resolve(id, reason=reason, fence=fence, event_id=event_id))

    async def archive_observation(
        self, id: Id, reason: Reason = None, fence: Fence = None, event_id: EventId = None
    ) -> Seen:
        """Put an observation away for good; its history stays."""
        return brief(await self._page.archive(id, reason=reason, fence=fence, event_id=event_id))

    async def clear_resolved(
        self,
        ids: Annotated[list[str], Field(min_length=1, max_length=1000, description="All are resolved.")],
        event_id: EventId = None,
    ) -> Cleared:
        """Take resolved observations off the page, all or none; their history stays."""
        await self._page.clear_resolved(ids, event_id=event_id)
        return {"cleared": ids}

    async def claim_observation(
        self,
        id: Id,
        ttl: Annotated[str, Field(description='How long you need it, such as "30s" or "10m".')] = "5m",
        fence: Annotated[int | None, Field(description="To renew your own claim: its fence.")] = None,
        event_id: EventId = None,
    ) -> Held:
        """Take an open observation for a while, so that nobody else acts on it."""
        return held(id, await self._page.claim(id, ttl=ttl, fence=fence, event_id=event_id))

    async def link_observation(
        self,
        id: Id,
        action: Annotated[str, Field(description="What you did because of it: a goal, a ticket, a commit …")],
        fence: Fence = None,
        event_id: EventId = None,
    ) -> Seen:
        """Record that you took an action because of an observation: the action can be traced back to it."""
        return brief(await self._page.link(id, action, fence=fence, event_id=event_id))

    async def changes_since(
        self,
        cursor: Annotated[
            str | None, Field(description="Where you were; without one you get a cursor for what comes.")
        ] = None,
        limit: Limit = 50,
    ) -> News:
        """See what happened on the page since a cursor, oldest first."""
        if cursor is None:
            return {"changes": [], "next_cursor": str(await self._desk.bus.position()), "has_more": False}
        changes: list[Happened] = []
        has_more = False
        async for event in self._desk.bus.events(after=cursor, pages=[self._page.name], kinds=NEWS):
            has_more = len(changes) == limit
            if has_more:
                break
            changes.append(happened(event))
        return {"changes": changes, "next_cursor": changes[-1]["position"] if changes else cursor, "has_more": has_more}


def _cursor_of(observation: Observation) -> str:
    priority, place = by_priority(observation)
    return f"{-priority}.{-place}"


def _rank_of(cursor: str) -> tuple[int, int]:
    """Return where an active observation stood. Raises InvalidField."""
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
    return InvalidField("cursor", f"{shown(cursor)} is none of this tool; give the next_cursor of its last answer")
