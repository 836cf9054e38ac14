"""The JSON documents of observations, memories, events, differences, traces and types, as all interfaces show them."""

from __future__ import annotations

from datetime import datetime
from functools import singledispatch
from operator import itemgetter
from typing import Any, Final

from scratchbus.domain.conversations import ScratchFile, Text, Turn
from scratchbus.domain.difference import Difference
from scratchbus.domain.document import POSITION_FIELDS
from scratchbus.domain.event import Event
from scratchbus.domain.facts import Fact
from scratchbus.domain.memories import Note, Preference
from scratchbus.domain.observation import BUS_FIELDS, Claim, Observation
from scratchbus.domain.position import Position
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.trace import Trace
from scratchbus.domain.values import duration_text, time_of_position


@singledispatch
def document_of(value: object) -> dict[str, Any]:
    """Return an observation, memory, event, difference, trace, type, context or the like as a JSON document.

    This is what the command line prints with `--json`: times in ISO 8601, positions as text. In an observation, the
    fields of the specification come first; of the bus's own fields, those with default values are left out. Events
    leave out fields that are None. Raises TypeError for anything else.
    """
    raise TypeError(f"{type(value).__name__} has no JSON document")


@document_of.register
def _(observation: Observation) -> dict[str, Any]:
    return {name: _plain(value) for name, value in shown_fields(observation).items()}


def shown_fields(observation: Observation) -> dict[str, Any]:
    """Return the fields of an observation's document unconverted: times as datetime, the claim as Claim.

    A JSON encoder converts them faster than Python would. Do not change the lists and objects in it.
    """
    values = vars(observation)
    ms, seq, shard, added_ms = values["ms"], values["seq"], values["shard"], values["added_ms"]
    updated = time_of_position(ms)
    created = updated if added_ms == ms else time_of_position(added_ms)
    position = f"{ms}-{seq}" if not shard else str(Position(ms, seq, shard))
    fields = {  # SPECIFIED and ALWAYS_SHOWN, written out because that takes half as long
        "id": values["id"],
        "type": values["type"],
        "content": values["content"],
        "source": values["source"],
        "owner": values["owner"],
        "status": values["status"],
        "confidence": values["confidence"],
        "context": values["context"],
        "tags": values["tags"],
        "created_at": created,
        "updated_at": updated,
        "expires_at": values["expires_at"],
        "metadata": values["metadata"],
        "page": values["page"],
        "version": values["version"],
        "position": position,
        "priority": values["priority"],
    }
    if _bus_values(values) != _BUS_DEFAULTS:  # rare: new observations have the defaults
        fields.update({name: values[name] for name, default in BUS_FIELDS.items() if values[name] != default})
    if values["added_seq"] != seq:
        fields["added"] = str(observation.added)
    return fields


_BUS_DEFAULTS: Final = tuple(BUS_FIELDS.values())
_bus_values = itemgetter(*BUS_FIELDS)


def _plain(value: Any) -> Any:
    """Return the JSON form of a field's value."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + "Z"
    if isinstance(value, list | dict):
        return value.copy()
    return value.model_dump(mode="json") if isinstance(value, Claim) else value


@document_of.register
def _(fact: Fact) -> dict[str, Any]:
    document = fact.model_dump(mode="json", exclude=POSITION_FIELDS)
    if fact.retraction is not None:
        fields = fact.retraction.model_dump(exclude=POSITION_FIELDS)
        document["retraction"] = fields | {"at": _plain(fact.retraction.at)}
    names = ("id", "subject", "relation", "object", "valid_at", "invalid_at", "confidence", "source")
    return {name: document[name] for name in names} | document


@document_of.register
def _(remembered: Note | Preference | Turn | ScratchFile | Text) -> dict[str, Any]:
    excluded = {*POSITION_FIELDS, "deleted", "forgotten"}  # such ones are not shown
    document = remembered.model_dump(mode="json", exclude=excluded)
    return {name: document[name] for name in type(remembered).__annotations__ if name in document} | document


@document_of.register
def _(event: Event) -> dict[str, Any]:
    document = event.model_dump(mode="json", exclude={*POSITION_FIELDS, "prev"})
    fields = {name: value for name, value in document.items() if value is not None}  # inside `changes`, None is a value
    return {"position": str(event.position), **fields}


@document_of.register
def _(difference: Difference) -> dict[str, Any]:
    before, after = (each and document_of(each) for each in (difference.before, difference.after))
    was, now = (each.model_dump(mode="json") if each else {} for each in (difference.before, difference.after))
    fields = {name: {"before": was[name], "after": now[name]} for name in difference.fields}
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


def _duration(value: int | str | None) -> str | None:
    """Return a duration as text; None if the settings decide."""
    return value if value is None or isinstance(value, str) else duration_text(value)
