"""Moving the index of paged-out observations from the engine to tables in the archive."""

from __future__ import annotations

from functools import partial
from secrets import token_hex

from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Fetch, Step, ask_all
from scratchbus.errors import ArchiveDamaged, ArchiveUnavailable
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import FieldRead, read_unchecked, write_if_unchanged
from scratchbus.eventlog.index_tables import entries_in, ids_in, name_table, pack_table, table_names
from scratchbus.eventlog.keys import PageKeys
from scratchbus.projections import scratch_page
from scratchbus.telemetry.logs import stderr_logger

MIN_ENTRIES, MAX_ENTRIES = 1_024, 16_384
"""The bounds of how many index entries of a page move at once."""

SHARE = 64
"""At least a part of what the tables have, one in so many, moves at once, so that no page has too many tables."""

_MAX_ARGUMENTS = 2_000  # arguments of one command

logger = stderr_logger()


def move_index(log: Log, shard: int, page: str) -> Step[bool]:
    """Move a page's index entries to a table in the archive if there are many; return whether they were moved.

    Without an archive, or if it cannot be written, they stay. A process killed in between leaves a table that nothing
    names.
    """
    if log.archive is None:
        return False
    keys = log.keys(shard)
    checkpoint = yield from read_unchecked(keys)
    names = PageKeys(keys, page, checkpoint.build)
    fields = (names.tables, "kept"), (names.tables, "moved"), (names.places, "moves"), (names.paging, "cursor")
    rows = yield from ask_all(shard, [("HGET", *field) for field in fields])
    entries, moved = (int(row or 0) for row in rows[:2])
    if entries < min(MAX_ENTRIES, max(MIN_ENTRIES, moved // SHARE)):
        return False
    # entries change only together with one of these fields
    reads = [FieldRead(*field, row) for field, row in zip(fields, rows, strict=True)]
    paged, flat, tables = yield from ask_all(
        shard, [("HGETALL", names.paged), ("HGETALL", names.places), ("HGETALL", names.tables)]
    )
    ids = {id: added for bucket in paged[1::2] for id, added in ids_in(bucket).items()}
    ranges = {field: row for field, row in zip(flat[::2], flat[1::2], strict=True) if field.isdigit()}
    positions = {added: position for row in ranges.values() for added, position in entries_in(row).items()}
    if not ids:
        return False
    try:
        sha256 = yield Fetch(partial(log.archive.put_table, shard, pack_table(ids, positions)))
    except (ArchiveDamaged, ArchiveUnavailable) as problem:
        logger.warning("the index of paged-out observations stays in the engine", page=page, problem=str(problem))
        return False
    name = name_table(table_names(tables), sha256, ids, positions)
    numbers = list(ranges)
    writes: list[Command] = [
        ("DEL", names.paged),
        *(("HDEL", names.places, *numbers[at : at + _MAX_ARGUMENTS]) for at in range(0, len(numbers), _MAX_ARGUMENTS)),
        ("HSET", names.places, "moves", token_hex(6)),
        ("HSET", names.tables, name.number, str(name), "kept", 0, "moved", moved + len(ids)),
    ]
    return (yield from write_if_unchanged(keys, checkpoint, reads, writes, scratch_page.IN_TABLES))
