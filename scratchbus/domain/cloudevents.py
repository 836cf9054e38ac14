"""CloudEvents 1.0 in JSON: events of the log as CloudEvents, and others' CloudEvents as observations."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import SchemaValidator

from scratchbus.domain.checks import check_object
from scratchbus.domain.documents import document_of
from scratchbus.domain.event import Event
from scratchbus.domain.models import checked, optional_fields, refusal_in
from scratchbus.domain.observation_models import NewObservation
from scratchbus.errors import InvalidField, shown

_REQUIRED: Final = ("id", "source", "type")
_OURS: Final = "scratchbus.added"
_KEPT: Final = ("type", "content", "tags", "context", "metadata", "confidence", "owner")
_LINE_END = re.compile(r"\r\n?|\n")  # `splitlines` would also split texts, as at U+2028
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.@/-]+")


def cloud_event(event: Event, bus: str) -> dict[str, Any]:
    """Return an event as a CloudEvent: its `source` is the bus, its `type` the kind, its data the event's document.

    `page`, `position` and `by` are extension attributes, and so is `traceparent` if it is known.
    """
    document = document_of(event)
    found = {
        "specversion": "1.0",
        "id": event.id,
        "source": f"urn:scratchbus:{quote(bus, safe='/@')}",
        "type": f"scratchbus.{event.kind}",
        "subject": event.subject,
        "time": document["at"],
        "datacontenttype": "application/json",
        "page": event.page,
        "position": document["position"],
        "by": event.by,
        "data": document,
    }
    return found if event.traceparent is None else {**found, "traceparent": event.traceparent}


def read_cloud_events(text: str, type: str = "observation") -> list[dict[str, Any]]:
    """Return the arguments of `Page.add`, with this type, for each CloudEvent in a text, and its `traceparent`, if any.

    The text is one CloudEvent, a list of them, or one per line, in JSON. The content is that of the data, or the data
    themselves; `context` has the attributes, `metadata` the data. The event id is derived from the source and id, so
    that a CloudEvent that arrives twice is added once. An addition on another bus keeps its type and fields; other
    events of a bus are left out. Raises InvalidField, with the number of the CloudEvent.
    """
    found = []
    for number, event in enumerate(_documents(text), 1):
        try:
            arguments = _observation(event, type)
            if arguments is not None:
                _checks().validate_python(arguments)
        except ValidationError as error:
            raise InvalidField(f"CloudEvent {number}", f"{refusal_in(error)}; nothing was written") from None
        except ValueError as problem:
            raise InvalidField(f"CloudEvent {number}", f"{problem}; nothing was written") from None
        if arguments is not None:
            found.append(arguments)
    return found


@cache
def _checks() -> SchemaValidator:
    """Return the compiled checks of the arguments of `Page.add`."""
    return optional_fields({name: checked(field) for name, field in NewObservation.model_fields.items()})


def _documents(text: str) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return document if isinstance(document, list) else [document]
    found = []
    for number, line in enumerate(_LINE_END.split(text), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as problem:
                raise InvalidField(f"line {number}", f"is not JSON: {problem}; nothing was written") from None
    return found


def _observation(event: Any, type: str) -> dict[str, Any] | None:
    """Return the arguments of `Page.add`; None for other events of a bus than additions. Raises ValueError."""
    if not isinstance(event, dict):
        raise ValueError(f"{shown(event)} is not an object")
    if event.get("specversion") != "1.0":
        raise ValueError(f"specversion is {shown(event.get('specversion'))}; only 1.0 is supported")
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise ValueError(f"{name} is missing or not a text")
    if event["type"].startswith("scratchbus.") and event["type"] != _OURS:
        return None
    data = _data(event)
    named = hashlib.sha256(f"{event['source']}\0{event['id']}".encode()).hexdigest()[:32]
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    arguments: dict[str, Any] = {"type": type, "event_id": f"cloudevent:{named}", "source": _source(event["source"])}
    if isinstance(data, dict) and event["type"] == _OURS:
        arguments |= {name: data[name] for name in _KEPT if data.get(name) not in (None, "", [], {})}
        arguments["source"] = data.get("source") or data.get("by") or arguments["source"]
    elif data is not None:
        arguments["content"] = (
            data["content"] if isinstance(data, dict) and _is_text(data.get("content")) else _text(data)
        )
        arguments |= {} if isinstance(data, str) else {"metadata": {"data": data}}
    arguments.setdefault("content", f"{event['type']} {event.get('subject') or ''}".strip())
    arguments["context"] = check_object("context", arguments.get("context")) | {"cloudevent": attributes}
    if isinstance(event.get("traceparent"), str):
        arguments["traceparent"] = event["traceparent"]
    return arguments


def _data(event: dict[str, Any]) -> Any:
    """Return the data; bytes as text if they are UTF-8, else unchanged in base64. Raises ValueError."""
    if "data_base64" not in event:
        return event.get("data")
    try:
        return base64.b64decode(event["data_base64"], validate=True).decode()
    except UnicodeDecodeError:
        return {"data_base64": event["data_base64"]}
    except (ValueError, TypeError):
        raise ValueError("data_base64 is not base64") from None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _text(data: Any) -> str:
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _source(uri: str) -> str:
    """Return a source name derived from a URI; the URI itself is in the context."""
    return _NOT_A_NAME.sub("-", uri.removeprefix("https://").removeprefix("http://")).strip("-./@")[:64] or "cloudevent"
