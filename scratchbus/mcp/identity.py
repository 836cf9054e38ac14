"""The identity of a connection and the tools it may use: fixed at connect, never set by an argument."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, cast, get_args

from scratchbus import check_page, check_scope, check_source
from scratchbus.errors import InvalidField, shown

Kind = Literal["subagent", "person", "daemon"]

BASIC: Final = "basic"
"""The default group: from each other group that the identity can use, the tools most agents need."""

ALL: Final = "all"
"""The word in `--tools` for every group that the identity can use."""

OF_A_SESSION: Final = ("notes", "notepad", "todo", "sessions", "files")
"""The groups of tools that need a session."""

OF_SCOPES: Final = ("preferences",)
"""The groups of tools that need a scope of knowledge."""

_MEMORIES: Final = ("notes", "notepad", "todo", "scratchpad")

COMBINED: Final = ("context", "sessions")
"""The groups that span others: an identity with the observations and all memories has these too."""

GROUPS: Final = (
    BASIC,
    "context",
    "observations",
    "history",
    *_MEMORIES,
    "sessions",
    *OF_SCOPES,
    "facts",
    "recall",
    "files",
)
"""The groups of tools, as `--tools` and the tokens file name them."""


def groups_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the groups with these names, in their fixed order. Raises InvalidField."""
    for name in names:
        if name not in GROUPS:
            raise InvalidField("tools", f"unknown group {shown(name)}; use any of: {', '.join((*GROUPS, ALL))}")
    spans = set(names) >= {"observations", *_MEMORIES}
    return tuple(group for group in GROUPS if group in names or (spans and group in COMBINED))


@dataclass(frozen=True)
class Identity:
    """An agent, its page and session, and the groups of tools it has."""

    agent: str
    kind: Kind
    page: str
    session: str | None
    tools: tuple[str, ...]
    within: tuple[str, ...] = GROUPS
    """The groups the server offers; basic tools come only from these."""
    knowledge: tuple[str, ...] = ()
    """The scopes whose preferences and facts it sees, such as a user and a project; it writes to the last one."""

    @classmethod
    def of(
        cls,
        agent: object,
        *,
        kind: str = "subagent",
        page: str = "main",
        session: str | None = None,
        tools: Collection[str] | None = None,
        knowledge: Collection[str] = (),
    ) -> Self:
        """Return an identity; without `tools` it gets the basic ones.

        Raises InvalidSource, InvalidName or InvalidField.
        """
        agent = check_source(agent, "agent")
        page = check_page(page)
        if session is not None:
            check_page(f"session:{session}")
        scopes = tuple(dict.fromkeys(map(check_scope, knowledge)))
        if kind not in get_args(Kind):
            raise InvalidField(
                "kind", f"{shown(kind)} is not a kind of identity; use one of: {', '.join(get_args(Kind))}"
            )
        found = cls(agent, cast(Kind, kind), page, session, (), knowledge=scopes)
        return replace(found, tools=found._chosen((BASIC,) if tools is None else tools))

    def narrowed(self, tools: Collection[str]) -> Self:
        """Return this identity restricted to these groups of tools."""
        remaining = tuple(group for group in self.tools if group in tools or group == BASIC)
        return replace(self, tools=remaining, within=self.within if BASIC in tools else tuple(tools))

    def can_use(self, group: str) -> bool:
        """Return whether it has the session or scope that the tools of a group need."""
        if group in OF_SCOPES:
            return bool(self.knowledge)
        return self.session is not None or group not in OF_A_SESSION

    @property
    def has_scratchpad(self) -> bool:
        """Whether its kind has a scratchpad."""
        return self.kind == "subagent"

    def has(self, group: str) -> bool:
        """Return whether it has any tools of a group: all or only the basic ones."""
        return group in self.tools or self.has_basic(group)

    def has_basic(self, group: str) -> bool:
        """Return whether it has the basic tools of a group."""
        return BASIC in self.tools and group in self.within and self.can_use(group)

    def _chosen(self, tools: Collection[str]) -> tuple[str, ...]:
        if ALL in tools:
            return tuple(group for group in GROUPS if group != BASIC and self.can_use(group))
        groups = groups_of(tools)
        for group in groups:
            if group in OF_A_SESSION and self.session is None:
                raise InvalidField("tools", f"the {group} tools need a session; name one with --session")
            if group in OF_SCOPES and not self.knowledge:
                raise InvalidField("tools", f"the {group} tools need a scope; name one with --knowledge")
        return groups
