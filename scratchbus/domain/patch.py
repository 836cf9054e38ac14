"""The fields that an update may replace, as callers name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict


class ObservationPatch(TypedDict, total=False):
    """The keywords of `Page.update` and `Job.update`, each with its type; a field that is left out stays as it is.

    `owner` and `expires_at` may be None, which removes them. A `status` follows the lifecycle of the type.
    """

    content: str
    status: str
    owner: str | None
    confidence: float
    context: Mapping[str, Any]
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    expires_at: datetime | None
