"""The tools for people's preferences."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.errors import InvalidField, NotFound, shown
from scratchbus.mcp.answers import answer_of
from scratchbus.mcp.tool_parameters import EventId
from scratchbus.mcp.toolbox import REPLACES, ToolGroup, tool

Key = Annotated[str, Field(description="A few words, like `quotes in JS`.")]
Scope = Annotated[str | None, Field(description="One of your scopes; default: the last.")]

MAX_KEYS: Final = 50
"""The most keys that an error lists."""


class Preferred(TypedDict):
    """A preference, and who stated it."""

    key: str
    text: str
    said_by: str
    scope: str


class PreferenceTools(ToolGroup):
    """The tools for the preferences of the scopes of the identity."""

    @tool("Remember a preference", REPLACES)
    async def remember_preference(
        self,
        key: Key,
        text: Annotated[str, Field(description="What they want, in their words.")],
        said_by: Annotated[str | None, Field(description="Who wants it.")] = None,
        scope: Scope = None,
        event_id: EventId = None,
    ) -> Preferred:
        """Remember how a person wants things done from now on; replaces the preference with this key."""
        scope, preferences = self._scope_preferences(scope)
        remembered = await preferences.remember(key, text, said_by=said_by, event_id=event_id)
        return answer_of(Preferred, remembered, scope=scope)

    @tool("Forget a preference", REPLACES)
    async def forget_preference(self, key: Key, scope: Scope = None, event_id: EventId = None) -> Preferred:
        """Forget a preference that no longer holds."""
        scope, preferences = self._scope_preferences(scope)
        try:
            return answer_of(Preferred, await preferences.forget(key, event_id=event_id), scope=scope)
        except NotFound:
            keys = ", ".join([each.key for each in await preferences.list()][:MAX_KEYS]) or "none"
            raise NotFound(f"scope {scope!r} has no preference {shown(key)}; its preferences: {keys}") from None

    def _scope_preferences(self, scope: str | None) -> tuple[str, scratchbus.AsyncPreferences]:
        """Return the scope, by default the last one of the identity, and its preferences. Raises InvalidField."""
        scopes = self._workspace.identity.knowledge
        chosen = scopes[-1] if scope is None else scope
        if chosen not in scopes:
            raise InvalidField("scope", f"{shown(chosen)} is not one of your scopes; use one of: {', '.join(scopes)}")
        return chosen, self._workspace.bus.preferences(chosen)
