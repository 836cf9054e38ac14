"""What the routes of memories share: their parameters, and the schemas of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Path
from pydantic import StringConstraints, WithJsonSchema
from starlette.responses import Response

import scratchbus
from scratchbus import AsyncBus, Event
from scratchbus.errors import EngineError, LogError
from scratchbus.http import patterns
from scratchbus.http.documents import answer, listing
from scratchbus.http.parameters import Absent, Name, WriteHeaders, idempotency, in_path, register_id
from scratchbus.http.problems import Refusal
from scratchbus.http.schemas import COUNT, DATE_TIME, FLAG, REVISION, STRING, Schema, document, exact

_IF_MATCH: Final = (
    'The ETag of a read: the write is refused (412) if the revision has changed since. "0" is one that does not exist.'
)
_Revision = Annotated[str, StringConstraints(pattern=patterns.REVISION)]
_Nothing = Annotated[
    str, StringConstraints(pattern=patterns.NOTHING), WithJsonSchema({"type": "string", "enum": ["*"]})
]


async def _based(
    once: Annotated[WriteHeaders, Depends(idempotency)],
    if_match: Annotated[_Revision | Absent, Header(alias="If-Match", description=_IF_MATCH, examples=['"3"'])] = None,
    if_none_match: Annotated[
        _Nothing | Absent,
        Header(alias="If-None-Match", description='`*` is the same as an `If-Match` of "0".'),
    ] = None,
) -> WriteHeaders:
    if if_none_match is not None:
        if if_match is not None:
            raise Refusal(409, "conflicting-preconditions", "If-None-Match: cannot be combined with If-Match")
        return WriteHeaders(once.event_id, 0)
    return once.based_on(if_match)


Based = Annotated[WriteHeaders, Depends(_based)]
"""The guards of a write that replaces a revision."""


register_id("note", patterns.NOTE)

NoteId = Annotated[str, Path(description="The id of a note.", pattern=patterns.NOTE, examples=["note_1795386035607"])]
TaskId = Annotated[
    str, in_path("The id of a task, as beginning it answered"), Name(patterns.TASK, "task_1795386035607@s1")
]
AgentName = Annotated[str, in_path("The name of an agent"), Name(patterns.SESSION, "analyst")]


def memory_fields(*texts: str, **own: Schema) -> dict[str, Schema]:
    """Return the schemas of the fields of a memory's document: the common ones, its texts, and its own."""
    return {
        **dict.fromkeys(("id", *texts, "source", "position"), STRING),
        **dict.fromkeys(("created_at", "updated_at"), DATE_TIME),
        **own,
        "version": {"type": "integer", "minimum": 1},
        "damaged": FLAG,
    }


def memory_example(id: str, **own: Any) -> dict[str, Any]:
    """Return an example of a memory's document."""
    return {
        "id": id,
        **own,
        "source": "analyst",
        "version": 1,
        "damaged": False,
        "created_at": "2026-11-22T22:20:35.607000Z",
        "updated_at": "2026-11-22T22:20:35.607000Z",
        "position": "1795386035607-4",
    }


WRITTEN: Final[dict[str, Any]] = exact(revision=COUNT)
REVISED: Final = document("The new revision, also as ETag", WRITTEN, {"revision": 4}, REVISION)
TEXT: Final = document(
    "The text, and its revision, also as ETag; a past text has no revision",
    exact(content=STRING, revision={"type": ["integer", "null"], "minimum": 0}),
    {"content": "The bank answers on Mondays only.", "revision": 3},
    REVISION,
)


async def text_answer(memory: scratchbus.AsyncNotepad | scratchbus.AsyncScratchpad, at: str | None) -> Response:
    """Return the text of a memory, with its revision as ETag; or what it was at a moment, without one."""
    content, revision = await memory.read_with_revision() if at is None else (await memory.as_of(at), None)
    return answer({"content": content, "revision": revision}, version=revision)


def revised(revision: int) -> Response:
    """Return the revision that a write made."""
    return answer({"revision": revision}, version=revision)


@contextmanager
def after_write(event_id: str) -> Iterator[None]:
    """Make an error of a read that follows a write name the id that makes a retry of both safe."""
    try:
        yield
    except (EngineError, LogError) as error:
        error.event_id = event_id
        error.in_doubt()
        raise


async def events_answer(bus: AsyncBus, page: str, events: Iterable[Event], at: str | None) -> Response:
    """Return events about a memory, up to a moment if one is given. Raises InvalidPosition, PositionLost."""
    if at is not None:
        end = (await bus.page(page).as_of(at)).position
        events = [event for event in events if event.position <= end]
    return answer(listing(events))
