"""The JSON documents of observations, notes, events, differences, traces and types, as every interface shows them."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from scratchbus.domain.difference import Difference
from scratchbus.domain.events import Event
from scratchbus.domain.memories import Note
from scratchbus.domain.observation import Observation
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.trace import Trace
from scratchbus.domain.values import duration_text

_NUMBERS = {"shard", "ms", "seq", "added_ms", "added_seq"}  # `position` and `added` have them as text
_FIRST = ("id", "page", "type", "status", "content", "source")  # what people look for when they read JSON


@singledispatch
def document_of(value: object) -> dict[str, Any]:
    """Return an observation, note, event, difference, trace or type as a JSON document.

    It is what the command line prints with `--json`: all fields, times in ISO 8601, positions as text. Events leave out
    fields that are None. Raises TypeError for anything else.
    """
    raise TypeError(f"{type(value).__name__} has no JSON document")


@document_of.register
def _(observation: Observation) -> dict[str, Any]:
    document = observation.model_dump(mode="json", exclude=_NUMBERS)
    return {name: document[name] for name in _FIRST} | document


@document_of.register
def _(note: Note) -> dict[str, Any]:
    document = note.model_dump(mode="json", exclude=_NUMBERS)
    return {name: document[name] for name in ("id", "content", "tags", "source")} | document


@document_of.register
def _(event: Event) -> dict[str, Any]:
    document = event.model_dump(mode="json", exclude={*_NUMBERS, "prev"})
    said = {name: value for name, value in document.items() if value is not None}  # inside `changes`, None is a value
    return {"position": str(event.position), **said}


@document_of.register
def _(difference: Difference) -> dict[str, Any]:
    before, after = (each and document_of(each) for each in (difference.before, difference.after))
    fields = {name: {"before": (before or {})[name], "after": (after or {})[name]} for name in difference.fields}
    return {"difference": difference.kind, "id": difference.id, "fields": fields, "before": before, "after": after}


@document_of.register
def _(trace: Trace) -> dict[str, Any]:
    return {
        "action": trace.action,
        "page": trace.page,
        "motives": [motive.model_dump(mode="json") for motive in trace.motives],
        "observations": {id: document_of(each) for id, each in trace.observations.items()},
    }


@document_of.register
def _(kind: ObservationType) -> dict[str, Any]:
    life = kind.lifecycle
    return {
        "name": kind.name,
        "description": kind.description,
        "priority": kind.priority,
        "default_ttl": _duration(kind.default_ttl_ms),
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
        "auto_archive_after": _duration(kind.auto_archive_after_ms),
        "dedupe": list(kind.dedupe),
        "context": kind.context_schema,
        "metadata": kind.metadata_schema,
    }


def _duration(own: int | str | None) -> str | None:
    """Return a duration as text; None where the settings decide."""
    return own if own is None or isinstance(own, str) else duration_text(own)
