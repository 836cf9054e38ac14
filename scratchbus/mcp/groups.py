"""The groups of tools, and the toolbox of an identity."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from scratchbus.mcp.context import Contexts
from scratchbus.mcp.desk import Desk
from scratchbus.mcp.notepad import Notepad
from scratchbus.mcp.notes import Notes
from scratchbus.mcp.observations import Observations
from scratchbus.mcp.scratchpad import Scratchpad
from scratchbus.mcp.sessions import Sessions
from scratchbus.mcp.todo import Todo
from scratchbus.mcp.toolbox import BoundTool, Row, Toolbox


class _Group(Protocol):
    """Related tools: a table of them, and a method for each."""

    TOOLS: ClassVar[tuple[Row, ...]]

    def __init__(self, desk: Desk) -> None: ...


GROUPS: Final[dict[str, type[_Group]]] = {
    "observations": Observations,
    "notes": Notes,
    "notepad": Notepad,
    "todo": Todo,
    "scratchpad": Scratchpad,
    "context": Contexts,
    "sessions": Sessions,
}


def toolbox_of(desk: Desk) -> Toolbox:
    """Return the tools of an identity, in the order of the groups and their tables."""
    tools = []
    for name, group in GROUPS.items():
        if name in desk.identity.tools:
            methods = group(desk)
            tools += [BoundTool(getattr(methods, row.name), row) for row in group.TOOLS]
    elsewhere = {row.name: name for name, group in GROUPS.items() for row in group.TOOLS}
    return Toolbox(desk.identity, tools, elsewhere)
