"""All pages at a moment: the numbers of open observations on each."""

from __future__ import annotations

from scratchbus.domain.position import Position
from scratchbus.domain.time_checks import as_when
from scratchbus.engine.steps import Step, batches, side_by_side
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, read_checkpoint
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.positions import count_many_positions
from scratchbus.eventlog.raw_entries import entry_fields, entry_position, text_of
from scratchbus.eventlog.reader import read
from scratchbus.projections.filters import Filter
from scratchbus.readmodel.queries import page_names
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.status import PageStatus
from scratchbus.timetravel.cut import Cut, When, cut_at
from scratchbus.timetravel.past import read_past

_AT_ONCE, _READ_AT_ONCE = 500, 10  # pages counted at once; pages of which the observations are read at once


def pages_as_of(core: Core, when: When) -> Step[list[PageStatus]]:
    """Return the pages that had events at a moment, those with the most open observations first.

    It costs a read of each page. Pages whose events are only in the archive are included if they have open
    observations. Raises the errors of `cut_at`.
    """
    when = as_when(when)  # the same moment for all pages, also if it is "10m ago"
    found: list[PageStatus] = []
    for shard in range(core.log.shards):
        keys = core.log.keys(shard)
        while True:
            checkpoint = yield from read_checkpoint(keys)
            of_shard = yield from _pages_of_shard(core, when, checkpoint)
            if (yield from read_checkpoint(keys)).build == checkpoint.build:
                break  # else a rebuild may have removed the history indexes
        found += of_shard
    return sorted(found, key=lambda each: (-each.open, each.page))


def _pages_of_shard(core: Core, when: When, checkpoint: Checkpoint) -> Step[list[PageStatus]]:
    found: list[PageStatus] = []
    shard = checkpoint.position.shard
    keys = core.log.keys(shard)
    names = yield from page_names(keys)
    if not names:
        return found
    cut = yield from cut_at(core, names[0], when)  # the same for all pages of a shard
    with_events = yield from _pages_between(core.log, checkpoint.position, cut.position)
    for batch in batches(names, _AT_ONCE):
        wanted = [(keys.page(page, checkpoint.build).positions, cut.position) for page in batch]
        counted = yield from count_many_positions(shard, wanted)
        with_events |= {page for page, (count, _) in zip(batch, counted, strict=True) if count}
    for batch in (names[:1], *batches(names[1:], _READ_AT_ONCE)):  # the first one may have to fold for all
        sizes = yield from side_by_side([_size_of(core, page, cut) for page in batch])
        found += [each for each in sizes if each.open or each.page in with_events]
    return found


def _size_of(core: Core, page: str, cut: Cut) -> Step[PageStatus]:
    reads = yield from read_past(core, page, cut, None)
    rows = yield from reads.search(Filter(is_open=True), None, None)
    return PageStatus(page=page, open=len(rows), claimed=sum(each.claim is not None for each in rows))


def _pages_between(log: Log, start: Position, end: Position) -> Step[set[str]]:
    """Return the pages with events after a position of a shard, up to another."""
    all_cursors = yield from cursors(log, start._replace(shard=end.shard))
    cursor = next(each for each in all_cursors if each.position.shard == end.shard)
    found: set[str] = set()
    while cursor.position < end and (chunks := (yield from read(log, [cursor]))):
        entries = [entry for entry in chunks[0][1] if entry_position(entry, end.shard) <= end]
        found |= {text_of(entry_fields(entry).get(b"page", b"")) for entry in entries}
    return found
