"""The stored forms that Lua reads or writes, declared once; scripts get them as constants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

from scratchbus.domain.position import START, Position
from scratchbus.domain.values import MAX_SAFE_INTEGER
from scratchbus.engine.scripts import Constants
from scratchbus.errors import InvalidPosition, shown
from scratchbus.eventlog.keys import PageKeys, ShardKeys

DAY_MS: Final = 86_400_000
FOREVER: Final = MAX_SAFE_INTEGER
"""The latest time (ms)."""
SPAN: Final = 2**46
"""The score of an open observation is its priority * SPAN + the `seq` of the event that added it."""
POSITION_BYTES: Final = 16
"""The size of a record in the history index: ms and seq, 8 bytes each."""

ENTRY: Final = {
    "id": "id", "subject": "subject", "page": "PAGE", "kind": "kind", "type": "type", "batch": "batch", "prev": "prev",
    "event": "body",
}  # fmt: skip
"""The fields of an entry of the log, in order, each with the Lua variable whose value is written."""

CLASSES: Final = {"open": "o", "closed": "c", "final": "f"}
"""The letter for each status class in a head."""

NO_TAGS: Final = ","
"""The tags of a head without tags; the script leaves it out for memories."""

_DIGITS, _DIGITS_OR_BLANK, _LETTER, _TEXT, _REST = "%d+", "%d*", "%a", "[^|]*", ".*"

Number = Annotated[int, _DIGITS]
NumberOrBlank = Annotated[int, _DIGITS_OR_BLANK]
Letter = Annotated[str, _LETTER]
Text = Annotated[str, _TEXT]
Rest = Annotated[str, _REST]


class StoredText:
    """A stored text: fields with `|` between them, each with the Lua pattern of its values.

    One field may have a `|` in its values (`_REST`); the fields after it are found from the end.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.fields = dict(patterns)
        text = r"\|".join(f"({each})" for each in patterns.values())
        for lua, python in ("%d", "[0-9]"), ("%a", "[a-zA-Z]"), ("%w", "[a-zA-Z0-9]"):
            text = text.replace(lua, python)
        self.regex = re.compile(text, re.DOTALL)

    def pattern(self, *wanted: str) -> str:
        """Return the quoted Lua pattern that captures these fields, in the order of the row; all fields by default."""
        names, parts = list(self.fields), dict(self.fields)
        for name in wanted or names:
            parts[name] = f"({parts[name]})"
        texts = list(parts.values())
        indexes = [names.index(name) for name in wanted or names]
        first, last = min(indexes), max(indexes)
        if _REST in list(self.fields.values())[:last]:
            return f"'{'|' if first else ''}{'|'.join(texts[first:])}$'"
        return f"'^{'|'.join(texts[: last + 1])}{'$' if last + 1 == len(names) else '|'}'"

    def text(self, *values: str) -> str:
        """Return the Lua expression for the stored text, each field a Lua expression."""
        return " .. '|' .. ".join(value for value, _ in zip(values, self.fields, strict=True))


class Head(NamedTuple):
    """The append script's record of a subject. Times are milliseconds, 0 for none; class is o, c or f.

    `holder` is as `holder_in_head` returns it, `tags` (with the blocking ids) as `codec.encode_tags` returns them.
    """

    version: Number
    status: Text
    status_class: Letter
    type: Text
    priority: Number
    added: Number
    expires: Number
    due_at: Number
    fence: Number
    holder: Text
    until: Number
    position: Text
    tries: NumberOrBlank
    not_before: NumberOrBlank
    tags: Text
    dedupe_key: Rest

    @classmethod
    def parse(cls, row: bytes) -> Head:
        """Read the stored form. Raises ValueError for anything else."""
        fields: list[Any] = row.decode().split("|", len(cls._fields) - 1)
        if len(fields) != len(cls._fields):
            raise ValueError(f"{shown(row)} is not a head")
        for at in _NUMBERS:
            fields[at] = int(fields[at] or 0)
        fields[_TAGS] = fields[_TAGS] or NO_TAGS
        return cls(*fields)

    @classmethod
    def readable(cls, row: bytes | None) -> Head | None:
        """Read the stored form; None if there is none, or the value was written by hand."""
        try:
            return None if row is None else cls.parse(row)
        except ValueError:
            return None

    def __str__(self) -> str:
        """The stored form."""
        stored = self._replace(tries=self.tries or "", not_before=self.not_before or "")  # type: ignore[arg-type]
        return "|".join(map(str, tuple(stored)))


_HINTS = get_type_hints(Head, include_extras=True)
_NUMBERS = [at for at, hint in enumerate(_HINTS.values()) if get_args(hint)[0] is int]

_TAGS = Head._fields.index("tags")

HEAD = StoredText({name: get_args(hint)[1] for name, hint in _HINTS.items()})
CHECKPOINT = StoredText(
    {"stream_id": _TEXT, "event_id": _REST, "build": _DIGITS, "form": _DIGITS, "origin": _TEXT, "token": _TEXT}
)
"""How far a projection is folded, in which build and form of the state; see `checkpoint.Checkpoint`."""
LAST = StoredText({"stream_id": _TEXT, "event_id": _REST})
"""The tail or the floor of a log: its last event, or the last one that readers take from the archive."""
HOLD = StoredText({"token": "%w+", "until": _DIGITS, "who": _REST})
"""Who archives or erases, and until when (ms) others wait."""
KNOWN_ID = StoredText({"digest": "%w+", "stream_id": _REST})
"""The record of an event id chosen by its caller."""


