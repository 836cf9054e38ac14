"""Short ids: people read and type the end of an id, and mean the observation whose id ends so."""

from __future__ import annotations

import re

from scratchbus.domain.values import check_id
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import InvalidId, NotFound, shown
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import PageKeys
from scratchbus.projections.table import is_remembered
from scratchbus.readmodel.type_indexes import type_indexes

SHORTEST = 6
"""The fewest characters of a suffix."""

WHOLE = 26
"""How many characters a ULID has."""

_SUFFIX = re.compile(rf"[0-9A-HJKMNP-TV-Z]{{{SHORTEST},{WHOLE - 1}}}")  # the alphabet of ULIDs
_AT_ONCE = 5_000  # heads that one look takes: about a millisecond of the engine's time
_LISTED = 5


def whole_id(log: Log, page: str, given: str) -> Step[str]:
    """Return the id that a text stands for: a whole id, or the end of one that was ever on the page, in any case.

    A whole id is returned as it is, as is the subject of what is remembered, and the engine is not asked. Raises
    NotFound when none ends so, InvalidId when several do.
    """
    if not isinstance(given, str):
        raise InvalidId(f"id: {shown(given)} is not an id")
    if is_remembered(given.strip()):
        return given.strip()
    text = given.strip().upper()
    if len(text) >= WHOLE:
        return check_id(text)
    if not _SUFFIX.fullmatch(text):
        raise InvalidId(
            f"id: {shown(given)} is not an id; give all {WHOLE} characters, or at least the last {SHORTEST}"
        )
    found = sorted((yield from _ending_in(log, page, text)))
    if not found:
        raise NotFound(f"id: no id on page {page!r} ends in {text}; see `scratchbus list`, or give --page")
    if len(found) > 1:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise InvalidId(f"id: {text} matches several ids; give more characters: {', '.join(found[:_LISTED])}{more}")
    return found[0]


def _ending_in(log: Log, page: str, suffix: str) -> Step[set[str]]:
    """Return the ids that end so, by the heads of the page and, where these were dropped, by what is on the page."""
    keys = log.keys(log.shard(page))
    shard = keys.shard
    names = PageKeys(keys, page, (yield from read_checkpoint(keys)).build)
    found: set[str] = set()
    indexes = yield from type_indexes(names, shard)
    for scan, key in (("HSCAN", keys.heads(page)), *(("ZSCAN", index) for index in indexes)):
        cursor: object = b"0"
        while True:
            cursor, row = yield from ask(shard, scan, key, cursor, "MATCH", f"*{suffix}", "COUNT", _AT_ONCE)
            found.update(field.decode() for field in row[::2] if len(field) == WHOLE)
            if cursor in (b"0", 0):
                break
    at: object = b"0"
    while True:
        at, row = yield from ask(shard, "HSCAN", names.paged, at, "COUNT", _AT_ONCE)
        ids = (paged_out.whole(id) for bucket in row[1::2] for id in paged_out.ids_in(bucket))
        found.update(id for id in ids if id.endswith(suffix))
        if at in (b"0", 0):
            return found
