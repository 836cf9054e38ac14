"""The texts of a scope, by path."""

from __future__ import annotations

from typing import cast

from scratchbus.commands import texts
from scratchbus.domain.conversations import Text, check_path, subject_of
from scratchbus.domain.values import page_of_scope
from scratchbus.memory.page_memory_async import AsyncPageMemory, Events, timetravel
from scratchbus.projections.texts import PREFIX
from scratchbus.readmodel.memory_history import history_of

TextList = list[Text]  # see `Events`


class AsyncTexts(AsyncPageMemory):
    """Texts that outlive sessions, by path, such as `projects/q3.md`. Get them from `AsyncBus.texts`.

    They are on the log, so every process sees the same. An edit applies to the text at the time the edit is appended,
    so concurrent writers lose nothing. A directory exists while it contains a text. Writes take `event_id`, an id the
    caller chooses to make a retry safe; they raise InvalidField, TooLarge, NotFound or Conflict, and then nothing has
    changed.
    """

    _page_of = staticmethod(page_of_scope)

    async def create(self, path: str, content: str, *, event_id: str | None = None) -> Text:
        """Create a text of up to `max_text` characters. Raises Conflict if it exists."""
        return await self._do(texts.create, locals())

    async def read(self, path: str) -> Text:
        """Return a text. Raises NotFound."""
        return await self._do(texts.read, path)

    async def list(self, under: str | None = None) -> TextList:
        """Return all texts, or those in a directory, by path."""
        return await self._do(texts.present, under)

    async def replace(self, path: str, old: str, new: str, *, event_id: str | None = None) -> Text:
        """Replace a part of a text; the part must occur exactly once."""
        return cast(Text, await self._edit(texts.ReplaceInText, locals()))

    async def insert(self, path: str, line: int, text: str, *, event_id: str | None = None) -> Text:
        """Insert lines after this many lines; 0 inserts them first."""
        return cast(Text, await self._edit(texts.InsertIntoText, locals()))

    async def delete(self, path: str, *, event_id: str | None = None) -> None:
        """Delete a text, or all texts in a directory; their history stays."""
        await self._do(texts.delete, path, event_id)

    async def rename(self, path: str, to: str, *, event_id: str | None = None) -> None:
        """Move a text, or all texts in a directory, to an unused path."""
        await self._do(texts.rename, path, to, event_id)

    async def history(self, path: str) -> Events:
        """Return the events about a path, oldest first. Raises PositionLost when some of them have left the log."""
        return await self._do(history_of, subject_of(PREFIX, check_path(path)))

    async def as_of(self, path: str, when: timetravel.When) -> str | None:
        """Return a text at a position or a time; None if there was none. Raises InvalidPosition."""
        subject = subject_of(PREFIX, check_path(path))
        found = await self._do(timetravel.remembered_as_of, subject, when)
        return found.content if isinstance(found, Text) and not found.deleted else None
