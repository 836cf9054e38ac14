"""The groups of tools, and the toolbox of an identity."""

from __future__ import annotations

from typing import Final

from scratchbus.mcp.context import Contexts
from scratchbus.mcp.desk import Desk
from scratchbus.mcp.notepad import Notepad
from scratchbus.mcp.notes import Notes
from scratchbus.mcp.observations import Observations
from scratchbus.mcp.scratchpad import Scratchpad
from scratchbus.mcp.sessions import Sessions
from scratchbus.mcp.todo import Todo
from scratchbus.mcp.toolbox import BoundTool, Toolbox, ToolGroup

GROUPS: Final[dict[str, type[ToolGroup]]] = {
    "observations": Observations,
    "notes": Notes,
    "notepad": Notepad,
    "todo": Todo,
    "scratchpad": Scratchpad,
    "context": Contexts,
    "sessions": Sessions,
}


def toolbox_of(desk: Desk) -> Toolbox:
    """Return the tools of an identity, in the order of the groups and of their methods."""
    tools = []
    for name, group in GROUPS.items():
        if name in desk.identity.tools:
            bound = group(desk)
            tools += [BoundTool(getattr(bound, method)) for method in group.names()]
    elsewhere = {method: name for name, group in GROUPS.items() for method in group.names()}
    return Toolbox(desk.identity, tools, elsewhere)
