"""Documents as the state stores them: JSON without what is default, or follows from other fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, cast

import msgspec
from pydantic import ValidationError

from scratchbus.domain.observation import Claim, Observation, ObservationFields
from scratchbus.domain.values import LARGEST, trusted
from scratchbus.errors import shown
from scratchbus.eventlog.salvage import salvage
from scratchbus.projections.projection import D, Document
from scratchbus.projections.table import projection_of
from scratchbus.telemetry.logs import stderr_logger

UNREADABLE = (ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a stored document raises when it is not one."""

logger = stderr_logger()

SURE: float = ObservationFields.model_fields["confidence"].default
"""The confidence of most: this very object, by which msgspec knows that it can be left out."""

Whole = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Confidence = Annotated[float, msgspec.Meta(ge=0, le=1)]


class StoredClaim(msgspec.Struct, omit_defaults=True, gc=False):
    """A `Claim`, as it is stored."""

    by: str
    fence: int
    until: datetime
    owner: str | None = None


class StoredObservation(msgspec.Struct, omit_defaults=True, gc=False):
    """An `Observation`, as it is stored: the same fields, which are checked in the same way.

    Those of `ObservationFields` come together, in the same order. `ms` and `seq` are left out, as 0, while the event
    that added it is the last one about it.
    """

    id: str
    page: str
    type: str
    source: str
    added_ms: int
    added_seq: int
    content: str
    owner: str | None = None
    status: str = "active"
    status_class: str = "open"
    confidence: Confidence = SURE
    context: dict[str, Any] = {}
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    priority: Whole = 50
    expires_at: datetime | None = None
    dedupe_key: str | None = None
    evidence: list[str] = []
    remind_at: datetime | None = None
    remind_on: dict[str, Any] | None = None
    occurrences: int = 1
    shard: int = 0
    ms: int = 0
    seq: int = 0
    version: int = 1
    damaged: bool = False
    links: list[str] = []
    claim: StoredClaim | None = None
    reason: str | None = None
    reason_code: str | None = None
    chain: list[str] = []
    seen_by: list[str] = []
    followed: list[str] = []
    archive_at: datetime | None = None
    due_at: datetime | None = None
    fence: int = 0
    attempts: int = 0
    not_before: datetime | None = None


_fields_of = msgspec.structs.asdict
encode_stored = msgspec.json.Encoder().encode
_decode_one = msgspec.json.Decoder(StoredObservation).decode
_decode_many = msgspec.json.Decoder(list[StoredObservation]).decode


def encode_document(document: Document) -> bytes:
    """Return the stored form of a document."""
    if not isinstance(document, Observation):
        serializer = type(document).__pydantic_serializer__
        return serializer.to_json(document, exclude_defaults=True, exclude_computed_fields=True)
    fields, claim = document.__dict__, document.claim
    stored = StoredObservation(**fields)
    if claim is not None:
        stored.claim = StoredClaim(**claim.__dict__)
    if stored.seq == stored.added_seq:
        stored.ms = stored.seq = 0
    return encode_stored(stored)


def _observation(stored: StoredObservation) -> Observation:
    """Return the observation that was stored."""
    if not stored.seq:
        stored.ms, stored.seq = stored.added_ms, stored.added_seq
    fields = _fields_of(stored)
    if stored.claim is not None:
        fields["claim"] = trusted(Claim, _fields_of(stored.claim))
    return trusted(Observation, fields)


def read_document(subject: str, row: bytes) -> Document:
    """Return the stored document of a subject. Raises one of UNREADABLE."""
    document: Document = read_as(projection_of(subject).document, row)
    return document


def read_as(model: type[D], row: bytes) -> D:
    """Return the stored document of this class. Raises one of UNREADABLE."""
    if issubclass(model, Observation):
        return _observation(_decode_one(row))  # type: ignore[return-value]  # the only such class
    return model.__pydantic_validator__.validate_json(row)  # type: ignore[no-any-return]  # compiled from it


def decode_document(subject: str, row: bytes) -> Document | None:
    """Return the stored document of a subject; marked as damaged, or None, if it cannot be read as it is."""
    try:
        return read_document(subject, row)
    except UNREADABLE:
        logger.warning("a document cannot be read; run `scratchbus rebuild`", subject=subject, document=shown(row))
        return salvage(projection_of(subject).document, row)


def decode_observation(row: bytes) -> Observation | None:
    """Return the observation of a stored document, as `decode_document` does."""
    return cast(Observation | None, decode_document("", row))


def decode_observations(rows: Sequence[bytes | None]) -> list[Observation]:
    """Return the observations of many stored documents at once; None, and what cannot be read at all, is left out."""
    try:
        return read_observations(b",".join(filter(None, rows)))
    except UNREADABLE:
        return [each for row in rows if row and (each := decode_observation(row)) is not None]


def read_observations(rows: bytes) -> list[Observation]:
    """Return the observations of stored documents with commas between them. Raises one of UNREADABLE."""
    return list(map(_observation, _decode_many(b"[%b]" % rows)))
