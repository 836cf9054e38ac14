"""Check whether the body of a request that the bus refused matches the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import re2
import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from pydantic_core import from_json

MAX_VALUES: Final = 25_000
"""The most values of a body that are compared, in half a second; 1,000 observations with all fields have fewer."""

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_body(body: bytes, content_type: str) -> object:
    """Parse a body in JSON or YAML; {} for an empty one. Raises ValueError if it cannot be parsed safely."""
    if not body:
        return {}
    if "yaml" not in content_type:
        return from_json(body)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, Loader=_Loader)):
            raise ValueError("aliases may expand to more values than can be checked")
        return yaml.load(body, Loader=_Loader)  # noqa: S506 - a safe one
    except (
        yaml.YAMLError,
        RecursionError,
        LookupError,
        AttributeError,
    ) as problem:  # the last two: a tag that fits no value
        raise ValueError(str(problem)) from None


def schema_of(document: Mapping[str, Any], operation: str) -> dict[str, Any] | None:
    """Return the schema that the document has for the body of an operation; None for one without a body in JSON."""
    operations = (each for methods in document["paths"].values() for each in methods.values())
    bodies = (each.get("requestBody", {}) for each in operations if each["operationId"] == operation)
    schema = next(bodies).get("content", {}).get("application/json", {}).get("schema")
    return None if schema is None else {**schema, "components": document["components"]}


def fits(schema: Mapping[str, Any], body: bytes, content_type: str) -> bool:
    """Return whether a body matches a schema; False if it cannot be parsed, or has too many values."""
    try:
        document = read_body(body, content_type)
    except ValueError:
        return False  # it is of another media type, which only the route reads
    if _has_more_values(document, MAX_VALUES):
        return False
    found: bool = _Validator(schema).is_valid(document)
    return found


def _has_more_values(document: object, limit: int) -> bool:
    """Return whether a document has more values than this, at all levels."""
    pending = [document]
    while pending and limit >= 0:
        value = pending.pop()
        limit -= 1
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return limit < 0


def _matches(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and _compiled(pattern).search(value) is None:
        yield ValidationError(f"{value!r} does not match {pattern!r}")


_compiled = cache(re2.compile)  # Python's own patterns know no classes of characters such as \p{L}
_Validator: Final[Any] = extend(Draft202012Validator, {"pattern": _matches})  # type: ignore[no-untyped-call]  # untyped
