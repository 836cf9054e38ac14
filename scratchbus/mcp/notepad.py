"""The tools for the session notepad."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.mcp.parameters import Based, EventId, Overwrite, base_of, explained
from scratchbus.mcp.toolbox import EDITS, READS, REPLACES, ToolGroup, tool
from scratchbus.mcp.workspace import Workspace


class NotepadText(TypedDict):
    """The text of the notepad."""

    content: str
    revision: Annotated[int, Field(description="Pass it to `write_notepad`.")]


class Done(TypedDict):
    """The change was made."""

    ok: Literal[True]
    revision: Annotated[int, Field(description="The revision after this change; pass it with your next replacement.")]


def done(revision: int) -> Done:
    """Return the answer of a successful change."""
    return {"ok": True, "revision": revision}


class NotepadTools(ToolGroup):
    """The tools for the notepad of one session."""

    def __init__(self, workspace: Workspace) -> None:
        self._notepad = workspace.bus.notepad(workspace.session)

    @tool("Read the notepad", READS)
    async def read_notepad(self) -> NotepadText:
        """Read the session notepad in full. It is empty until you write to it."""
        content, revision = await self._notepad.read_with_revision()
        return {"content": content, "revision": revision}

    @tool("Rewrite the notepad", REPLACES)
    async def write_notepad(
        self,
        content: Annotated[str, Field(description="The complete new text; an empty text clears the notepad.")],
        revision: Based = None,
        overwrite: Overwrite = False,
        event_id: EventId = None,
    ) -> Done:
        """Replace the session notepad: your plan and findings, kept word for word when the context is compacted."""
        with explained("notepad", "read_notepad", revision):
            return done(await self._notepad.write(content, revision=base_of(revision, overwrite), event_id=event_id))

    @tool("Edit the notepad", EDITS)
    async def update_notepad(
        self,
        operation: Literal["find_replace", "append", "prepend", "delete"],
        content: Annotated[
            str | None, Field(description="For append and prepend: the text to add. For delete: the text to remove.")
        ] = None,
        find: Annotated[str | None, Field(description="For find_replace: the exact text to find.")] = None,
        replace: Annotated[str | None, Field(description="For find_replace: the replacement.")] = None,
        replace_all: Annotated[
            bool, Field(description="Replace or delete every occurrence; otherwise the text must occur exactly once.")
        ] = False,
        event_id: EventId = None,
    ) -> Done:
        """Change part of the session notepad without rewriting it."""
        return done(await self._notepad.update(operation, content, find, replace, replace_all, event_id=event_id))
