"""The tools for the notepad of a session."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.mcp.desk import Desk
from scratchbus.mcp.revisions import Based, EventId, Overwrite, base_of, explained
from scratchbus.mcp.toolbox import EDITS, READS, REPLACES, Row


class Text(TypedDict):
    """What is on the notepad."""

    content: str
    revision: Annotated[int, Field(description="Give it to `write_notepad`.")]


class Done(TypedDict):
    """It is done."""

    ok: Literal[True]
    revision: Annotated[int, Field(description="What the next replacement is based on.")]


def done(revision: int) -> Done:
    """Return the answer for what is done, with the revision that it led to."""
    return {"ok": True, "revision": revision}


class Notepad:
    """The tools for the notepad of one session."""

    TOOLS: ClassVar[tuple[Row, ...]] = (
        Row("read_notepad", "Read the notepad", READS),
        Row("write_notepad", "Rewrite the notepad", REPLACES),
        Row("update_notepad", "Edit the notepad", EDITS),
    )

    def __init__(self, desk: Desk) -> None:
        self._notepad = desk.bus.notepad(desk.session)

    async def read_notepad(self) -> Text:
        """Read the whole notepad of the session; it is empty when it was never used."""
        content, revision = await self._notepad.read_with_revision()
        return {"content": content, "revision": revision}

    async def write_notepad(
        self,
        content: Annotated[str, Field(description="The whole new text; an empty one clears the notepad.")],
        revision: Based = None,
        overwrite: Overwrite = False,
        event_id: EventId = None,
    ) -> Done:
        """Replace all that is on the notepad of the session. It stays word for word when the context is compacted."""
        with explained("notepad", "read_notepad", revision):
            return done(await self._notepad.write(content, revision=base_of(revision, overwrite), event_id=event_id))

    async def update_notepad(
        self,
        operation: Literal["find_replace", "append", "prepend", "delete"],
        content: Annotated[
            str | None, Field(description="For append and prepend: what to add. For delete: what to take out.")
        ] = None,
        find: Annotated[str | None, Field(description="For find_replace: the exact text to look for.")] = None,
        replace: Annotated[str | None, Field(description="For find_replace: what to put in its place.")] = None,
        replace_all: Annotated[bool, Field(description="Every place where it is, not just the only one.")] = False,
        event_id: EventId = None,
    ) -> Done:
        """Edit a part of the notepad of the session."""
        return done(await self._notepad.update(operation, content, find, replace, replace_all, event_id=event_id))
