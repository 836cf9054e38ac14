"""The digest of an addition, which tells a retry with the caller's own event id from another addition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scratchbus.domain.digest import digest_of
from scratchbus.domain.models import default_of
from scratchbus.domain.observation_models import GUARDS, ObservationFields
from scratchbus.eventlog.writes import Write

_DEFAULTS = {
    name: default_of(field)
    for name, field in ObservationFields.model_fields.items()
    if not field.is_required() and name != "status"  # a type has its own
}


def digest_of_addition(page: str, arguments: Mapping[str, Any], by: str | None, batch_size: int) -> str:
    """Return the digest of checked arguments; `by` is the identity of the bus, if it has one.

    A default value counts as not given, and the source of a bus as its identity: the command line gives some that
    programs leave out.
    """
    given = {
        name: value
        for name, value in arguments.items()
        if name not in GUARDS and not (name in _DEFAULTS and value == _DEFAULTS[name])
    }
    source = given.pop("source", by)
    if by is not None and source != by:
        given["source"] = source
    return digest_of("add", page, given, by or source, batch_size)


def use_old_digests(
    page: str, writes: Sequence[Write], items: Sequence[Mapping[str, Any]], by: str | None, batch_size: int
) -> bool:
    """Give additions their digests as older versions made them, with default values; return whether they have any."""
    for write, arguments in zip(writes, items, strict=True):
        if write.digest:
            given = {name: value for name, value in arguments.items() if name not in GUARDS}
            write.digest = digest_of("add", page, given, by, batch_size)
    return bool(writes[0].digest)
