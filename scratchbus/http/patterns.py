"""What the texts of requests look like, as the OpenAPI document says it and as query parameters are checked."""

from __future__ import annotations

from typing import Any, Final

PAGE: Final = "^[A-Za-z0-9_.@/:-]{1,128}$"
SESSION: Final = "^[A-Za-z0-9_.@/:-]{1,120}$"
SCOPE: Final = "^[A-Za-z0-9_.@/:-]{1,118}$"
SOURCE: Final = "^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}$"
TYPE: Final = "^[a-z][a-z0-9_]{0,63}$"
ID: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
EVENT_ID: Final = "^[!-~]{1,200}$"
VERSION: Final = r'^(\*|(W/)?"?[1-9][0-9]{0,14}"?)$'

NOT_BLANK: Final = r"[^\s\x1c-\x1f\x85]"

_PRINTABLE: Final = r"\p{L}\p{M}\p{N}\p{P}\p{S}"
LABEL: Final = rf"^ *[{_PRINTABLE}][{_PRINTABLE} ]*$"
"""Printable characters, not only spaces."""

KEY: Final = rf"^[{_PRINTABLE} ]*[\p{{L}}\p{{Nd}}][{_PRINTABLE} ]*$"
"""One line with a letter or digit."""

_CONTROL: Final = r"\x00-\x1f\x7f-\x9f"
_FILE_NAME: Final = rf"(\.{{0,2}}[^./\\{_CONTROL}][^/\\{_CONTROL}]*|\.{{3}}[^/\\{_CONTROL}]*)"
FILE: Final = f"^{_FILE_NAME}(/{_FILE_NAME})*$"
"""A relative path: names between slashes, none of them empty, . or .."""

TURN: Final = "^turn_[0-9]{1,16}$"
SHOWN_TURN: Final = "^(turn|task)_[0-9]{1,16}$"

_YEAR: Final = "(19[7-9]|[2-8][0-9][0-9])[0-9]"
_TIME: Final = (
    rf"{_YEAR}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,9}})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
TIME: Final = f"^{_TIME}$"
"""A time of RFC 3339, with its zone, from 1970 to 8999."""

_PLACE: Final = "[0-9]{1,15}-[0-9]{1,15}"
POSITION: Final = f"^([0-9]{{1,5}}/)?{_PLACE}$"
MOMENT: Final = f"^({_TIME}|([0-9]{{1,5}}/)?{_PLACE}|{_PLACE}(,{_PLACE})+)$"
"""A time, the position of an event, or that of the bus."""

_NUMBER: Final = r"([1-9][0-9]{{0,{most}}}(\.[0-9]{{1,3}})?|0\.[0-9]{{0,2}}[1-9])"
_LENGTH: Final = "|".join(
    [
        r"[1-9][0-9]{0,10}(\.[0-9]{1,3})?ms",
        *(_NUMBER.format(most=most) + unit for unit, most in (("s", 7), ("m", 5), ("h", 3), ("d", 2), ("w", 1))),
    ]
)
DURATION: Final = f"^({_LENGTH}){{1,5}}$"

_DAY: Final = "(mon|tue|wed|thu|fri|sat|sun)"
_CRON: Final = " ".join(
    [
        r"(\*|\*/[1-9]|[1-5]?[0-9])",
        r"(\*|\*/[1-9]|1?[0-9]|2[0-3])",
        r"(\*|[1-9]|1[0-9]|2[0-8])",
        r"(\*|[1-9]|1[0-2])",
        rf"(\*|{_DAY}|mon-fri)",
    ]
)
EVERY: Final = f"^([1-9][0-9]{{0,2}}[smhd]|{_CRON})$"
"""An interval, or a line of cron: not each that is accepted, but each of these is."""

BUS_POSITION: Final = f"^(([0-9]{{1,5}}/)?{_PLACE}|{_PLACE}(,{_PLACE})+)$"
"""The position of an event, or that of the bus."""

LARGEST: Final = 2**53 - 1


def text(pattern: str, description: str = "", **more: Any) -> dict[str, Any]:
    """Return the schema of a text."""
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, **more}
    return {**schema, "description": description} if description else schema
