"""Remember, change and forget the preferences of a scope."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any, cast

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory import edit, remove
from scratchbus.commands.memory_edit import MemoryEdit, Revision, check_based_on
from scratchbus.commands.memory_reads import read_memory
from scratchbus.domain.checks import check_label
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import Preference
from scratchbus.domain.memory_events import PreferenceForgotten, PreferenceRemembered
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.preferences import check_key, check_preference, subject_of
from scratchbus.domain.values import SCOPE_PAGES
from scratchbus.engine.steps import Step
from scratchbus.errors import NotFound, shown
from scratchbus.projections.memory_index import PreferenceList
from scratchbus.projections.preferences import PREFIX
from scratchbus.readmodel.history import histories_of
from scratchbus.readmodel.memory_history import history_of
from scratchbus.readmodel.scope import Core


class _PreferenceEdit(MemoryEdit):
    """An edit of the preference with a key."""

    key: Annotated[str, CheckedBy(check_key)]
    revision: Revision = None

    @property
    def about(self) -> str:
        """See `MemoryEdit`."""
        return subject_of(PREFIX, self.key)

    def current(self, document: Preference | None) -> Preference | None:
        """Return the preference, None if forgotten. Raises RevisionConflict unless it is at the given revision."""
        existing = None if document is None or document.forgotten else document
        actual = document.version if document is not None else 0
        check_based_on("preference", self.revision, actual, existing.text if existing else "")
        return existing

    def check_exists(self, occasion: Occasion, document: Preference | None) -> None:
        """Raise NotFound unless the preference exists."""
        if self.current(document) is None:
            raise not_found(occasion.page, self.key)


class RememberPreference(_PreferenceEdit):
    """Remember a preference, or change it."""

    verb = "remember_preference"
    text: Annotated[str, CheckedBy(check_preference)]
    said_by: Annotated[str | None, CheckedBy(partial(check_label, "said_by"))] = None

    def decide(self, occasion: Occasion, document: Preference | None) -> Event | None:
        """See `MemoryEdit`."""
        existing, said_by = self.current(document), self.said_by or occasion.by
        if existing is not None and (existing.text, existing.said_by) == (self.text, said_by) and self.event_id is None:
            return None  # with an event id the event is written, so that a retry is recognised later
        return occasion.event(PreferenceRemembered, self.about, key=self.key, text=self.text, said_by=self.said_by)


class EditPreference(RememberPreference):
    """Change the text of an existing preference."""

    verb = "edit_preference"

    def decide(self, occasion: Occasion, document: Preference | None) -> Event | None:
        """See `MemoryEdit`."""
        self.check_exists(occasion, document)
        return super().decide(occasion, document)


class ForgetPreference(_PreferenceEdit):
    """Forget a preference."""

    verb = "forget_preference"

    def decide(self, occasion: Occasion, document: Preference | None) -> Event:
        """See `MemoryEdit`."""
        self.check_exists(occasion, document)
        return occasion.event(PreferenceForgotten, self.about)


def write(core: Core, page: str, kind: type[MemoryEdit], arguments: Mapping[str, Any]) -> Step[Preference]:
    """Edit a preference, and return the result."""
    preference = yield from edit(core, page, kind.parse(arguments))
    if not isinstance(preference, Preference):
        raise NotFound("the preference was erased; its history says why")
    return preference


def forget(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Preference]:
    """Forget a preference, and return its last state."""
    return cast(Preference, (yield from remove(core, page, ForgetPreference.parse(arguments))))


def list_all(core: Core, page: str) -> Step[list[Preference]]:
    """Return the preferences of a scope, in the order in which they were first remembered."""
    return [each for each in (yield from read_all(core, page)) if not each.forgotten]


def read_all(core: Core, page: str) -> Step[list[Preference]]:
    """Return the preferences of a scope, forgotten ones too, with every acknowledged write."""
    return (yield from read_memory(core, core.preferences, page, PreferenceList.all))


def history_of_preferences(core: Core, page: str, key: str | None) -> Step[list[AnyEvent]]:
    """Return the events about one preference, or about all of a scope, oldest first.

    Raises NotFound, PositionLost.
    """
    if key is not None:
        events = yield from history_of(core, page, subject_of(PREFIX, check_key(key)))
        if not events:
            raise not_found(page, key)
        return events
    preferences = yield from read_all(core, page)
    histories = yield from histories_of(core.log, page, [each.id for each in preferences])
    return sorted(chain.from_iterable(histories), key=lambda event: event.position)


def not_found(page: str, key: str) -> NotFound:
    """Return the error for a key that a scope does not have."""
    scope = page.removeprefix(SCOPE_PAGES)
    return NotFound(f"scope {scope!r} has no preference {shown(key)}; list the preferences for their keys")
