"""The private files of a session, on the disk of the server."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import StringConstraints
from starlette.responses import Response

from scratchbus import document_of
from scratchbus.http import patterns, problems
from scratchbus.http.documents import answer, listing, media_type_of, unsupported
from scratchbus.http.memories import memory_example, memory_fields
from scratchbus.http.moments import When
from scratchbus.http.parameters import Once, SessionName
from scratchbus.http.responses import EVENTS
from scratchbus.http.schemas import COUNT, component, document, exact, items_of
from scratchbus.http.server import MemoryBus

router = APIRouter(tags=["files"])
PATH: Final = "/sessions/{session}/files"
ONE: Final = PATH + "/content"
BYTES: Final = "application/octet-stream"

FilePath = Annotated[
    str,
    StringConstraints(pattern=patterns.FILE),
    Query(
        description="The path of the file: names between slashes, up to 255 bytes each and 1,024 together.",
        examples=["scripts/check.py"],
    ),
]

_FIELDS: Final = memory_fields("path", size=COUNT, sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"})
_EXAMPLE: Final = memory_example(
    "file_6f1d5c0e9b7a42d18c3e",
    path="scripts/check.py",
    size=17,
    sha256="5b1f5bdb1bd2a2a0a1a1e9b4f0f4a3d0c7e1b7ef8c8a5b1f5bdb1bd2a2a0a1a1",
)
_SCHEMA: Final = component("PrivateFile", exact(**_FIELDS))
_FILE: Final = document("The file as the log lists it", _SCHEMA, _EXAMPLE)
_FILES: Final = items_of("The recorded files, by path", _SCHEMA, _EXAMPLE)
_RAW: Final = {BYTES: {"schema": {"type": "string", "format": "binary"}, "example": "print('checked')"}}
_CONTENT: Final = {"description": "The bytes of the file", "content": _RAW}
_BODY: Final = {"requestBody": {"required": True, "content": _RAW}}
_GONE: Final = {"description": "It is deleted"}


@router.get(PATH, responses={200: _FILES})
async def list_files(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the files of a session; a spawned session shares those of its parent."""
    files = bus.files(session)
    return answer(listing(await (files.list() if at is None else files.as_of(at))))


@router.get(ONE, response_class=Response, responses={200: _CONTENT})
async def read_file(bus: MemoryBus, session: SessionName, path: FilePath) -> Response:
    """Return the content of a file."""
    content = await bus.files(session).read(path)
    return Response(content, headers={"Content-Disposition": "attachment"}, media_type=BYTES)


@router.put(ONE, responses={200: _FILE}, openapi_extra=_BODY)
async def write_file(request: Request, bus: MemoryBus, session: SessionName, path: FilePath, guards: Once) -> Response:
    """Write a file as a whole; files that are too old or too large together are evicted."""
    kind = media_type_of(request, BYTES)
    if kind != BYTES:
        raise unsupported(kind, BYTES)
    content = await request.body()
    return answer(document_of(await bus.files(session).write(path, content, event_id=guards.event_id)))


@router.delete(ONE, status_code=204, responses={204: _GONE})
async def delete_file(bus: MemoryBus, session: SessionName, path: FilePath, guards: Once) -> Response:
    """Delete a file."""
    await bus.files(session).delete(path, event_id=guards.event_id)
    return Response(status_code=204)


@router.get(PATH + "/history", responses=problems.answers({200: EVENTS}, 410))
async def get_file_history(bus: MemoryBus, session: SessionName, path: FilePath) -> Response:
    """Return the events about a path, oldest first."""
    return answer(listing(await bus.files(session).history(path)))
