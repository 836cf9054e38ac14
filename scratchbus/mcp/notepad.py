"""The tools for the session notepad."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.mcp.tool_parameters import Based, EventId, Overwrite, replacing
from scratchbus.mcp.toolbox import EDITS, READS, REPLACES, ToolGroup, tool


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

    @property
    def _notepad(self) -> scratchbus.AsyncNotepad:
        return self._workspace.bus.notepad(self._workspace.session)

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
        """Replace the session notepad: your plan and findings, which survive compaction word for word."""
        with replacing("notepad", "read_notepad", revision, overwrite=overwrite) as base:
            return done(await self._notepad.write(content, revision=base, event_id=event_id))

    @tool("Edit the notepad", EDITS)
    async def update_notepad(
        self,
        operation: Literal["find_replace", "append", "prepend", "delete"],
        content: Annotated[str | None, Field(description="To append, prepend or delete.")] = None,
        find: Annotated[str | None, Field(description="Exact text.")] = None,
        replace: str | None = None,
        replace_all: Annotated[bool, Field(description="Else it must occur once.")] = False,
        event_id: EventId = None,
    ) -> Done:
        """Edit the session notepad, which survives compaction."""
        return done(await self._notepad.update(operation, content, find, replace, replace_all, event_id=event_id))
