"""Fold additions without models in between: from entries of the log to stored documents and index entries, by column.

Most events are additions of observations that no other event is about yet. For speed, this repeats what
`scratch_page.added` does; `scratchbus verify` folds all events one by one and compares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from scratchbus.domain.observation_models import ObservationFields
from scratchbus.domain.values import MAX_SAFE_INTEGER, millis, moment
from scratchbus.eventlog.bodies import Fields
from scratchbus.eventlog.codec import Decoded
from scratchbus.eventlog.raw_entries import RawEntry, entry_numbers, text_of, texts_of
from scratchbus.eventlog.stored_documents import encode_plain, encode_stored
from scratchbus.projections.scratch_page import WAITING
from scratchbus.projections.stored_observation import BASICS, NO_DETAILS, Details, StoredObservation

T = TypeVar("T")

_basics: Callable[[Fields], tuple[Any, ...]] = attrgetter(*filter(ObservationFields.model_fields.__contains__, BASICS))
_DETAILS = [*filter(ObservationFields.model_fields.__contains__, Details.__struct_fields__)]
_details: Callable[[Fields], tuple[Any, ...]] = attrgetter(*_DETAILS, "times")
_PLAIN_DETAILS = *attrgetter(*_DETAILS)(NO_DETAILS), 1
"""The details of most additions."""
_stored: Callable[..., StoredObservation] = StoredObservation
_stored_details: Callable[..., Details] = Details
_Members = defaultdict[str, list[int]]


class PageAdditions:
    """The folded additions to one page: their `documents` in the order of `ids`, and their index entries.

    `due` has for each the time (ms) that first changes it, None if none does. `positions` has the ms and the seq of
    each in turn. `relations` has the relations of all, as `event_relations.relations` yields them.
    """

    def __init__(self, page: bytes) -> None:
        self.name = text_of(page)
        self.ids: Sequence[bytes] = []
        self.documents: list[bytes] = []
        self.due: list[int | None] = []
        self.seqs: Sequence[int] = []
        self.positions: list[int] = []
        self.relations: list[tuple[str, str, str]] = []
        self._types, self._tags, self._owners = _Members(list), _Members(list), _Members(list)
        self._waiting: list[int] = []

    @property
    def count(self) -> int:
        """The number of additions."""
        return len(self.ids)

    def take(
        self,
        ids: Sequence[bytes],
        types: Sequence[bytes],
        bodies: Sequence[Fields],
        times: Sequence[int],
        seqs: Sequence[int],
        shard: int,
    ) -> None:
        """Fold all additions to the page, at most 65,536, given by column; all of them must be valid."""
        self.ids, self.seqs, names = ids, seqs, texts_of(ids)
        self.positions = [part for pair in zip(times, seqs, strict=True) for part in pair]
        kinds = texts_of(types)
        rows = [
            (name, self.name, type, body.source or body.by, ms, seq, *basics)
            for name, type, body, ms, seq, basics in zip(
                names, kinds, bodies, times, seqs, map(_basics, bodies), strict=True
            )
        ]
        for at, (row, body, details) in enumerate(zip(rows, bodies, map(_details, bodies), strict=True)):
            is_plain = details == _PLAIN_DETAILS
            self.documents.append(
                encode_plain(row) if is_plain and not shard else encode_stored(_observation(row, details, shard))
            )
            self._types[row[2]].append(at)
            for tag in body.tags if len(body.tags) < 2 else set(body.tags):
                self._tags[tag].append(at)
            if is_plain and body.ttl is not None:
                self.due.append(row[4] + int(body.ttl))
            else:
                self._index_details(at, body, row[4])
            if body.evidence or body.cause is not None:
                self._relate(row[0], f"{row[4]}-{row[5]}", body)

    def _index_details(self, at: int, body: Fields, ms: int) -> None:
        self.due.append(_due(body, ms))
        if body.owner is not None:
            self._owners[body.owner].append(at)
        if body.remind_on is not None:
            self._waiting.append(at)

    @property
    def indexes(self) -> Iterator[tuple[tuple[str, str], list[int]]]:
        """The indexes that list additions, each with the numbers, from 0, of those it lists."""
        for kind, values in ("type", self._types), ("tag", self._tags), ("owner", self._owners):
            yield from (((kind, value), members) for value, members in values.items())
        if self._waiting:
            yield WAITING, self._waiting

    def _relate(self, id: str, stream_id: str, body: Fields) -> None:
        self.relations += [("evidence", each, f"{id}@{self.name}") for each in body.evidence]
        if body.cause is not None:
            self.relations.append(("causes", body.cause, stream_id))


def added(subject: str, page: str, type: str, body: Fields, ms: int, seq: int, shard: int) -> StoredObservation:
    """Return the observation that an event adds, from its fields. Raises OverflowError if its expiry is too late."""
    if not _expires(body, ms):
        raise OverflowError("it would expire too late")
    row = subject, page, type, body.source or body.by, ms, seq, *_basics(body)
    return _observation(row, _details(body), shard)


def _observation(row: tuple[Any, ...], details: tuple[Any, ...], shard: int) -> StoredObservation:
    """Return an addition with these basics and, as `_details` returns them, details."""
    if details == _PLAIN_DETAILS and not shard:
        return _stored(*row)
    *others, times = details
    return _stored(*row, _stored_details(*others, min(times, MAX_SAFE_INTEGER), shard))


def _due(body: Fields, ms: int) -> int | None:
    """Return the time (ms) that first changes an addition, None if none does."""
    if body.remind_at is None and body.ttl is not None and body.status_class == "open":
        return ms + int(body.ttl)
    moments = [body.remind_at, body.expires_at if body.status_class == "open" else None]
    return min((millis(each) for each in moments if each is not None), default=None)


def split_additions(
    entries: Sequence[RawEntry], decoded: Decoded, shard: int
) -> tuple[list[PageAdditions], Sequence[RawEntry], Decoded]:
    """Return the additions of subjects that have no other entry among these, by page; and all other entries."""
    pages, others = defaultdict[bytes, list[int]](list), list[int]()
    _, subjects, names, kinds, types, *_ = decoded.columns
    times, seqs = entry_numbers(entries)
    for at, (is_plain, body, name, ms) in enumerate(
        zip(_are_plain(subjects, kinds), decoded.bodies, names, times, strict=True)
    ):
        if is_plain and not isinstance(body, Exception) and _expires(body, ms):
            pages[name].append(at)
        else:
            others.append(at)
    additions = []
    for name, indexes in pages.items():
        addition = PageAdditions(name)
        ids, named, bodies = _select(indexes, subjects), _select(indexes, types), _select(indexes, decoded.bodies)
        addition.take(ids, named, bodies, _select(indexes, times), _select(indexes, seqs), shard)
        additions.append(addition)
    columns = [_select(others, column) for column in decoded.columns]
    return additions, _select(others, entries), Decoded(columns, _select(others, decoded.bodies))


def _expires(body: Fields, ms: int) -> bool:
    """Set when an addition expires; return False if that is out of range. The fold of single events then rejects it."""
    if body.ttl is not None:
        try:
            body.expires_at = moment(ms + body.ttl)
        except OverflowError:
            return False
    return True


def _are_plain(subjects: Sequence[bytes], kinds: Sequence[bytes]) -> list[bool]:
    """Return for each event whether it adds an observation that no other event is about."""
    events_of, ids = Counter(subjects), b"".join(subjects)
    if len(events_of) == len(subjects) == kinds.count(b"added") and ids.isupper() and ids.isascii():
        return [True] * len(subjects)
    return [
        kind == b"added"
        and events_of[id] == 1
        and id.isupper()
        and id.isascii()  # the ids of memories are in lower case
        for id, kind in zip(subjects, kinds, strict=True)
    ]


def _select(indexes: list[int], column: Sequence[T]) -> Sequence[T]:
    """Return the elements of a column at these indexes."""
    return column if len(indexes) == len(column) else [column[at] for at in indexes]
