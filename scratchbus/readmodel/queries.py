"""Read single documents of a page: observations by id, memories by subject, and heads; the names of pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scratchbus.domain.document import Remembered
from scratchbus.domain.observation import Observation
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.raw_entries import texts_of
from scratchbus.eventlog.stored_documents import decode_document, decode_observations
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Document
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.page_query import query_page
from scratchbus.readmodel.query_result import PastState

if TYPE_CHECKING:
    from scratchbus.readmodel.scope import Core

_TRIES = 3  # for observations that are paged in meanwhile


def get(
    log: Log,
    page: str,
    ids: Sequence[str],
    freshness: Freshness,
    earlier: PastState | None = None,
    *,
    finds_paged_out: bool = True,
) -> Step[dict[str, Observation]]:
    """Return the observations with these ids, by id, without those that are not on the page.

    Those that are paged out, which are final, can be left out: the archive need not be read.
    """
    for _ in range(_TRIES):
        result = yield from query_page(log, page, freshness, "get", *ids, earlier=earlier, caches_fold=True)
        found: dict[str, AnyObservation] = {document.id: document for document in decode_observations(result.rows)}
        missing = [id for id in ids if id not in found and id not in result.overlay]
        if not (finds_paged_out and missing and result.checkpoint.is_paged):
            break
        shard = log.shard(page)
        names = log.keys(shard).page(page, result.checkpoint.build)
        entries = yield from paged_out.locate(log, names, shard, missing)
        found |= {
            document.id: document for document in (yield from paged_out.rebuild(log, shard, list(entries.values())))
        }
        if len(entries) == len(missing) or (yield from read_checkpoint(log.keys(shard))) == result.checkpoint:
            break  # else one of them may have been paged in meanwhile
    newest = found | {id: result.overlay[id] for id in ids if id in result.overlay}
    return {id: scratch_page.settled(document, result.now) for id, document in newest.items() if document is not None}


def recollect(core: Core, page: str, subjects: Sequence[str]) -> Step[dict[str, Remembered]]:
    """Return the memories of a page with these subjects, by subject, without missing ones. Raises Behind."""
    result = yield from query_page(core.log, page, core.fresh, "get", *subjects, store="memory")
    found: dict[str, Document | None] = {
        subject: decode_document(subject, row)
        for subject, row in zip(subjects, result.rows, strict=True)
        if row and page not in result.fold.emptied
    }
    found |= {subject: newer for subject, newer in result.overlay.items() if subject in subjects}
    return {subject: document for subject, document in found.items() if isinstance(document, Remembered)}


def recollect_one(core: Core, page: str, subject: str) -> Step[Remembered | None]:
    """Return the memory of a page with this subject, None if it is missing. Raises Behind."""
    return (yield from recollect(core, page, [subject])).get(subject)


def page_names(keys: ShardKeys) -> Step[list[str]]:
    """Return the names of all pages of a shard."""
    return texts_of((yield from ask(keys.shard, "HKEYS", keys.pages)))


def count_of_open(log: Log, page: str) -> Step[int]:
    """Return the number of open observations of a page, including expired ones that were not swept yet."""
    keys = log.keys(log.shard(page))
    return int((yield from ask(keys.shard, "ZCARD", keys.open(page))))


def read_head(log: Log, page: str, id: str) -> Step[Head | None]:
    """Return the head of a subject, None if it has none."""
    keys = log.keys(log.shard(page))
    row = yield from ask(keys.shard, "HGET", keys.heads(page), id)
    return Head.parse(row) if row else None
