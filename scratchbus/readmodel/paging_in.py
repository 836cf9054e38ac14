"""Paging in: fold documents again that a fold needs and that were paged out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scratchbus.engine.steps import Fetch, Step
from scratchbus.errors import ArchiveDamaged
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.keys import PageKeys
from scratchbus.projections.subjects import is_remembered
from scratchbus.readmodel.fold import Fold
from scratchbus.telemetry.logs import stderr_logger

_UNKNOWN = object()

logger = stderr_logger()


def page_in(log: Log, fold: Fold, wanted: Mapping[str, Sequence[str]], build: int) -> Step[bool]:
    """Fold those of these documents again that are paged out; return whether any were searched for.

    The fold treats them as new, so that they are stored again with all their indexes. It rejects the events about those
    whose archived events are damaged. Raises PositionLost or ArchiveDamaged if the log's archive cannot be read at all.
    """
    has_searched = False
    for page, subjects in wanted.items():
        missing = [
            subject
            for subject in subjects
            if not is_remembered(subject) and fold.documents.get((page, subject), _UNKNOWN) is None
        ]
        if not missing:
            continue
        has_searched = True
        names = log.keys(fold.shard).page(page, build)
        try:
            yield from _page_in(log, fold, names, missing)
        except ArchiveDamaged as problem:
            if not (yield from _has_its_archive(log, fold.shard)):
                raise
            yield from _page_in(log, fold, names, (yield from _readable(log, fold, names, missing, str(problem))))
    return has_searched


def _page_in(log: Log, fold: Fold, names: PageKeys, ids: Sequence[str]) -> Step[None]:
    index = yield from paged_out.read_index(log, names, fold.shard, ids)
    entries = {id: entry for id in ids if (entry := index.find(id)) is not None}
    for document in (yield from paged_out.rebuild(log, fold.shard, list(entries.values()))):
        fold.documents[names.page, document.id] = document
    for id, entry in entries.items():  # an erased one is removed too
        index.remove(id, entry)
    fold.paged_in += index.commands()


def _has_its_archive(log: Log, shard: int) -> Step[bool]:
    """Return whether the archive is that of the log and reaches to its floor: then only some of its files are damaged.

    Raises ArchiveForeign or ArchiveDamaged.
    """
    floor = yield from read_floor(log, shard)
    archive = log.archive
    return archive is not None and (yield Fetch(lambda: archive.reaches(shard, floor.origin, floor.position)))


def _readable(log: Log, fold: Fold, names: PageKeys, ids: Sequence[str], problem: str) -> Step[list[str]]:
    """Return the ids that can be paged in; mark the others as unreadable in the fold."""
    readable = []
    for id in ids:
        try:
            entries = yield from paged_out.locate(log, names, fold.shard, [id])
            yield from paged_out.rebuild(log, fold.shard, list(entries.values()))
            readable.append(id)
        except ArchiveDamaged as damaged:
            fold.unreadable[names.page, id] = problem = str(damaged)
    logger.warning("events are set aside until a rebuild", page=names.page, reason=problem)
    return readable
