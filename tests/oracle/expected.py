"""What the engine must hold beside the log, given the documents that the log folds to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from scratchbus import Observation
from scratchbus.domain.ownership import holder_in_head
from scratchbus.domain.values import millis
from scratchbus.eventlog.codec import encode_tags
from scratchbus.eventlog.layouts import Head
from scratchbus.projections import scratch_page

PRIORITY_SPAN = 2**46
"""The score of an open observation is its priority times this, plus the `seq` of the event that added it."""

_CLASS = {"open": "o", "closed": "c", "final": "f"}


def head_of(document: Observation) -> Head:
    """Return the head that an observation must have."""
    wake = document.remind_at if document.is_open else document.archive_at
    claim = document.claim
    return Head(
        version=document.version,
        status=document.status,
        status_class=_CLASS[document.status_class],
        type=document.type,
        priority=document.priority,
        added=document.added_seq,
        expires=millis(document.expires_at) if document.expires_at else 0,
        due_at=millis(wake) if wake else 0,
        fence=document.fence,
        holder=holder_in_head(claim.by, claim.owner) if claim else "",
        until=millis(claim.until) if claim else 0,
        position=document.position.stream_id,
        tries=document.attempts,
        not_before=millis(document.not_before) if document.not_before else 0,
        tags=encode_tags(document.tags, document.blocked_by if document.every is None else [document.id]),
        dedupe_key=document.dedupe_key or "",
    )


def next_moment(head: Head) -> int:
    """Return when (ms) time next changes an observation with this head; 0 for never."""
    moments = [head.due_at]
    if head.status_class == "o":
        moments += [head.expires, head.until if head.holder else 0]
    return min(filter(None, moments), default=0)


def open_scores(heads: Mapping[str, Head]) -> dict[str, float]:
    """Return the set of open observations of a page, with the scores by which the lowest is displaced."""
    return {id: head.priority * PRIORITY_SPAN + head.added for id, head in heads.items() if head.status_class == "o"}


def dedupe_keys(heads: Mapping[str, Head]) -> dict[str, str]:
    """Return which open observation of a page has which dedupe key."""
    return {head.dedupe_key: id for id, head in heads.items() if head.status_class == "o" and head.dedupe_key}


def index_scores(documents: Mapping[str, Observation]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the indexes of a page: by index and value, its observations by the `seq` that added them."""
    indexes: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for id, document in documents.items():
        for index in scratch_page.index_entries(document):
            indexes[index][id] = document.added_seq
    return dict(indexes)
