"""Anthropic's memory tool, `memory_20250818`, on a bus; it needs no package of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import scratchbus
from scratchbus.adapters import memory_answers as answers
from scratchbus.adapters.memory_answers import Answer, MemoryToolError
from scratchbus.errors import Conflict, InvalidInput, NotFound


class AsyncMemoryTool:
    """Runs the commands that Claude gives to the memory tool, over the texts of a scope (`AsyncBus.texts`).

    The files below `/memories` are on the log, and each edit applies to the file at the time the edit is appended, so
    concurrent agents lose nothing, in any process and on any machine. A file has up to `max_text` characters.
    """

    def __init__(self, bus: scratchbus.AsyncBus, scope: str) -> None:
        """Take an open bus; it stays open. Raises InvalidField for anything else, and InvalidName."""
        if not isinstance(bus, scratchbus.AsyncBus):
            raise answers.wrong_bus(bus)
        self._texts = bus.texts(scope)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._texts!r}>"

    async def __call__(self, given: object, *, event_id: str | None = None) -> str:
        """Return the text of the tool's answer to an input, also for an error; see `answer`."""
        return (await self.answer(given, event_id=event_id)).text

    async def answer(self, given: object, *, event_id: str | None = None) -> Answer:
        """Return the answer to the input of a tool call: a command with its parameters.

        With an `event_id`, such as the id of the `tool_use` block, repeating a call changes nothing more. Raises
        EngineError and LogError, like every use of a bus; other errors are returned as answers.
        """
        try:
            command = answers.parse(given)
            run = getattr(self, f"_{command['command']}")
            return Answer(await run(command, event_id))
        except MemoryToolError as refused:
            return Answer(str(refused), is_error=True)
        except (InvalidInput, NotFound, Conflict) as error:
            return answers.refused(error)

    async def _view(self, arguments: Mapping[str, Any], event_id: str | None) -> str:
        path = arguments["path"]
        relative = answers.relative(path)
        if relative:
            try:
                return answers.content(path, (await self._texts.read(relative)).content, arguments.get("view_range"))
            except NotFound:
                pass
        found = await self._texts.list(relative or None)
        if relative and not found:
            raise MemoryToolError(answers.missing(path))
        return answers.listing(path, found)

    async def _create(self, arguments: Mapping[str, Any], event_id: str | None) -> str:
        path = arguments["path"]
        relative = answers.relative(path)
        if not relative:
            raise MemoryToolError(f"Error: File {path} already exists")
        try:
            await self._texts.create(relative, arguments["file_text"], event_id=event_id)
        except Conflict:
            if await self._exists(relative):
                raise MemoryToolError(f"Error: File {path} already exists") from None
            raise
        return f"File created successfully at: {path}"

    async def _str_replace(self, arguments: Mapping[str, Any], event_id: str | None) -> str:
        path, old, new = arguments["path"], arguments["old_str"], arguments.get("new_str", "")
        try:
            before = await self._content(path, "")
        except MemoryToolError:
            before = ""  # a repeated call is still recognised
        try:
            text = await self._texts.replace(answers.relative(path), old, new, event_id=event_id)
        except (NotFound, InvalidInput):
            answers.check_once(path, await self._content(path, f"Error: {answers.missing(path)}"), old)
            raise
        return answers.replaced(before, text.content, old, new)

    async def _insert(self, arguments: Mapping[str, Any], event_id: str | None) -> str:
        path, line = arguments["path"], arguments["insert_line"]
        does_not_exist = f"Error: The path {path} does not exist"
        try:
            await self._texts.insert(answers.relative(path), line, arguments["insert_text"], event_id=event_id)
        except (NotFound, InvalidInput):
            answers.check_line(line, await self._content(path, does_not_exist))
            raise
        return f"The file {path} has been edited."

    async def _delete(self, arguments: Mapping[str, Any], event_id: str | None) -> str:
        path = arguments["path"]
        relative = answers.relative(path)
        if not relative:
            raise MemoryToolError(f"Error: Cannot delete the {answers.ROOT} directory itself")
        try:
            await self._texts.delete(relative, event_id=event_id)
        except NotFound:
            raise MemoryToolError(f"Error: The path {path} does not exist") from None
        return f"Successfully deleted {path}"

    async def _rename(self, arguments: Mapping[str, Any], event_id: str | None) -> str:
        path, to = arguments["old_path"], arguments["new_path"]
        relative, target = answers.relative(path), answers.relative(to)
        if not relative:
            raise MemoryToolError(f"Error: Cannot rename the {answers.ROOT} directory itself")
        if not target:
            raise MemoryToolError(f"Error: The destination {to} already exists")
        try:
            await self._texts.rename(relative, target, event_id=event_id)
        except NotFound:
            raise MemoryToolError(f"Error: The path {path} does not exist") from None
        except Conflict:
            if await self._exists(target):
                raise MemoryToolError(f"Error: The destination {to} already exists") from None
            raise
        return f"Successfully renamed {path} to {to}"

    async def _content(self, path: str, missing: str) -> str:
        """Return the content of a file. Raises MemoryToolError with this text if there is none."""
        relative = answers.relative(path)
        if not relative:
            raise MemoryToolError(missing)
        try:
            return (await self._texts.read(relative)).content
        except NotFound:
            raise MemoryToolError(missing) from None

    async def _exists(self, relative: str) -> bool:
        """Return whether there is a file or a directory at a path."""
        found = {text.path for text in await self._texts.list()}
        return relative in found or any(path.startswith(f"{relative}/") for path in found)
