"""The groups of tools, and the toolbox of an identity."""

from __future__ import annotations

from typing import Final

from scratchbus.mcp.context import ContextTools
from scratchbus.mcp.facts import FactsTools
from scratchbus.mcp.files import FileTools
from scratchbus.mcp.history import HistoryTools
from scratchbus.mcp.notepad import NotepadTools
from scratchbus.mcp.notes import NotesTools
from scratchbus.mcp.observation_changes import ObservationChanges
from scratchbus.mcp.observations import ObservationTools
from scratchbus.mcp.preferences import PreferenceTools
from scratchbus.mcp.recall import RecallTools
from scratchbus.mcp.scratchpad import ScratchpadTools
from scratchbus.mcp.sessions import SessionTools
from scratchbus.mcp.todo import TodoTools
from scratchbus.mcp.toolbox import BoundTool, Toolbox, ToolGroup
from scratchbus.mcp.workspace import Workspace

GROUPS: Final[dict[str, tuple[type[ToolGroup], ...]]] = {
    "context": (ContextTools,),
    "observations": (ObservationTools, ObservationChanges),
    "history": (HistoryTools,),
    "notes": (NotesTools,),
    "notepad": (NotepadTools,),
    "todo": (TodoTools,),
    "scratchpad": (ScratchpadTools,),
    "sessions": (SessionTools,),
    "preferences": (PreferenceTools,),
    "facts": (FactsTools,),
    "recall": (RecallTools,),
    "files": (FileTools,),
}
"""The classes with the tools of each group, by its name."""

BASIC_TOOLS: Final = (
    "get_context", "add_observation", "list_observations", "get_observation", "update_observation",
    "claim_observation", "resolve_observation", "add_note", "search_notes", "update_notepad", "todo",
    "update_scratchpad",
)  # fmt: skip
"""The tools of the group `basic`: more of them would cost every model tokens in every request."""


def toolbox_of(workspace: Workspace) -> Toolbox:
    """Return the tools of an identity, in the order of the groups and of their methods."""
    tools = []
    group_of: dict[str, str] = {}
    for name, classes in GROUPS.items():
        is_whole, has_basic = name in workspace.identity.tools, workspace.identity.has_basic(name)
        for group in classes:
            bound = group(workspace)
            for method, current_name in group.current_names().items():
                group_of[method] = name
                if (is_whole or (has_basic and current_name in BASIC_TOOLS)) and bound.has(method):
                    tools.append(BoundTool(getattr(bound, method)))
    return Toolbox(workspace, tools, group_of)
