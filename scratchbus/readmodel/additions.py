"""Additions folded by column: from entries of the log to stored documents and indexes, without models in between.

Most events are additions of observations about which nothing else has happened yet. What `scratch_page.added` makes of
them is said here a second time, for speed; `scratchbus verify` folds all events one by one and compares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from scratchbus.domain.observation_models import ObservationFields
from scratchbus.domain.values import LARGEST, millis, moment
from scratchbus.eventlog.bodies import Fields
from scratchbus.eventlog.codec import Decoded
from scratchbus.eventlog.raw_entries import RawEntry, entry_numbers, text_of, texts_of
from scratchbus.eventlog.stored_documents import encode_plain, encode_stored
from scratchbus.projections.scratch_page import WAITING
from scratchbus.projections.stored_observation import BASICS, PLAIN, Details, StoredObservation

_basics: Callable[[Fields], tuple[Any, ...]] = attrgetter(*filter(ObservationFields.model_fields.__contains__, BASICS))
_details: Callable[[Fields], tuple[Any, ...]] = attrgetter(
    *filter(ObservationFields.model_fields.__contains__, Details.__struct_fields__)
)
_PLAIN_DETAILS = _details(PLAIN)
"""What the details of most additions are."""
_stored: Callable[..., StoredObservation] = StoredObservation
_stored_details: Callable[..., Details] = Details
_moment = lru_cache(moment)  # many were added in the same millisecond, and live as long
_Members = defaultdict[str, list[object]]


class PageAdditions:
    """What a stretch of the log adds to one page: documents, and the members of indexes with their scores.

    `places` has the ms and seq of each addition; `relations` those that some of them tell of, as
    `event_relations.relations` has them.
    """

    def __init__(self, page: bytes) -> None:
        self.name = text_of(page)
        self.documents: list[bytes] = []
        self.due: list[object] = []
        self._types, self._tags, self._owners = _Members(list), _Members(list), _Members(list)
        self._waiting = list[object]()
        self.places: list[int] = []
        self.relations: list[tuple[str, str, str]] = []
        self._at_page = b"@" + self.name.encode()

    @property
    def count(self) -> int:
        """How many additions there are."""
        return len(self.places) // 2

    def take(self, id: bytes, name: str, type: str, body: Fields, ms: int, seq: int, shard: int, number: bytes) -> bool:
        """Take an addition, and return whether it can be folded; the fold of single events says why not.

        `name` is the id as text, `number` the seq.
        """
        ttl, details = body.ttl, _details(body)
        try:
            if ttl is not None:
                body.expires_at = _moment(ms + ttl)
        except OverflowError:
            return False
        source, is_plain = body.source or body.by, details == _PLAIN_DETAILS
        if is_plain and not shard and body.times == 1:
            row = encode_plain((name, self.name, type, source, ms, seq, *_basics(body)))
        else:
            whole = _stored_details(*details, min(body.times, LARGEST), shard)
            row = encode_stored(_stored(name, self.name, type, source, ms, seq, *_basics(body), whole))
        self.documents += (id, row)
        self.places += (ms, seq)
        place = (number, id)
        self._types[type] += place
        for tag in body.tags if len(body.tags) < 2 else set(body.tags):
            self._tags[tag] += place
        if not is_plain:
            self._index_details(place, body)
        due = ms + int(ttl) if is_plain and ttl is not None else _due(body, ms)
        if due is not None:
            self.due += (str(due), id + self._at_page)
        if body.evidence or body.cause is not None:
            self._relate(name, f"{ms}-{seq}", body)
        return True

    def _index_details(self, place: tuple[bytes, bytes], body: Fields) -> None:
        if body.owner is not None:
            self._owners[body.owner] += place
        if body.remind_on is not None:
            self._waiting += place

    @property
    def indexes(self) -> Iterator[tuple[tuple[str, str], list[object]]]:
        """The indexes that the additions are in, each with its members and their scores."""
        for kind, values in ("type", self._types), ("tag", self._tags), ("owner", self._owners):
            yield from (((kind, value), members) for value, members in values.items())
        if self._waiting:
            yield WAITING, self._waiting

    def _relate(self, id: str, place: str, body: Fields) -> None:
        self.relations += [("evidence", each, f"{id}@{self.name}") for each in body.evidence]
        if body.cause is not None:
            self.relations.append(("causes", body.cause, place))


def _due(body: Fields, ms: int) -> int | None:
    """Return when (ms) time changes an addition first, if it ever does."""
    if body.remind_at is None and body.ttl is not None and body.status_class == "open":
        return ms + int(body.ttl)
    moments = [body.remind_at, body.expires_at if body.status_class == "open" else None]
    return min((millis(each) for each in moments if each is not None), default=None)


def take_additions(
    entries: Sequence[RawEntry], decoded: Decoded, shard: int
) -> tuple[list[PageAdditions], Sequence[RawEntry], Decoded]:
    """Return the additions, by page, that nothing else among these entries is about; and all other entries."""
    pages, others = dict[bytes, PageAdditions](), list[int]()
    _, subjects, names, kinds, types, *_ = decoded.columns
    numbers = b"-".join([id for id, _ in entries]).split(b"-")[1::2]
    columns = texts_of(subjects), names, texts_of(types), decoded.bodies, *entry_numbers(entries), numbers
    are_plain = _are_plain(subjects, kinds)
    for at, (is_plain, id, text, name, type, body, ms, seq, number) in enumerate(
        zip(are_plain, subjects, *columns, strict=True)
    ):
        if is_plain and not isinstance(body, Exception):
            page = pages.get(name)
            if page is None:
                page = pages[name] = PageAdditions(name)
            if page.take(id, text, type, body, ms, seq, shard, number):
                continue
        others.append(at)
    return [page for page in pages.values() if page.places], *_only(others, entries, decoded)


def _are_plain(subjects: Sequence[bytes], kinds: Sequence[bytes]) -> list[bool]:
    """Return for each event whether it adds an observation that no other is about."""
    events_of, ids = Counter(subjects), b"".join(subjects)
    if len(events_of) == len(subjects) == kinds.count(b"added") and ids.isupper() and ids.isascii():
        return [True] * len(subjects)
    return [
        kind == b"added" and events_of[id] == 1 and id.isupper() and id.isascii()  # those of memories are in lower case
        for id, kind in zip(subjects, kinds, strict=True)
    ]


def _only(wanted: list[int], entries: Sequence[RawEntry], decoded: Decoded) -> tuple[Sequence[RawEntry], Decoded]:
    """Return some of these entries, by their numbers."""
    if len(wanted) == len(entries):
        return entries, decoded
    columns = [[column[at] for at in wanted] for column in decoded.columns]
    return [entries[at] for at in wanted], Decoded(columns, [decoded.bodies[at] for at in wanted])
