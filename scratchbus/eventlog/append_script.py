"""The scripts that append to the log, and their arguments."""

from __future__ import annotations

from functools import cache

from scratchbus.engine.scripts import Key, lua_script
from scratchbus.eventlog.codec import encode_fields
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.writes import ADDITION, GUARDED


def _archived(by: str, **reason: str) -> str:
    return encode_fields({"by": by, "status": "archived", "status_class": "final", **reason}).decode()


@cache
def displaced_body(by: str = "#by#") -> str:
    """Return the body of the event that displaces an observation; the scripts fill in `#new#`."""
    return _archived(by, reason_code="displaced", reason="made room for #new#")


_CONSTANTS = {  # bodies of events that the script may have to add; it fills in `#by#` and `#new#`
    "DISPLACED": displaced_body,
    "EXPIRED": lambda: _archived("#by#", reason_code="expired"),
    "LAPSED": lambda: encode_fields({"by": "#by#"}).decode(),
    **LUA,
    **GUARDED,
}


def _append(
    *events: object,
    log: Key,
    tail: Key,
    origin: Key,
    pages: Key,
    heads: Key,
    open: Key,
    dedupe: Key,
    ids: Key,
    mode: str,
    page: str,
    room: int,
    on_full: str,
    days: int,
    scan: str,
    new_origin: str,
    by: str,
    owner: str,
) -> None:
    """Append events of one page, each given by the fields of `Guarded`.

    `mode` is "all" (all or nothing) or "each" (skip what is refused), `room` 0 for no limit, `on_full` "displace" or
    "refuse". Event ids chosen by callers are remembered for `days`. After a lost reply the event is looked for in the
    log after the id `scan`, unless that is "". `new_origin` is a random word, the origin if the log is new. `by` is the
    writer of the events that the script adds itself, `owner` the owner token of the connection.
    """


APPEND = lua_script(
    "eventlog/clock",
    "eventlog/last_id",
    "eventlog/append_lua/inputs",
    "eventlog/entries",
    "eventlog/append_lua/retries",
    "eventlog/append_lua/heads",
    "eventlog/append_lua/room",
    "eventlog/append_lua/adding",
    "eventlog/append_lua/picking",
    "eventlog/append_lua/changing",
    "eventlog/append_lua/write",
    constants=_CONSTANTS,
)(_append)
"""The script that appends events."""

ERASE = lua_script(
    "eventlog/clock",
    "eventlog/last_id",
    "eventlog/append_lua/inputs",
    "eventlog/entries",
    "eventlog/append_lua/retries",
    "eventlog/append_lua/heads",
    "eventlog/position_search",
    "eventlog/append_lua/erasing",
    constants=_CONSTANTS,
)(_append)
"""The script that appends a tombstone and removes the events it stands for."""


def _add(
    *event: object,
    log: Key,
    tail: Key,
    pages: Key,
    heads: Key,
    open: Key,
    ids: Key,
    page: str,
    room: int,
    displaced: str,
) -> None:
    """Add an observation to a page, given by the fields of `Addition`, if nothing stands in its way.

    On a full page the lowest observation is displaced; `displaced` is the body of the event that says so, as
    `displaced_body` returns it, or "" to displace nothing. `room` is as above.
    """


def _add_batch(
    *events: object, log: Key, tail: Key, pages: Key, heads: Key, open: Key, ids: Key, page: str, room: int, mode: str
) -> None:
    """Add observations to one page, each given by the fields of `Addition`, if nothing stands in their way.

    `mode` "all" makes them one batch, "each" makes each a batch of its own. `room` is as above.
    """


ADD = lua_script("eventlog/add_lua/log_end", "eventlog/add_lua/one", constants={**LUA, **ADDITION})(_add)
"""The script that appends an addition in the plain case, which is nearly every addition."""

ADD_BATCH = lua_script("eventlog/add_lua/log_end", "eventlog/add_lua/batch", constants={**LUA, **ADDITION})(_add_batch)
"""The same for several additions."""