def read_last(row: bytes | None, shard: int) -> tuple[Position, str]:
    """Return the position and the id of the event that a tail or a floor names; the start for None.

    Raises InvalidPosition.
    """
    id, _, event_id = (row or b"").decode("utf-8", "replace").partition("|")
    try:
        return (Position.parse(id) if id else START)._replace(shard=shard), event_id
    except InvalidPosition:
        what = f"shard {shard}: an end of the log is stored as {shown(row)}"
        raise InvalidPosition(f"{what}; `scratchbus verify` names its key, restore that from a backup") from None


_NEW_HEAD: Final = {
    "fence": "'0'",
    "holder": "''",
    "till": "'0'",
    "tries": "''",
    "not_before": "''",
    "dedupe_key": "''",
}
"""The first fields of every new head, as Lua."""
_LUA_NAMES: Final = {"until": "till"}  # `until` is a keyword of Lua


_VARIABLES: Final = tuple(_LUA_NAMES.get(name, name) for name in HEAD.fields)


def _head_text(**values: str) -> str:
    """Return a Lua expression for the stored form of a head, each field the variable of its name or another value."""
    text = HEAD.text(*(values.get(name, name) for name in _VARIABLES))
    return text.replace("' .. '", "")  # literals that meet become one


_STARTED = " .. '|' .. status .. '|' .. status_class .. '|' .. type .. '|' .. priority"


def _head_table(**values: str) -> str:
    """Return a Lua table of a head, each field the variable of its name or another value."""
    return f"{{{', '.join(f'{name} = {values.get(name, name)}' for name in _VARIABLES)}}}"


def _key(name: str) -> str:
    """Return a quoted key without the prefix of its shard; a page's key without the page."""
    keys = ShardKeys("", 0)
    found = getattr(keys, name)
    text = found if isinstance(found, str) else found("")
    return f"'{text.removeprefix(keys.tag)}'"


def _prefix(variable: str) -> str:
    """Return the Lua expression for the prefix of a shard's keys, given a variable that holds one of them."""
    return f"string.sub({variable}, 1, -{len(_key(variable.lower())) - 1})"


def _build_key(build: str, name: str = "") -> str:
    """Return the Lua expression for a key of a build, a page's key without the page; the common part without a name."""
    keys = ShardKeys("", 0)
    names = PageKeys(keys, "", 0)
    text = (getattr(names, name) if name else names.relation("")).removeprefix(f"{keys.tag}p0")
    return f"'p' .. {build} .. '{text}'"


LUA: Final[Constants] = {
    "DAY": str(DAY_MS),
    "FOREVER": f"'{FOREVER}'",
    "SPAN": str(SPAN),
    "POSITION_BYTES": str(POSITION_BYTES),
    "MS": "'^%d+'",
    "SEQ": "'^%d+%-(%d+)'",
    "STREAM_ID": "'^(%d+)%-(%d+)'",
    "ENTRY": ", ".join(f"'{name}', {variable}" for name, variable in ENTRY.items()),
    "HEAD": HEAD.pattern,
    "HEAD_VARIABLES": ", ".join(_VARIABLES),
    "HEAD_TABLE": _head_table(version="tonumber(version)"),
    "HEAD_TEXT": _head_text(**{name: f"head.{name}" for name in _VARIABLES}),
    "NEW_HEAD_TABLE": _head_table(
        version="0", expires="'0'", due_at="'0'", position="''", tags="''", **_NEW_HEAD
    ),
    "DISPLACED_HEAD_TEXT": _head_text(
        version="(version + 1)", status="'archived'", status_class="'f'", due_at="'0'", holder="''", till="'0'",
        tries="''", not_before="''",
    ),
    "ADDED_HEAD_TEXT": _head_text(version="start", due_at="'0'", **_NEW_HEAD).replace(_STARTED, ""),
    "CHECKPOINT": CHECKPOINT.pattern,
    "CHECKPOINT_TEXT": CHECKPOINT.text,
    "CHECKPOINT_KEY": _key("live"),
    "LAST": LAST.pattern,
    "LAST_TEXT": LAST.text,
    "HOLD": HOLD.pattern,
    "HOLD_TEXT": HOLD.text,
    "KNOWN_ID": KNOWN_ID.pattern,
    "KNOWN_ID_TEXT": KNOWN_ID.text,
    "KEY": _key,
    "STAGED": f"'{ShardKeys('', 0).staged.part}'",
    "PREFIX": _prefix,
    "BUILD_KEY": _build_key,
}  # fmt: skip
"""The constants of scripts for stored forms and key names.

Some are code that uses Lua variables: ENTRY uses those named in `ENTRY`; HEAD_TABLE, NEW_HEAD_TABLE,
DISPLACED_HEAD_TEXT and ADDED_HEAD_TEXT those named as the fields of a head (`till` for `until`), the last one
`start` for all fields before `added`; HEAD_TEXT a table `head`.
"""
