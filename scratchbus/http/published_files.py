"""Files that are published to the bus, types and relations: as bodies in YAML or JSON, and as events on the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import yaml
from fastapi import Request

from scratchbus import AsyncBus
from scratchbus.errors import LogError, RegistryError, RelationsError
from scratchbus.http.documents import JSON, is_json, json_object, media_type_of, unsupported
from scratchbus.http.problems import Refusal

YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain")

T = TypeVar("T")

Parse = Callable[[str, str], T]
"""Parses a text in YAML; the second argument is the file name for errors."""


def yaml_or_json(description: str, in_yaml: dict[str, Any], in_json: dict[str, Any], example: object) -> dict[str, Any]:
    """Return the documentation of such a body, with its schemas."""
    content = {
        YAML[0]: {"schema": in_yaml, "example": example},
        JSON: {"schema": in_json, "example": example},
    }
    return {"requestBody": {"required": True, "description": description, "content": content}}


async def parsed(request: Request, parse: Parse[T], key: str) -> T:
    """Return the parsed body, whose first key is this one. Raises Refusal, and the errors of `parse`."""
    body = await request.body()
    if not body:
        raise Refusal(422, "invalid-body", f"the body is empty; send {key}, in YAML or JSON")
    kind = media_type_of(request, YAML[0])
    if is_json(kind):
        return _of_json(body, parse, key)
    if kind not in YAML:
        raise unsupported(kind, f"{YAML[0]} or {JSON}")
    try:
        return parse(body.decode(), f"{key}.yaml")
    except UnicodeDecodeError as problem:
        raise Refusal(400, "bad-text", f"the body is not UTF-8: {problem.reason}") from None


def _of_json(body: bytes, parse: Parse[T], key: str) -> T:
    """Return the parsed JSON object. Errors have no line, since the object is parsed as generated YAML."""
    document = json_object(body, f'{{"{key}": {{…}}}}')
    try:
        return parse(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), f"{key}.yaml")
    except RecursionError:
        raise Refusal(422, "invalid-body", "the body is nested too deep; flatten it") from None
    except (RegistryError, RelationsError) as problem:
        raise type(problem)(f"{key}.yaml", None, problem.key, problem.problem, problem.allowed) from None


class Publication(NamedTuple):
    """The version that an event published, and the text that it replaced; None for the first version."""

    version: int
    replaced: str | None


async def find_publication(bus: AsyncBus, subject: str, event_id: str | None) -> Publication | None:
    """Return what the event with this id published for a subject, `types` or `relations`; None if nothing is found.

    So a retry, with the same `Idempotency-Key`, gets the answer of the earlier request.
    """
    if event_id is None:
        return None
    version, replaced = 0, None
    with suppress(LogError):  # events that have left the log cannot be counted
        async for event in bus.events(pages=["_bus"], subjects=[subject]):
            version += 1
            if event.id == event_id and event.by == bus.settings.source:
                return Publication(version, replaced)
            replaced = getattr(event, "text", None)
    return None
