"""The OpenAPI document of a server, and requests made from its examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote

from jsonschema_rs import Draft202012Validator

Schema = dict[str, Any]


class Request(NamedTuple):
    """A request that an example describes."""

    method: str
    path: str
    params: dict[str, Any]
    headers: dict[str, str]
    body: Any


class Operation:
    """One operation of the document."""

    def __init__(self, document: Schema, path: str, method: str, validators: dict[str, Draft202012Validator]) -> None:
        self._document = document
        self._validators = validators  # of all operations: making one reads the whole document
        self._raw: Schema = document["paths"][path][method]
        self.path = path
        self.method = method
        self.id: str = self._raw["operationId"]

    def __repr__(self) -> str:
        return self.id

    @cached_property
    def definition(self) -> Any:
        """The definition, with references to examples and responses resolved."""
        return _followed(self._raw, self._document)

    def parameters(self) -> Iterator[Schema]:
        yield from self.definition.get("parameters", [])

    def responses(self) -> Iterator[tuple[int, Schema]]:
        for status, response in self.definition["responses"].items():
            yield int(status), response

    def examples(self, content: Schema) -> list[Any]:
        """Return the examples of a media type: its own, or those of its schema."""
        if "example" in content:
            return [content["example"]]
        found: list[Any] = [each["value"] for each in content.get("examples", {}).values()]
        return found or _resolved(content.get("schema", {}), self._document).get("examples", [])

    def check(self, schema: Schema, value: Any) -> None:
        """Fail unless a value matches a schema."""
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator({**schema, "components": self._document["components"]})
        self._validators[key].validate(value)

    def request(self, replacements: Mapping[str, str]) -> Request:
        """Return the request that the examples describe, with some of their texts replaced."""
        params: dict[str, Any] = {}
        path = self.path
        for each in self.parameters():
            if not each.get("required") or each["in"] == "header":
                continue
            value = _replaced(_example_of(each), replacements)
            if each["in"] == "path":
                path = path.replace("{" + each["name"] + "}", quote(str(value), safe=""))
            else:
                params[each["name"]] = value
        content = self.definition.get("requestBody", {}).get("content", {})
        kind, media = next(iter(content.items()), ("", {}))
        examples = self.examples(media) if media else []
        headers = {"content-type": kind} if examples else {}
        return Request(self.method, path, params, headers, _replaced(examples[0], replacements) if examples else None)


def operations(document: Schema) -> list[Operation]:
    """Return all operations of a document."""
    validators: dict[str, Draft202012Validator] = {}
    return [
        Operation(document, path, each, validators) for path, methods in document["paths"].items() for each in methods
    ]


def references(value: Any) -> Iterator[str]:
    """Yield all references in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def resolve(document: Schema, reference: str) -> Any:
    """Return the target of a reference. Raises KeyError."""
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _example_of(parameter: Schema) -> Any:
    if "example" in parameter:
        return parameter["example"]
    schema = parameter.get("schema") or next(iter(parameter["content"].values()))["schema"]
    for found in (parameter.get("examples", {}), schema.get("examples", [])):
        if found:
            first = next(iter(found.values())) if isinstance(found, dict) else found[0]
            return first["value"] if isinstance(first, dict) and "value" in first else first
    raise AssertionError(f"parameter {parameter['name']} has no example")


def _resolved(schema: Schema, document: Schema) -> Schema:
    while "$ref" in schema:
        schema = resolve(document, schema["$ref"])
    return schema


def _followed(value: Any, document: Schema) -> Any:
    """Return a part of the document with the targets of all references, except those to schemas."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#/components/schemas/"):
            return _followed(resolve(document, reference), document)
        return {name: _followed(inner, document) for name, inner in value.items()}
    return [_followed(inner, document) for inner in value] if isinstance(value, list) else value


def _replaced(value: Any, replacements: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    for old, new in replacements.items():
        text = re.sub(rf'"{re.escape(old)}"', json.dumps(new), text)
    return json.loads(text)
