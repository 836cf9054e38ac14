"""The preferences of a scope: each is a document of its own, identified by its key."""

from __future__ import annotations

from scratchbus.domain.event import Event
from scratchbus.domain.events import Erased
from scratchbus.domain.memories import Preference
from scratchbus.domain.memory_events import PreferenceForgotten, PreferenceRemembered
from scratchbus.projections.memory_document import begun, begun_or_grown, grown
from scratchbus.projections.projection import FoldError

PREFIX = "preference_"
"""The prefix of a preference's subject; the digest of its key follows."""


def evolve(preference: Preference | None, event: Event) -> Preference | None:
    """Return a preference after an event. A forgotten or erased preference may be remembered again."""
    if isinstance(event, PreferenceRemembered):
        said = {"key": event.key, "text": event.text, "said_by": event.said_by or event.by, "source": event.by}
        return begun_or_grown(Preference, preference, event, **{"id": event.subject, **said, "forgotten": False})
    if isinstance(event, PreferenceForgotten):
        if preference is None:
            raise FoldError("preference_forgotten of a preference that does not exist")
        return grown(preference, event, text="", forgotten=True)
    if isinstance(event, Erased):
        return begun(Preference, event, id=event.subject, forgotten=True, version=event.version)
    return preference
