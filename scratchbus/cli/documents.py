"""What observations and events look like as JSON, wherever they leave scratchbus."""

from __future__ import annotations

from typing import Any

from scratchbus.domain.difference import Difference
from scratchbus.domain.events import Event
from scratchbus.domain.memories import Note
from scratchbus.domain.observation import Observation
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.trace import Trace
from scratchbus.domain.values import duration_text

_PLACES = {"shard", "ms", "seq", "added_ms", "added_seq"}  # as numbers; `position` and `added` say them as text
_FIRST = ("id", "page", "type", "status", "content", "source")  # what people look for when they read JSON


def observation_document(observation: Observation) -> dict[str, Any]:
    """Return all fields of an observation: times in ISO 8601, positions as text."""
    document = observation.model_dump(mode="json", exclude=_PLACES)
    return {name: document[name] for name in _FIRST} | document


def note_document(note: Note) -> dict[str, Any]:
    """Return all fields of a note: times in ISO 8601, its position as text."""
    document = note.model_dump(mode="json", exclude=_PLACES)
    return {name: document[name] for name in ("id", "content", "tags", "source")} | document


def event_document(event: Event) -> dict[str, Any]:
    """Return all fields of an event that say something: its time in ISO 8601, its position as text."""
    document = event.model_dump(mode="json", exclude={*_PLACES, "prev"})
    said = {name: value for name, value in document.items() if value is not None}  # inside `changes`, None is a value
    return {"position": str(event.position), **said}


def difference_document(difference: Difference) -> dict[str, Any]:
    """Return a difference: which fields changed from what to what, and the whole observation before and after."""
    before, after = (each and observation_document(each) for each in (difference.before, difference.after))
    fields = {name: {"before": (before or {})[name], "after": (after or {})[name]} for name in difference.fields}
    return {"difference": difference.kind, "id": difference.id, "fields": fields, "before": before, "after": after}


def trace_document(trace: Trace) -> dict[str, Any]:
    """Return a trace: who linked the action to what, and by id all observations, which name their evidence."""
    return {
        "action": trace.action,
        "page": trace.page,
        "motives": [motive.model_dump(mode="json") for motive in trace.motives],
        "observations": {id: observation_document(each) for id, each in trace.observations.items()},
    }


def type_document(kind: ObservationType) -> dict[str, Any]:
    """Return all fields of an observation type, by the names they have in YAML."""
    life = kind.lifecycle
    return {
        "name": kind.name,
        "description": kind.description,
        "priority": kind.priority,
        "default_ttl": _lasting(kind.default_ttl_ms),
        "default_owner": kind.default_owner,
        "initial_status": kind.initial_status,
        "lifecycle": {
            "name": life.name,
            "statuses": dict(life.statuses),
            "initial": list(life.initial),
            "transitions": {status: sorted(life.allowed_from(status)) for status in life.statuses},
        },
        "max_content": kind.max_content,
        "max_tags": kind.max_tags,
        "auto_archive_after": _lasting(kind.auto_archive_after_ms),
        "dedupe": list(kind.dedupe),
        "context": kind.context_schema,
        "metadata": kind.metadata_schema,
    }


def _lasting(own: int | str | None) -> str | None:
    """Return a length of time as people write it; None where the settings say."""
    return own if own is None or isinstance(own, str) else duration_text(own)
