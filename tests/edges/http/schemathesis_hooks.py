"""What schemathesis does not know of the API it makes requests for."""

from __future__ import annotations

import json
import re
from typing import Any

import schemathesis
import yaml
from schemathesis.core.parameters import ParameterLocation

from tests.edges.conftest import ROOT

_UNASSIGNED = re.compile("[\u20f1-\u20ff]")
r"""What it takes for marks (`\p{M}`), and Unicode has not assigned, is no valid text."""

_SHIPPED = {
    f"PUT /api/v1/{field}": (field, yaml.safe_load((ROOT / "config" / file).read_text())[field])
    for field, file in (("types", "observation_types.yaml"), ("relations", "relations.yaml"))
}
"""What operations would replace that others need: which field has it, and what it is."""


def _is_assigned(value: Any) -> bool:
    return not _UNASSIGNED.search(json.dumps(value, ensure_ascii=False, default=str))


@schemathesis.hook
def filter_body(_context: schemathesis.HookContext, body: Any) -> bool:
    """Return whether a body has none of these."""
    return not isinstance(body, dict | list) or _is_assigned(body)


@schemathesis.hook
def filter_query(_context: schemathesis.HookContext, query: Any) -> bool:
    """Return whether a query has none of these."""
    return query is None or _is_assigned(dict(query))


@schemathesis.hook
def filter_case(_context: schemathesis.HookContext, case: Any) -> bool:
    """Return whether what is to be accepted is as documented.

    It takes "0" for a valid header where a pattern needs a character such as - or *.
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
    """Send what the server can do something with.

    New types and relations are published beside those that come with scratchbus, of which nothing could be added any
    more; of two conditions that contradict each other one is sent.
    """
    field, shipped = _SHIPPED.get(case.operation.label, ("", {}))
    if field and isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        case.body = {**case.body, field: shipped | case.body[field]}
    headers = case.meta.components.get(ParameterLocation.HEADER)
    if headers is not None and headers.mode.is_positive and {"If-Match", "If-None-Match"} <= set(case.headers or ()):
        del case.headers["If-None-Match"]
