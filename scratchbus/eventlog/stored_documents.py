"""Documents as the state stores them: JSON without defaults, and without fields that follow from others.

An observation is an array (see `StoredObservation`), a memory an object. Of a document that was damaged by hand, or
written before there were limits, the readable part is returned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from pydantic import ValidationError

from scratchbus.domain.observation import Observation
from scratchbus.domain.values import MAX_SAFE_INTEGER
from scratchbus.errors import shown
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.projections.projection import D, Document
from scratchbus.projections.scratch_page import as_observation
from scratchbus.projections.stored_observation import AnyObservation, StoredObservation
from scratchbus.projections.subjects import projection_of
from scratchbus.telemetry.logs import stderr_logger

UNREADABLE = (ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors for a stored document that cannot be read."""

logger = stderr_logger()

_encode = msgspec.json.Encoder().encode
encode_plain: Callable[[tuple[object, ...]], bytes] = _encode
"""Returns the JSON of an observation's basics, as `encode_stored` does if its details are plain."""
decode_row = msgspec.json.Decoder(StoredObservation).decode
_decode_many = msgspec.json.Decoder(list[StoredObservation]).decode

_PLAIN_DETAILS = b",{}]"

_REQUIRED = frozenset({"id", "page", "added_ms", "added_seq", "ms", "seq"})
"""The fields that identify and order a document: without them it is lost."""

_MAX_DIGITS = len(str(MAX_SAFE_INTEGER))


def encode_stored(observation: StoredObservation) -> bytes:
    """Return the JSON of an observation in its stored form."""
    row = _encode(observation)
    return row[: -len(_PLAIN_DETAILS)] + b"]" if row.endswith(_PLAIN_DETAILS) else row


def encode_document(document: Document | StoredObservation) -> bytes:
    """Return the stored form of a document."""
    if isinstance(document, StoredObservation):
        return encode_stored(document)
    if not isinstance(document, Observation):
        serializer = type(document).__pydantic_serializer__
        return serializer.to_json(document, exclude_defaults=True, exclude_computed_fields=True)
    return encode_stored(StoredObservation.of(document))


def read_document(subject: str, row: bytes) -> Document:
    """Return the stored document of a subject. Raises one of UNREADABLE."""
    document: Document = read_as(projection_of(subject).document, row)
    return document


def read_as(model: type[D], row: bytes) -> D:
    """Return the stored document of this class. Raises one of UNREADABLE."""
    if issubclass(model, Observation):
        return as_observation(decode_row(row))  # type: ignore[return-value]  # the only such class
    return model.__pydantic_validator__.validate_json(row)  # type: ignore[no-any-return]  # compiled from it


def decode_document(subject: str, row: bytes) -> Document | None:
    """Return the stored document of a subject; marked as damaged, or None, if it cannot be read as stored."""
    try:
        return read_document(subject, row)
    except UNREADABLE:
        logger.warning("a document cannot be read; run `scratchbus rebuild`", subject=subject, document=shown(row))
        return _salvage(projection_of(subject).document, row)


def decode_observation(row: bytes) -> Observation | None:
    """Return the observation of a stored document, as `decode_document` does."""
    return cast(Observation | None, decode_document("", row))


def decode_observations(rows: Sequence[bytes | None]) -> list[Observation]:
    """Return the observations of many stored documents; leave out None and documents that cannot be read at all."""
    return [*map(as_observation, decode_stored(rows))]


def decode_stored(rows: Sequence[bytes | None]) -> Sequence[AnyObservation]:
    """Return the same, in the form in which they are stored."""
    try:
        return [*map(decode_row, filter(None, rows))]
    except UNREADABLE:
        return [each for row in rows if row and (each := decode_observation(row)) is not None]


def read_many(rows: bytes) -> list[StoredObservation]:
    """Return the observations of stored documents separated by commas. Raises one of UNREADABLE."""
    return _decode_many(b"[%b]" % rows)


def _salvage(model: type[Document], row: bytes) -> Document | None:
    """Return the readable part of a stored document, marked as damaged; None if it lacks the fields of `_REQUIRED`.

    Numbers that are too large become the largest; a field that still cannot be read gets its default, or is empty.
    """
    try:
        parsed = json.loads(text_of(row), parse_int=_bounded, parse_constant=_none)
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
    if len(digits) > _MAX_DIGITS + 1:
        return -MAX_SAFE_INTEGER if digits.startswith("-") else MAX_SAFE_INTEGER
    return max(-MAX_SAFE_INTEGER, min(int(digits), MAX_SAFE_INTEGER))


def _none(name: str) -> None:
    """Return nothing for NaN and infinity."""
