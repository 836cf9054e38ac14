"""Damaged stored documents, written before there were limits or by hand: what can still be read of them."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from scratchbus.domain.values import MAX_SAFE_INTEGER
from scratchbus.projections.stored_observation import StoredObservation

Document = TypeVar("Document", bound=BaseModel)

_REQUIRED = frozenset({"id", "page", "added_ms", "added_seq", "ms", "seq"})
"""The fields that identify and order a document: without them it is lost."""

_DIGITS = len(str(MAX_SAFE_INTEGER))


def salvage(model: type[Document], row: bytes) -> Document | None:
    """Return the readable part of a stored document, marked as damaged; None if it lacks the fields of `_REQUIRED`.

    Numbers that are too large become the largest; a field that still cannot be read gets its default, or is empty.
    """
    try:
        parsed = json.loads(row.decode("utf-8", "replace"), parse_int=_bounded, parse_constant=_none)
    except (ValueError, RecursionError):
        return None
    if isinstance(parsed, list):
        parsed = dict(zip(StoredObservation.__struct_fields__, parsed, strict=False))
        details = parsed.pop("details", None)
        parsed |= details if isinstance(details, dict) else {}
    if not isinstance(parsed, dict):
        return None
    last = {"ms": parsed.get("added_ms"), "seq": parsed.get("added_seq")}  # left out if there is only one event
    fields = {name: value for name, value in (last | parsed).items() if name in model.model_fields}
    while True:
        try:
            return model.model_validate(fields | {"damaged": True})
        except ValidationError as error:
            invalid = {str(problem["loc"][0]) for problem in error.errors(include_url=False, include_input=False)}
        for name in invalid:
            field = model.model_fields[name]
            if name in fields and not field.is_required():
                del fields[name]
            elif name not in _REQUIRED and field.annotation is str and fields.get(name) != "":
                fields[name] = ""
            else:
                return None


def _bounded(digits: str) -> int:
    """Return a number of a document, at most the largest."""
    if len(digits) > _DIGITS + 1:
        return -MAX_SAFE_INTEGER if digits.startswith("-") else MAX_SAFE_INTEGER
    return max(-MAX_SAFE_INTEGER, min(int(digits), MAX_SAFE_INTEGER))


def _none(name: str) -> None:
    """Return nothing for NaN and infinity."""
