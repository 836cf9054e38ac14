"""The preferences of a scope: each is a document of its own, identified by its key."""

from __future__ import annotations

from scratchbus.domain.event import Event
from scratchbus.domain.memories import Preference
from scratchbus.domain.memory_events import PreferenceForgotten, PreferenceRemembered
from scratchbus.domain.page_events import Erased
from scratchbus.projections.memory_document import create_document, update_document, upsert_document
from scratchbus.projections.projection import FoldError

PREFIX = "preference_"
"""The prefix of a preference's subject; the digest of its key follows."""


def evolve(preference: Preference | None, event: Event) -> Preference | None:
    """Return a preference after an event. A forgotten or erased preference may be remembered again."""
    if isinstance(event, PreferenceRemembered):
        content = {"key": event.key, "text": event.text, "said_by": event.said_by or event.by, "source": event.by}
        return upsert_document(Preference, preference, event, **{"id": event.subject, **content, "forgotten": False})
    if isinstance(event, PreferenceForgotten):
        if preference is None:
            raise FoldError("preference_forgotten of a preference that does not exist")
        return update_document(preference, event, text="", forgotten=True)
    if isinstance(event, Erased):
        return create_document(Preference, event, id=event.subject, forgotten=True, version=event.version)
    return preference
