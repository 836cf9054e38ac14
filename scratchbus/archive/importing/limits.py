"""The limits of what an import takes, and the checks that several kinds of events share."""

from __future__ import annotations

from scratchbus.domain.checks import bytes_of
from scratchbus.errors import InvalidField, shown

LONGEST_MS = 100 * 365 * 86_400_000
"""The longest time that anything lasts."""

MOST_NOTEPAD = 1_000_000
"""The most characters of a notepad, whatever the settings."""


def check_same(field: str, given: object, kept: object) -> None:
    """Raise InvalidField unless a value is as a check of the live bus returns it."""
    if given != kept:
        raise InvalidField(field, f"{shown(given)} is not in the form the bus stores")


def check_text(field: str, text: str, most: int) -> None:
    """Raise InvalidField for a text of more characters, or one that is not valid Unicode."""
    bytes_of(field, text)
    if len(text) > most:
        raise InvalidField(field, f"{len(text):,} characters are over the limit of {most:,}")
