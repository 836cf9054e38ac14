"""Which methods a path allows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def allowed(document: Mapping[str, Any], path: str) -> str | None:
    """Return the methods that a path has, for `Allow`; None for a path that the OpenAPI document does not have."""
    templates = [template for template in document["paths"] if _pattern(template).fullmatch(path)]
    if not templates:
        return None
    exact = min(templates, key=lambda template: template.count("{"))
    methods = {method.upper() for method in document["paths"][exact]}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


@lru_cache(1_000)
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", template)
    return re.compile("[^/]+".join(re.escape(part) for part in parts))
