"""The tools that change observations, and claim them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from scratchbus.errors import Claimed, Conflict, InvalidField
from scratchbus.mcp.answers import ClearedIds, HeldClaim, NextClaim, ObservationAnswer, brief, held, whole
from scratchbus.mcp.observation_fields import (
    Again,
    Context,
    Fence,
    Id,
    KnownType,
    Metadata,
    Reason,
    Seconds,
    When,
)
from scratchbus.mcp.tool_parameters import EventId
from scratchbus.mcp.toolbox import ADDS, EDITS, REPLACES, SETS, ToolGroup, tool


class ObservationChanges(ToolGroup):
    """The tools that change the observations of one page."""

    @tool("Change an observation", REPLACES)
    async def update_observation(
        self,
        id: Id,
        content: str | None = None,
        status: Annotated[str | None, Field(description="pending_review: doubtful; active: reopen.")] = None,
        reason: Reason = None,
        owner: str | None = None,
        confidence: Again = None,
        tags: list[str] | None = None,
        expires_at: When = None,
        not_before: When = None,
        context: Context = None,
        metadata: Metadata = None,
        expected_version: int | None = None,
        fence: Fence = None,
        release: Annotated[bool, Field(description="End your claim.")] = False,
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Change the fields you pass."""
        fields: dict[str, Any] = {"content": content, "status": status, "reason": reason, "owner": owner}
        fields |= {"confidence": confidence}
        fields |= {"tags": tags, "context": context, "metadata": metadata, "expires_at": expires_at}
        fields["not_before"] = not_before
        changes = {name: value for name, value in fields.items() if value is not None}
        if not (changes or release):
            raise InvalidField("changes", f"nothing to update; give one of: {', '.join(fields)}, release")
        guards: dict[str, Any] = {"expected_version": expected_version, "fence": fence, "event_id": event_id}
        guards["release"] = release
        return brief(await self._page.update(id, **guards, **changes))

    @tool("Resolve an observation", SETS)
    async def resolve_observation(
        self,
        id: Id,
        reason: Reason = None,
        action: Annotated[str | None, Field(description="What you did, as a commit id.")] = None,
        fence: Fence = None,
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Close an observation that was dealt with."""
        return brief(await self._page.resolve(id, reason=reason, action=action, fence=fence, event_id=event_id))

    @tool("Refute an observation", REPLACES)
    async def refute_observation(
        self, id: Id, reason: str, fence: Fence = None, event_id: EventId = None
    ) -> ObservationAnswer:
        """Archive an observation as untrue; open ones with it as evidence go to review."""
        return brief(await self._page.refute(id, reason=reason, fence=fence, event_id=event_id))

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
        """Remove resolved observations from the page, all or none; their history stays."""
        await self._page.clear_resolved(ids, event_id=event_id)
        return {"cleared": ids}

    @tool("Claim an observation", ADDS)
    async def claim_observation(
        self,
        id: Id,
        ttl: Seconds = 300,
        fence: Fence = None,
        event_id: EventId = None,
    ) -> HeldClaim:
        """Claim an observation, so that nobody else acts on it."""
        try:
            return held(id, await self._page.claim(id, ttl=ttl, fence=fence, event_id=event_id))
        except Claimed:
            seen = None if self._workspace.is_shared else (await self._workspace.look()).get(id)
            claim = seen and seen.claim
            if claim is None or claim.owner != self._workspace.bus.owner:
                raise
            raise Conflict(f"you already hold {id}: its fence is {claim.fence}; pass it to hold it longer") from None

    @tool("Claim the next observation", ADDS)
    async def claim_next(
        self,
        types: list[KnownType] | None = None,
        tags: Annotated[list[str] | None, Field(description="All of these.")] = None,
        ttl: Seconds = 300,
        event_id: EventId = None,
    ) -> NextClaim:
        """Claim the unclaimed active observation with the highest priority; null if there is none."""
        job = await self._page.claim_next(types=types, tags=tags, ttl=ttl, event_id=event_id)
        if job is None:
            return {"observation": None}
        claim = job.observation.claim
        answer: NextClaim = {"observation": whole(job.observation, self._workspace.bus.owner)}
        if claim is not None:
            answer["claim"] = held(job.id, claim)
        return answer

    @tool("Link an action to an observation", SETS)
    async def link_observation(
        self,
        id: Id,
        action: Annotated[str, Field(description="What you did because of it, such as a ticket or commit.")],
        fence: Fence = None,
        event_id: EventId = None,
    ) -> ObservationAnswer:
        """Record an action you took because of an observation, so that it can be traced."""
        return brief(await self._page.link(id, action, fence=fence, event_id=event_id))
