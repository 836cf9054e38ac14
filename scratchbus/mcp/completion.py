"""Completion: the possible values of an argument of a prompt or of a resource URI."""

from __future__ import annotations

from typing import Final

from scratchbus.mcp.prompts import OUTCOMES
from scratchbus.mcp.protocol import Client, Params, Result
from scratchbus.mcp.workspace import Workspace

MAX_VALUES: Final = 100
"""The most values in one answer, a limit of the protocol."""


class Completions:
    """The completions of one connection."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def complete(self, _: Client, params: Params) -> Result:
        """Return the values that start with the typed text (ids: or end with it); none for an unknown argument."""
        argument, typed = params["argument"]["name"], params["argument"]["value"].lower()
        values = await self._values(params["ref"]["type"] == "ref/resource", argument)
        found = [each for each in values if each.lower().startswith(typed) or each.lower().endswith(typed)]
        return {"completion": {"values": found[:MAX_VALUES], "total": len(found), "hasMore": len(found) > MAX_VALUES}}

    async def _values(self, is_of_a_resource: bool, argument: str) -> list[str]:
        identity = self._workspace.identity
        if not is_of_a_resource:
            return list(OUTCOMES) if argument == "outcome" else []
        if argument == "id" and identity.has("observations"):
            return [each.id for each in (await self._workspace.look()).active()]
        if argument == "type" and identity.has("observations"):
            return list(self._workspace.bus.types.types)
        value = {"page": identity.page, "session": self._workspace.known_session, "agent": identity.agent}.get(argument)
        return [value] if value else []
