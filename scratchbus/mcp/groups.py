"""The groups of tools, and the toolbox of an identity."""

from __future__ import annotations

from typing import Final

from scratchbus.mcp.context import ContextTools
from scratchbus.mcp.notepad import NotepadTools
from scratchbus.mcp.notes import NotesTools
from scratchbus.mcp.observations import ObservationTools
from scratchbus.mcp.scratchpad import ScratchpadTools
from scratchbus.mcp.sessions import SessionTools
from scratchbus.mcp.todo import TodoTools
from scratchbus.mcp.toolbox import BoundTool, Toolbox, ToolGroup
from scratchbus.mcp.workspace import Workspace

GROUPS: Final[dict[str, type[ToolGroup]]] = {
    "observations": ObservationTools,
    "notes": NotesTools,
    "notepad": NotepadTools,
    "todo": TodoTools,
    "scratchpad": ScratchpadTools,
    "context": ContextTools,
    "sessions": SessionTools,
}


def toolbox_of(workspace: Workspace) -> Toolbox:
    """Return the tools of an identity, in the order of the groups and of their methods."""
    tools = []
    for name, group in GROUPS.items():
        if name in workspace.identity.tools:
            bound = group(workspace)
            tools += [BoundTool(getattr(bound, method)) for method in group.names()]
    elsewhere = {method: name for name, group in GROUPS.items() for method in group.names()}
    return Toolbox(workspace.identity, tools, elsewhere)
