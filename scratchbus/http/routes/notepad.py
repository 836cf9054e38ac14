"""The notepad of a session."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import Field
from starlette.responses import Response

from scratchbus.http.bodies import Body, BodyReader, JsonBody, takes
from scratchbus.http.documents import body_of
from scratchbus.http.memories import REVISED, TEXT, Based, events_answer, revised, text_answer
from scratchbus.http.moments import When
from scratchbus.http.parameters import Once, SessionName
from scratchbus.http.problems import Refusal
from scratchbus.http.responses import EVENTS
from scratchbus.http.server import MemoryBus

router = APIRouter(tags=["notepad"])
PATH: Final = "/sessions/{session}/notepad"


class NotepadContent(Body, example={"content": "The bank answers on Mondays only."}):
    """The whole text of a notepad; an empty one clears it."""

    content: str


class TextAddition(Body):
    """A text to add at the beginning or the end; with `line`, at the end as a line of its own."""

    operation: Literal["append", "prepend"]
    content: str


class LineAddition(Body):
    """A text to add at the end as a line of its own."""

    operation: Literal["append_line"]
    content: str


class TextDeletion(Body):
    """A text to delete, which has to be there once; with `replace_all`, at least once."""

    operation: Literal["delete"]
    content: str = Field(min_length=1)
    replace_all: bool = False


class TextReplacement(Body):
    """A text to replace by another, which has to be there once; with `replace_all`, at least once."""

    operation: Literal["find_replace"]
    find: str = Field(min_length=1)
    replace: str
    replace_all: bool = False


_EDITS: Final[dict[str, type[Body]]] = {
    "append": TextAddition,
    "prepend": TextAddition,
    "append_line": LineAddition,
    "delete": TextDeletion,
    "find_replace": TextReplacement,
}


async def _edit_of(request: Request) -> Body:
    document = await body_of(request)
    operation = document.get("operation")
    kind = _EDITS.get(operation) if isinstance(operation, str) else None
    if kind is None:
        detail = f"operation: use one of: {', '.join(_EDITS)}"
        raise Refusal(422, "invalid-field", detail, field="operation")
    return kind.checked(document)


_EXAMPLE: Final = {"operation": "append", "content": "It closes at noon."}
Edit = Annotated[Body, Depends(BodyReader(_edit_of, takes(_EXAMPLE, *dict.fromkeys(_EDITS.values()))))]


@router.get(PATH, responses={200: TEXT})
async def read_notepad(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the text of a session's notepad; empty if it was never written."""
    return await text_answer(bus.notepad(session), at)


@router.put(PATH, responses={200: REVISED})
async def write_notepad(
    bus: MemoryBus, session: SessionName, guards: Based, body: JsonBody[NotepadContent]
) -> Response:
    """Replace the whole text."""
    return revised(await bus.notepad(session).write(body.content, **guards.of_revision()))


@router.patch(PATH, responses={200: REVISED})
async def edit_notepad(bus: MemoryBus, session: SessionName, guards: Once, edit: Edit) -> Response:
    """Edit a part of the current text, so that concurrent edits are all kept.

    409 if the text to delete or to replace is not there, or more than once.
    """
    notepad = bus.notepad(session)
    given: dict[str, Any] = edit.given
    if isinstance(edit, LineAddition):
        return revised(await notepad.append(edit.content, line=True, event_id=guards.event_id))
    return revised(await notepad.update(given.pop("operation"), event_id=guards.event_id, **given))


@router.get(PATH + "/history", responses={200: EVENTS})
async def get_notepad_history(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return all edits as events, oldest first, also after the session has ended."""
    return await events_answer(bus, f"session:{session}", await bus.notepad(session).history(), at)
