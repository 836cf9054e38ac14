"""What the OpenAPI document says about the path of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from pydantic_core import SchemaValidator, core_schema

from scratchbus.errors import shown
from scratchbus.http.patterns import MEANINGS


def allowed(document: Mapping[str, Any], path: str) -> str | None:
    """Return the methods that a path has, for `Allow`; None for a path that the OpenAPI document does not have."""
    found = _found(document, path)
    if found is None:
        return None
    methods = {method.upper() for method in found[0]}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def malformed_part(document: Mapping[str, Any], path: str) -> str | None:
    """Return what is wrong with a part of a path, such as an id; None if the document has no such path."""
    operations, values = _found(document, path) or ({}, {})
    for operation in operations.values():
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                value, pattern = unquote(values[parameter["name"]]), parameter["schema"].get("pattern")
                if pattern in MEANINGS and not _fits(pattern, value):
                    return f"{parameter['name']}: {shown(value)} is not {MEANINGS[pattern]}"
    return None


def _found(document: Mapping[str, Any], path: str) -> tuple[Mapping[str, Any], Mapping[str, str]] | None:
    """Return the operations of a path and the values of its parameters, which are as few as possible."""
    matches = [(each, _pattern(each).fullmatch(path)) for each in document["paths"]]
    found = [(template, match.groupdict()) for template, match in matches if match]
    template, values = min(found, key=lambda each: len(each[1]), default=(None, {}))
    return None if template is None else (document["paths"][template], values)


def _fits(pattern: str, value: str) -> bool:
    return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python(value)


@lru_cache(1_000)
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    return re.compile(
        "".join(f"(?P<{each}>[^/]+)" if index % 2 else re.escape(each) for index, each in enumerate(parts))
    )
