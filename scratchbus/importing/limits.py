"""The limits of what an import takes, and the checks that several kinds of events share."""

from __future__ import annotations

from scratchbus.domain.checks import bytes_of
from scratchbus.errors import InvalidField, shown

LARGEST = 2**53 - 1
"""The largest number that Lua, JavaScript and every JSON parser read exactly."""

MOST_TIMES = 1_000_000_000
"""The most sightings that one event may stand for."""

LONGEST_MS = 100 * 365 * 86_400_000
"""The longest time that anything lasts."""

MOST_NOTEPAD = 1_000_000
"""The most characters of a notepad, whatever the settings."""


def check_whole(field: str, value: object, least: int, most: int = LARGEST) -> int:
    """Return a whole number within these bounds. Raises InvalidField."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidField(field, f"{shown(value)} is not a whole number from {least} to {most}")
    return value


def check_same(field: str, given: object, kept: object) -> None:
    """Raise InvalidField unless a value is as a check of the live bus returns it."""
    if given != kept:
        raise InvalidField(field, f"{shown(given)} is not as the bus would have kept it")


def check_text(field: str, text: str, most: int) -> None:
    """Raise InvalidField for a text of more characters, or one that is not valid Unicode."""
    bytes_of(field, text)
    if len(text) > most:
        raise InvalidField(field, f"{len(text):,} characters are over the limit of {most:,}")
