"""Descriptions of how a stored value differs from the expected one; "" if it does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scratchbus.errors import shown
from scratchbus.eventlog.index_tables import TableName
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.stored_documents import UNREADABLE, encode_document, read_as
from scratchbus.projections.projection import Document


def presence(expected: object, row: bytes | None) -> str:
    """Describe a member that is missing, or should not be there."""
    if (expected is None) == (row is None):
        return ""
    return "is missing" if row is None else "should not be there"


def text_difference(expected: object, row: bytes) -> str:
    """Describe how a text differs."""
    return "" if row == str(expected).encode() else f"is {shown(row)} instead of {expected}"


def score_difference(expected: float, row: bytes) -> str:
    """Describe how a score differs."""
    return "" if float(row) == expected else f"has the score {row.decode()} instead of {expected}"


def moment_difference(latest: int, row: bytes) -> str:
    """Describe a moment that is later than the latest one (ms)."""
    is_early = row.isdigit() and int(row) <= latest
    return "" if is_early else f"is {shown(row)}, after {latest}, when the first on it expires"


def head_difference(is_of_system: bool, expected: Head, row: bytes) -> str:
    """Describe the fields of a head that differ; of the registry's, only some are used."""
    try:
        head = Head.parse(row)
    except (ValueError, TypeError):
        return f"cannot be read: {shown(row)}"
    if is_of_system:  # nothing else of it is used
        head = expected._replace(version=head.version, position=head.position)
    elif not expected.added:  # erased, with its former fields
        head = head._replace(priority=0, added=0, fence=0)
    return "" if head == expected else differences(head, expected, Head._fields)


def table_difference(_: object, row: bytes) -> str:
    """Describe the name of a table that cannot be read."""
    if row.isdigit():
        return ""  # how many entries the engine has
    try:
        TableName.parse(b"0", row)
    except ValueError:
        return f"cannot be read: {shown(row)}"
    return ""


def document_difference(expected: Document, row: bytes) -> str:
    """Describe the fields of a document that differ."""
    if row == encode_document(expected):
        return ""
    try:
        stored = read_as(type(expected), row)
    except UNREADABLE:
        return f"cannot be read: {shown(row)}"
    names = list(type(expected).model_fields)
    return differences([getattr(stored, name) for name in names], [getattr(expected, name) for name in names], names)


def differences(stored: Iterable[Any], expected: Iterable[Any], names: Iterable[str]) -> str:
    """Describe the fields that differ: actual and expected value."""
    return ", ".join(
        f"{name} is {shown(one)} instead of {shown(other)}"
        for name, one, other in zip(names, stored, expected, strict=True)
        if one != other
    )
