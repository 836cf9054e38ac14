"""The patterns of texts in requests, for the OpenAPI document and the checks of query parameters."""

from __future__ import annotations

from typing import Any, Final

MEANINGS: Final[dict[str, str]] = {}
"""A description of the texts that match each pattern, for errors about other texts."""


def explain(explanation: str, pattern: str) -> str:
    """Register the explanation of a pattern, for error texts; return the pattern."""
    MEANINGS[pattern] = explanation
    return pattern


PAGE: Final = explain("a name; use 1–128 letters, digits and _.@/:-", "^[A-Za-z0-9_.@/:-]{1,128}$")
SESSION: Final = explain("a name; use 1–120 letters, digits and _.@/:-", "^[A-Za-z0-9_.@/:-]{1,120}$")
SCOPE: Final = explain("a name; use 1–118 letters, digits and _.@/:-", "^[A-Za-z0-9_.@/:-]{1,118}$")
SOURCE: Final = explain(
    "a source; use 1–128 letters, digits and _.:@/-, starting with a letter or digit",
    "^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}$",
)
TYPE: Final = explain("a name; use 1–64 small letters, digits and _, starting with a letter", "^[a-z][a-z0-9_]{0,63}$")
ID: Final = explain("the id of an observation; ids are ULIDs of 26 characters", "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")
EVENT_ID: Final = explain("an id; use 1–200 printable ASCII characters, and no space", "^[!-~]{1,200}$")
VERSION: Final = explain(
    'the version of an observation; send the ETag of a read, such as "3", or *', r'^(\*|(W/)?"?[1-9][0-9]{0,14}"?)$'
)
REVISION: Final = explain(
    'a version; send the ETag of a read, such as "3", or "0" for a memory never written',
    r'^(W/)?"?(0|[1-9][0-9]{0,14})"?$',
)
NOTHING: Final = explain("*; to compare a version, use If-Match", r"^\*$")

NOT_BLANK: Final = explain("a text that says something; write more than spaces", r"[^\s\x1c-\x1f\x85]")

_PRINTABLE: Final = r"\p{L}\p{M}\p{N}\p{P}\p{S}"
LABEL: Final = explain(
    "a line of text; use printable characters, not only spaces", rf"^ *[{_PRINTABLE}][{_PRINTABLE} ]*$"
)
KEY: Final = explain(
    "a key; write one line with a letter or digit",
    rf"^[{_PRINTABLE} ]*[\p{{L}}\p{{Nd}}][{_PRINTABLE} ]*$",
)

_CONTROL: Final = r"\x00-\x1f\x7f-\x9f"
_FILE_NAME: Final = rf"(\.{{0,2}}[^./\\{_CONTROL}][^/\\{_CONTROL}]*|\.{{3}}[^/\\{_CONTROL}]*)"
FILE: Final = explain(
    "a relative path; write names between slashes, none of them empty, . or ..", f"^{_FILE_NAME}(/{_FILE_NAME})*$"
)

FACT: Final = explain("the id of a fact, such as fact_1795386035607", "^fact_[0-9]{1,16}$")
NOTE: Final = explain("the id of a note, such as note_1795386035607", "^note_[0-9]{1,16}$")
TASK: Final = explain("the id of a task, such as task_1795386035607@s1", "^task_[0-9]{1,15}@[A-Za-z0-9_.@/:-]{1,120}$")
TURN: Final = explain("the id of a turn, such as turn_1795386035607", "^turn_[0-9]{1,16}$")
SHOWN_TURN: Final = explain("the id of a turn or of a task, such as turn_1795386035607", "^(turn|task)_[0-9]{1,16}$")

_YEAR: Final = "(19[7-9]|[2-8][0-9][0-9])[0-9]"
_LEAP_YEAR: Final = (
    "(19(7[26]|8[048]|9[26])|[2-8][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[357][26])00)"  # not 2100
)
_DATE: Final = (
    f"({_YEAR}-((0[13-9]|1[0-2])-(0[1-9]|[12][0-9]|30)|(0[13578]|1[02])-31|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_TIME: Final = (
    rf"{_DATE}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,9}})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_WRITE_TIME: Final = "write ISO 8601 with a zone, such as 2026-01-31T12:00:00Z"
TIME: Final = explain(f"a time from 1970 to 8999; {_WRITE_TIME}", f"^{_TIME}$")
"""A time of RFC 3339, with its zone, from 1970 to 8999."""

_STREAM_ID: Final = "[0-9]{1,15}-[0-9]{1,15}"
_EVENT_POSITION: Final = f"([0-9]{{1,5}}/)?{_STREAM_ID}"
_ANY_POSITION: Final = f"{_EVENT_POSITION}|{_STREAM_ID}(,{_STREAM_ID})+"
_WRITE_POSITION: Final = "that of an event, such as 1795386035607-1"
POSITION: Final = explain(f"a position; write {_WRITE_POSITION}", f"^{_EVENT_POSITION}$")
BUS_POSITION: Final = explain(f"a position; write {_WRITE_POSITION}, or that of the bus", f"^({_ANY_POSITION})$")
"""The position of an event or of the bus."""

MOMENT: Final = explain(
    f"a time or a position; {_WRITE_TIME}, or a position such as 1795386035607-1", f"^({_TIME}|{_ANY_POSITION})$"
)
"""A time, or the position of an event or of the bus."""

_NUMBER: Final = r"([1-9][0-9]{{0,{maximum}}}(\.[0-9]{{1,3}})?|0\.[0-9]{{0,2}}[1-9])"
_LENGTH: Final = "|".join(
    [
        r"[1-9][0-9]{0,10}(\.[0-9]{1,3})?ms",
        *(
            _NUMBER.format(maximum=maximum) + unit
            for unit, maximum in (("s", 7), ("m", 5), ("h", 3), ("d", 2), ("w", 1))
        ),
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
"""An interval, or a line of cron. Everything that matches is accepted, and so are some lines that do not match."""

MAX_SAFE_INTEGER: Final = 2**53 - 1


def text(pattern: str, description: str = "", **more: Any) -> dict[str, Any]:
    """Return the schema of a text."""
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, **more}
    return {**schema, "description": description} if description else schema
