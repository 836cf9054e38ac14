"""The preferences of a scope."""

from __future__ import annotations

from pathlib import Path

from scratchbus.commands import preferences
from scratchbus.domain.memories import Preference
from scratchbus.domain.values import page_of_scope
from scratchbus.memory import preference_sync
from scratchbus.memory.page_memory_async import AsyncPageMemory, Events, timetravel
from scratchbus.memory.preference_sync import Synced

Found = list[Preference]  # see `Events`


class AsyncPreferences(AsyncPageMemory):
    """How a user wants things done, in general or in a project. Get them from `AsyncBus.preferences`.

    Keys are compared without case, blanks, punctuation and the simple plural of English words, so `Commit messages` and
    `commit-message` are the same preference. Every write takes `revision`, the preference's `version` when it was read
    (0: it did not exist), and raises RevisionConflict if that has changed. It also takes `event_id`, an id the caller
    chooses to make a retry safe. A write raises InvalidField, TooLarge or InvalidId for bad arguments; then nothing has
    changed. Every read sees all writes acknowledged before it began.
    """

    _page_of = staticmethod(page_of_scope)

    async def remember(
        self,
        key: str,
        text: str,
        *,
        said_by: str | None = None,
        revision: int | None = None,
        event_id: str | None = None,
    ) -> Preference:
        """Remember a preference; it replaces one with the same key.

        The key is one line of up to 200 characters, the text has up to 4,000. `said_by` names the person, by default
        the source of the bus.
        """
        return await self._do(preferences.write, preferences.RememberPreference, locals())

    async def edit(
        self,
        key: str,
        text: str,
        *,
        said_by: str | None = None,
        revision: int | None = None,
        event_id: str | None = None,
    ) -> Preference:
        """Replace the text of an existing preference. Raises NotFound."""
        return await self._do(preferences.write, preferences.EditPreference, locals())

    async def forget(self, key: str, *, revision: int | None = None, event_id: str | None = None) -> Preference:
        """Forget a preference and return it; its history stays. Raises NotFound."""
        return await self._do(preferences.forget, locals())

    async def list(self) -> Found:
        """Return the preferences, in the order in which they were first remembered."""
        return await self._do(preferences.list_all)

    async def history(self, key: str | None = None) -> Events:
        """Return the events of a preference, or of all in the scope, oldest first, including forgotten ones.

        Raises NotFound for a key that never existed, and PositionLost if some of its events have left the log.
        """
        return await self._do(preferences.history_of_preferences, key)

    async def as_of(self, when: timetravel.When) -> Found:
        """Return the preferences at a position or a time. Raises InvalidPosition."""
        return await self._do(timetravel.preferences_as_of, when)

    async def sync(self, file: Path | str) -> Synced:
        """Sync a section of a text file with the preferences; return what changed on either side.

        The section is between two marks, `<!-- scratchbus:preferences begin -->` and the same with `end`; it is added
        to a file that has none, and everything outside stays byte for byte. Changes in the file since the last sync are
        written to the bus, and the other way round. If both changed the same preference, the file wins, and the version
        of the bus stays in the history. A link to a file in the same directory is followed. Raises InvalidField for a
        file that cannot be read or written, a link to elsewhere, or a section that is not a list of preferences; then
        neither side has changed. After an error of the engine, call it again.
        """
        return await self._do(preference_sync.sync, file)
