"""The texts of a scope, by path."""

# Generated from texts_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from typing import TYPE_CHECKING

from scratchbus.commands import texts
from scratchbus.domain.conversations import Text, check_path, subject_of
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.values import page_of_scope
from scratchbus.projections.texts import PREFIX
from scratchbus.readmodel.memory_history import history_of
from scratchbus.readmodel.scope import Host
from scratchbus.telemetry.lazy import lazy

if TYPE_CHECKING:
    from scratchbus import timetravel
else:
    timetravel = lazy("scratchbus.timetravel")

Events = list[AnyEvent]  # inside a class with a method `list`, that name is taken
TextList = list[Text]


class Texts:
    """Texts that outlive sessions, by path, such as `projects/q3.md`. Get them from `Bus.texts`.

    They are on the log, so every process sees the same. An edit applies to the text at the time the edit is appended,
    so concurrent writers lose nothing. A directory exists while it contains a text. Writes take `event_id`, an id the
    caller chooses to make a retry safe; they raise InvalidField, TooLarge, NotFound or Conflict, and then nothing has
    changed.
    """

    def __init__(self, bus: Host, scope: str) -> None:
        self._bus = bus
        self._page = page_of_scope(scope)

    def create(self, path: str, content: str, *, event_id: str | None = None) -> Text:
        """Create a text of up to `max_text` characters. Raises Conflict if it exists."""
        return self._bus.converse(texts.create(self._bus.core, self._page, locals()))

    def read(self, path: str) -> Text:
        """Return a text. Raises NotFound."""
        return self._bus.converse(texts.read(self._bus.core, self._page, path))

    def list(self, under: str | None = None) -> TextList:
        """Return all texts, or those in a directory, by path."""
        return self._bus.converse(texts.present(self._bus.core, self._page, under))

    def replace(self, path: str, old: str, new: str, *, event_id: str | None = None) -> Text:
        """Replace a part of a text; the part must occur exactly once."""
        return self._bus.converse(texts.change(self._bus.core, self._page, texts.ReplaceInText, locals()))

    def insert(self, path: str, line: int, text: str, *, event_id: str | None = None) -> Text:
        """Insert lines after this many lines; 0 inserts them first."""
        return self._bus.converse(texts.change(self._bus.core, self._page, texts.InsertIntoText, locals()))

    def delete(self, path: str, *, event_id: str | None = None) -> None:
        """Delete a text, or all texts in a directory; their history stays."""
        self._bus.converse(texts.delete(self._bus.core, self._page, path, event_id))

    def rename(self, path: str, to: str, *, event_id: str | None = None) -> None:
        """Move a text, or all texts in a directory, to an unused path."""
        self._bus.converse(texts.rename(self._bus.core, self._page, path, to, event_id))

    def history(self, path: str) -> Events:
        """Return the events about a path, oldest first. Raises PositionLost when some of them have left the log."""
        return self._bus.converse(history_of(self._bus.core, self._page, subject_of(PREFIX, check_path(path))))

    def as_of(self, path: str, when: timetravel.When) -> str | None:
        """Return a text at a position or a time; None if there was none. Raises InvalidPosition."""
        subject = subject_of(PREFIX, check_path(path))
        found = self._bus.converse(timetravel.remembered_as_of(self._bus.core, self._page, subject, when))
        return found.content if isinstance(found, Text) and not found.deleted else None
