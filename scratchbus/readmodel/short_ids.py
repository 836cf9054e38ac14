"""Short ids: people read and type the end or the beginning of an id."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scratchbus.domain.values import check_id
from scratchbus.engine.scans import run_id, scan
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import InvalidId, NotFound, shown
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.index_tables import ULID_LENGTH, id_text, ids_in, ids_like, table_names
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.projections.subjects import is_remembered
from scratchbus.readmodel.relations import may_have_hidden
from scratchbus.readmodel.type_indexes import type_indexes

MIN_LENGTH = 6
"""The fewest characters of a short id."""

_SHORT = re.compile(rf"[0-9A-HJKMNP-TV-Z]{{{MIN_LENGTH},{ULID_LENGTH - 1}}}")  # the alphabet of ULIDs
_AT_ONCE = 5_000  # heads per read: about a millisecond of the engine's time
_LISTED = 5
_TRIES = 3


def whole_id(log: Log, page: str, id: str) -> Step[str]:
    """Return the id that a text stands for: a whole id, or the end or beginning of one that was ever on the page.

    Ignores case. Returns a whole id, or the subject of a memory, without a call to the engine. Raises NotFound if no id
    matches, InvalidId if several do.
    """
    if not isinstance(id, str):
        raise InvalidId(f"id: {shown(id)} is not an id")
    if is_remembered(id.strip()):
        return id.strip()
    text = id.strip()
    text = text.upper() if text.isascii() else text
    if len(text) >= ULID_LENGTH:
        return check_id(text)
    if not _SHORT.fullmatch(text):
        raise InvalidId(
            f"id: {shown(id)} is not an id; give all {ULID_LENGTH} characters, or at least "
            f"the last or first {MIN_LENGTH}"
        )
    found: list[str] = []
    for _ in range(_TRIES):
        process = yield from run_id(log.shard(page))
        checkpoint = yield from read_checkpoint(log.keys(log.shard(page)))
        found = sorted((yield from _find(log, page, checkpoint.build, text)))
        if (yield from run_id(log.shard(page))) != process:
            found = []
            continue  # cursors of the other process have left out ids
        if found or not may_have_hidden(checkpoint, (yield from read_checkpoint(log.keys(log.shard(page))))):
            break
    if not found:
        raise NotFound(f"id: no id on page {page!r} ends or begins with {text}; see `scratchbus list`, or give --page")
    if len(found) > 1:
        others = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise InvalidId(f"id: {text} matches several ids; give more characters: {', '.join(found[:_LISTED])}{others}")
    return found[0]


def _find(log: Log, page: str, build: int, text: str) -> Step[set[str]]:
    """Return the ids that end or begin with a text.

    They are found by the heads of the page and, where these were dropped, by the observations on the page.
    """
    keys = log.keys(log.shard(page))
    shard = keys.shard
    names = keys.page(page, build)
    found: set[str] = set()

    def take(ids: Iterable[str]) -> None:
        found.update(id for id in ids if id.endswith(text) or id.startswith(text))

    def take_members(row: list[bytes]) -> None:
        take(text_of(field) for field in row[::2] if len(field) == ULID_LENGTH)

    def take_buckets(row: list[bytes]) -> None:
        take(id_text(id) for bucket in row[1::2] for id in ids_in(bucket))

    indexes = yield from type_indexes(names, shard)
    for verb, key in (("HSCAN", keys.heads(page)), *(("ZSCAN", index) for index in indexes)):
        yield from scan(shard, take_members, verb, key, match=f"*{text}*", count=_AT_ONCE)
    yield from scan(shard, take_buckets, "HSCAN", names.paged, count=_AT_ONCE)
    tables = table_names((yield from ask(shard, "HGETALL", names.tables)))
    return found | (yield from ids_like(log, shard, tables, text))
