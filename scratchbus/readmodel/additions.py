"""Additions folded by column: from entries of the log to stored documents and indexes, without models in between.

Most events are additions of observations about which nothing else has happened yet. What `scratch_page.added` makes of
them is said here a second time, for speed; `scratchbus verify` folds all events one by one and compares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from scratchbus.domain.observation import ObservationFields
from scratchbus.domain.values import LARGEST, millis, moment
from scratchbus.eventlog.codec import LAYOUT, PREFIX, RawEntry, entry_fields, text_of
from scratchbus.eventlog.documents import encode_stored
from scratchbus.projections.scratch_page import WAITING
from scratchbus.projections.stored_observation import SURE, Confidence, StoredObservation, Whole

_SUBJECT, _PAGE, _KIND, _TYPE, _BODY = (
    2 * LAYOUT.index(name) + 1 for name in (b"subject", b"page", b"kind", b"type", b"event")
)
_SKIPPED = len(PREFIX)

_moment = lru_cache(moment)  # many were added in the same millisecond, and live as long
_text = lru_cache(text_of)


class AddedBody(msgspec.Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The body of an `Added`: the same fields, which are checked in the same way."""

    by: str
    content: str
    cause: str | None = None
    traceparent: str | None = None
    source: str | None = None
    ttl: Whole | None = None
    times: int = 1
    owner: str | None = None
    status: str = "active"
    status_class: str = "open"
    confidence: Confidence = SURE
    context: dict[str, Any] = {}
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    priority: Whole = 50
    expires_at: datetime | None = None
    dedupe_key: str | None = None
    evidence: list[str] = []
    remind_at: datetime | None = None
    remind_on: dict[str, Any] | None = None


_read_body = msgspec.json.Decoder(AddedBody).decode
_kept: Callable[[AddedBody], tuple[Any, ...]] = attrgetter(*ObservationFields.model_fields)


class PageAdditions:
    """What a stretch of the log adds to one page: documents, and the members of indexes with their scores.

    `places` has the ms and seq of each addition; `relations` those that some of them tell of, as
    `scratch_page.relations` has them.
    """

    def __init__(self, page: bytes) -> None:
        self.name = text_of(page)
        self.documents: list[bytes] = []
        self.due: list[object] = []
        self.indexes: defaultdict[tuple[str, str], list[object]] = defaultdict(list)
        self.places: list[int] = []
        self.relations: list[tuple[str, str, str]] = []
        self._at_page = b"@" + page

    @property
    def count(self) -> int:
        """How many additions there are."""
        return len(self.places) // 2

    def take(self, place: bytes, flat: Sequence[bytes], shard: int) -> bool:
        """Take an addition, and return whether it is plain; the fold of single events tells what is wrong with it."""
        id, text = flat[_SUBJECT], flat[_BODY]
        if not (text.startswith(PREFIX) and id.isupper()):  # memories have subjects in lower case
            return False
        type = _text(flat[_TYPE])
        ms_text, _, seq_text = place.partition(b"-")
        ms, seq = int(ms_text), int(seq_text)
        try:
            body = _read_body(b"{" + text[_SKIPPED:])
            if body.ttl is not None:
                body.expires_at = _moment(ms + body.ttl)
            source, times = body.source or body.by, min(body.times, LARGEST)
            place_and_type = text_of(id), self.name, type, source, ms, seq
            row = encode_stored(StoredObservation(*place_and_type, *_kept(body), times, shard))  # type: ignore[call-arg]
        except (ValueError, OverflowError, RecursionError):
            return False
        self.documents += (id, row)
        self.places += (ms, seq)
        self._index(id, seq, type, body)
        due = _due(body, ms)
        if due is not None:
            self.due += (due, id + self._at_page)
        if body.evidence or body.cause is not None:
            self._relate(text_of(id), place, body)
        return True

    def _index(self, id: bytes, seq: int, type: str, body: AddedBody) -> None:
        indexes = self.indexes
        indexes["type", type] += (seq, id)
        for tag in body.tags if len(body.tags) < 2 else set(body.tags):
            indexes["tag", tag] += (seq, id)
        if body.owner is not None:
            indexes["owner", body.owner] += (seq, id)
        if body.remind_on is not None:
            indexes[WAITING] += (seq, id)

    def _relate(self, id: str, place: bytes, body: AddedBody) -> None:
        self.relations += [("evidence", each, f"{id}@{self.name}") for each in body.evidence]
        if body.cause is not None:
            self.relations.append(("causes", body.cause, text_of(place)))


def _due(body: AddedBody, ms: int) -> int | None:
    """Return when (ms) time changes an addition first, if it ever does."""
    if body.remind_at is None and body.ttl is not None and body.status_class == "open":
        return ms + body.ttl
    moments = [body.remind_at, body.expires_at if body.status_class == "open" else None]
    return min((millis(each) for each in moments if each is not None), default=None)


def take_additions(entries: Sequence[RawEntry], shard: int) -> tuple[list[PageAdditions], list[RawEntry]]:
    """Return the plain additions, by page, that nothing else among these entries is about, and all other entries."""
    pages, others = dict[bytes, PageAdditions](), list[RawEntry]()
    regular = [flat[::2] == LAYOUT for _, flat in entries]  # others were written by hand
    subjects = [
        entry[1][_SUBJECT] if is_regular else entry_fields(entry).get(b"subject", b"")
        for entry, is_regular in zip(entries, regular, strict=True)
    ]
    events_of = Counter(subjects)
    for entry, subject, is_regular in zip(entries, subjects, regular, strict=True):
        place, flat = entry
        if is_regular and flat[_KIND] == b"added" and events_of[subject] == 1:
            page = pages.get(flat[_PAGE])
            if page is None:
                page = pages[flat[_PAGE]] = PageAdditions(flat[_PAGE])
            if page.take(place, flat, shard):
                continue
        others.append(entry)
    return [page for page in pages.values() if page.places], others
