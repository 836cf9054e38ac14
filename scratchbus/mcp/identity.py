"""The identity behind a connection and the tools it may use: fixed when it connects, never set by an argument."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, Self, cast, get_args

from scratchbus import check_page, check_source
from scratchbus.errors import InvalidField, shown

Kind = Literal["subagent", "person", "daemon"]

OF_A_SESSION: Final = ("notes", "notepad", "todo", "sessions")
"""The groups of tools that need a session."""

COMBINED: Final = ("context", "sessions")
"""The groups that span all others: an identity with all of those has these too."""

GROUPS: Final = ("observations", "notes", "notepad", "todo", "scratchpad", *COMBINED)
"""The groups of tools, as `--tools` and the tokens file name them."""


def groups_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the groups with these names, in their fixed order. Raises InvalidField."""
    for name in names:
        if name not in GROUPS:
            raise InvalidField("tools", f"unknown group {shown(name)}; use any of: {', '.join(GROUPS)}")
    has_all_others = set(names) >= {*GROUPS} - {*COMBINED}
    return tuple(group for group in GROUPS if group in names or (has_all_others and group in COMBINED))


@dataclass(frozen=True)
class Identity:
    """An agent, its page and session, and the groups of tools it has."""

    agent: str
    kind: Kind
    page: str
    session: str | None
    tools: tuple[str, ...]

    @classmethod
    def of(
        cls,
        agent: object,
        *,
        kind: str = "subagent",
        page: str = "main",
        session: str | None = None,
        tools: Collection[str] | None = None,
    ) -> Self:
        """Return an identity; without `tools` it gets every group it can use.

        Raises InvalidSource, InvalidName or InvalidField.
        """
        agent = check_source(agent, "agent")
        page = check_page(page)
        if session is not None:
            check_page(f"session:{session}")
        if kind not in get_args(Kind):
            raise InvalidField(
                "kind", f"{shown(kind)} is not a kind of identity; use one of: {', '.join(get_args(Kind))}"
            )
        found = cls(agent, cast(Kind, kind), page, session, ())
        chosen = found._default_tools() if tools is None else found._checked(tools)
        return cls(agent, cast(Kind, kind), page, session, chosen)

    def narrowed(self, tools: Collection[str]) -> Self:
        """Return this identity restricted to these groups of tools."""
        kept = tuple(group for group in self.tools if group in tools)
        return type(self)(self.agent, self.kind, self.page, self.session, kept)

    def _default_tools(self) -> tuple[str, ...]:
        missing = {*(() if self.session else OF_A_SESSION), *(() if self.kind == "subagent" else ("scratchpad",))}
        return tuple(group for group in GROUPS if group not in missing)

    def _checked(self, tools: Collection[str]) -> tuple[str, ...]:
        groups = groups_of(tools)
        for group in groups:
            if group in OF_A_SESSION and self.session is None:
                raise InvalidField("tools", f"the {group} tools need a session; name one with --session")
        return groups
