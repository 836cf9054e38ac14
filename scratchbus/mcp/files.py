"""The tools for the private files of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final
from uuid import uuid4

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.errors import EngineError, InvalidField, LogBlocked, LogError, shown
from scratchbus.mcp.answers import answer_of
from scratchbus.mcp.tool_parameters import EventId
from scratchbus.mcp.toolbox import READS, REPLACES, ToolGroup, tool

MAX_READ: Final = 100_000
"""The most characters of a file in an answer."""

Path = Annotated[str, Field(description="Relative, as scripts/check.py.")]


class Listed(TypedDict):
    """A file: its path, its size in bytes, and its SHA-256."""

    path: str
    size: int
    sha256: str


class FileListing(TypedDict):
    """The files, by path; programs find them in the directory."""

    files: list[Listed]
    directory: str


class Content(TypedDict):
    """The text of a file."""

    content: str


class FileTools(ToolGroup):
    """The tools for the files of one session."""

    @property
    def _files(self) -> scratchbus.AsyncFiles:
        return self._workspace.bus.files(self._workspace.session)

    @tool("List private files", READS)
    async def list_private_files(self) -> FileListing:
        """List your private files, which are kept outside the workspace, and their directory."""
        return {
            "files": [answer_of(Listed, each) for each in await self._files.sync()],
            "directory": str(await self._files.path()),
        }

    @tool("Read a private file", READS)
    async def read_private_file(self, path: Path) -> Content:
        """Read a private file as text."""
        content = await self._files.read(path)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InvalidField("path", f"{shown(path)} is not text; use it from its directory") from None
        if len(text) > MAX_READ:
            raise InvalidField("path", f"{shown(path)} has {len(text):,} characters; use it from its directory")
        return {"content": text}

    @tool("Write a private file", REPLACES)
    async def write_private_file(self, path: Path, content: str, event_id: EventId = None) -> Listed:
        """Write a whole private file, for scripts and results that do not belong in the workspace."""
        return answer_of(Listed, await self._files.write(path, content, event_id=event_id))

    @tool("Delete a private file", REPLACES)
    async def delete_private_file(self, path: Path, event_id: EventId = None) -> FileListing:
        """Delete a private file and list the rest."""
        call_id = event_id or uuid4().hex
        with _as_one_call(call_id):
            await self._files.delete(path, event_id=call_id)
            return await self.list_private_files()


@contextmanager
def _as_one_call(event_id: str) -> Iterator[None]:
    """Make an error in either of two steps name the id that makes a retry of both safe."""
    try:
        yield
    except LogBlocked:
        raise  # nothing is in doubt
    except (EngineError, LogError) as error:
        error.event_id = event_id
        error.in_doubt()
        raise
