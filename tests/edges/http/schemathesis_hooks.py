"""Hooks of schemathesis, for what the OpenAPI document cannot express."""

from __future__ import annotations

import json
import re
from typing import Any

import schemathesis
import yaml
from schemathesis.core.parameters import ParameterLocation

from tests.edges.conftest import ROOT

_UNASSIGNED = re.compile("[\u20f1-\u20ff]")
r"""Characters that it generates for marks (`\p{M}`), but that Unicode has not assigned, so that they are invalid."""

_SHIPPED = {
    f"PUT /api/v1/{field}": (field, yaml.safe_load((ROOT / "config" / file).read_text())[field])
    for field, file in (("types", "observation_types.yaml"), ("relations", "relations.yaml"))
}
"""By operation: the field with definitions that other operations need, and the shipped definitions."""


def _is_assigned(value: Any) -> bool:
    return not _UNASSIGNED.search(json.dumps(value, ensure_ascii=False, default=str))


@schemathesis.hook
def filter_body(_context: schemathesis.HookContext, body: Any) -> bool:
    """Return whether a body has no unassigned characters."""
    return not isinstance(body, dict | list) or _is_assigned(body)


@schemathesis.hook
def filter_query(_context: schemathesis.HookContext, query: Any) -> bool:
    """Return whether a query has no unassigned characters."""
    return query is None or _is_assigned(dict(query))


@schemathesis.hook
def filter_case(_context: schemathesis.HookContext, case: Any) -> bool:
    """Return whether the headers of a valid case match their patterns.

    Schemathesis takes "0" for a valid header where a pattern needs a character such as - or *.
    """
    given = case.headers or {}
    return (
        case.meta is None
        or not case.meta.generation.mode.is_positive
        or all(
            re.search(header.definition["schema"].get("pattern", ""), given.get(header.name, "")) is not None
            for header in case.operation.headers
            if header.name in given
        )
    )


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: Any, _kwargs: dict[str, Any]) -> None:
    """Change valid cases that the server could not accept, or after which it could accept no others.

    New types and relations are published together with the shipped ones, which other requests use; of two preconditions
    that contradict each other, one is sent.
    """
    field, shipped = _SHIPPED.get(case.operation.label, ("", {}))
    if field and isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        case.body = {**case.body, field: shipped | case.body[field]}
    headers = case.meta.components.get(ParameterLocation.HEADER)
    if headers is not None and headers.mode.is_positive and {"If-Match", "If-None-Match"} <= set(case.headers or ()):
        del case.headers["If-None-Match"]
