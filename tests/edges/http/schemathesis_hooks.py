r"""What schemathesis takes for marks (`\p{M}`), and Unicode has not assigned, is no valid text."""

from __future__ import annotations

import json
import re
from typing import Any

import schemathesis

_UNASSIGNED = re.compile("[\u20f1-\u20ff]")


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
