"""One page in memory: its observations, with indexes that answer in microseconds.

Events and the time are passed in; it does no I/O. It is not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from typing import TypeVar

from scratchbus.domain.event import Event
from scratchbus.domain.frozen import freeze
from scratchbus.domain.observation import Observation
from scratchbus.domain.schedule import unblocked
from scratchbus.domain.values import moment
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import damage
from scratchbus.projections.scratch_page import is_active
from scratchbus.projections.stored_observation import NO_DETAILS, AnyObservation, StoredObservation
from scratchbus.projections.subjects import SCRATCH_PAGE

Name = tuple[str, str]
"""The name of an index: a kind, such as a tag, and its value."""

BeforeAfter = tuple[Observation | None, Observation | None]
"""An observation before and after an event, as the log has it; None if it is not on the page."""

Key = TypeVar("Key")

_ALL = ("all", "")

_MAX_STALE = 1_000
"""The number of obsolete alarms that are tolerated, besides one for each observation."""

_SEQ_BITS = 50
_SEQ_MASK = (1 << _SEQ_BITS) - 1
_EPOCH = moment(0)


class PageInMemory:
    """The observations of a page, as they read at the latest time passed to `advance`.

    The initial ones may stay in their stored form until they are read. One that may be paged out is dropped
    `keep_final_ms` after its last event.
    """

    def __init__(self, documents: Iterable[AnyObservation], now_ms: int, keep_final_ms: int | None = None) -> None:
        self._keep, self._now = keep_final_ms, now_ms
        self._documents: dict[str, AnyObservation] = {each.id: each for each in documents}
        self._shown: dict[int, AnyObservation] = {each.added_seq: each for each in self._documents.values()}
        self._named: dict[Name, list[int]] | None = None  # the indexes; None until they are first used
        self._active: defaultdict[int, list[int]] = defaultdict(list)  # the seqs of each priority
        self._blocked = 0  # the number of these that may be blocked
        self._alarms: list[int] = []
        for seq, document in self._shown.items():
            if isinstance(document, StoredObservation) and document.details is NO_DETAILS:  # as most are: it is active
                self._active[document.priority].append(seq)
                if document.expires_at is not None:
                    self._alarms.append(_millis_from(document.expires_at) << _SEQ_BITS | seq)
                continue
            if is_active(document):
                self._active[document.priority].append(seq)
                self._blocked += bool(document.blocked_by)
            self._alarms += self._alarms_of(document)
        _sort_all(self._active.values())
        heapify(self._alarms)
        self.next_ms: float = 0
        self.advance(now_ms)

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, id: str) -> Observation | None:
        """Return an observation as it reads now, or None."""
        document = self._documents.get(id)
        return self.as_observation(document) if document is not None else None

    def active(self, limit: int | None) -> list[Observation]:
        """Return the active observations that are not blocked, by priority, then newest first."""
        found = unblocked(self._by_priority(), self._is_open) if self._blocked else self._by_priority()
        return [*map(self.as_observation, islice(found, limit))]

    def _by_priority(self) -> Iterator[AnyObservation]:
        for priority in sorted(self._active, reverse=True):
            yield from map(self._shown.__getitem__, reversed(self._active[priority]))

    def _is_open(self, id: str) -> bool:
        document = self._documents.get(id)
        return document is not None and self._shown[document.added_seq].status_class == "open"

    def as_observation(self, document: AnyObservation) -> Observation:
        """Return an observation on the page as it reads now, as a model, which replaces its stored form."""
        shown = self._shown[document.added_seq]
        if isinstance(shown, Observation):
            return shown
        observation = freeze(scratch_page.as_observation(shown))
        self._shown[shown.added_seq] = self._documents[shown.id] = observation
        return observation

    def _indexes(self) -> dict[Name, list[int]]:
        """Return the seqs of the observations with each type, tag and owner; many pages are never listed."""
        if self._named is None:
            named: defaultdict[Name, list[int]] = defaultdict(list, {_ALL: [*self._shown]})
            for seq, document in self._shown.items():
                for name in scratch_page.index_entries(document):
                    named[name].append(seq)
            _sort_all(named.values())
            self._named = named
        return self._named

    def has(self, name: Name) -> bool:
        """Return whether any observation on the page has this type, tag or owner."""
        return name in self._indexes()

    def walk(self, names: Collection[Name], below_seq: int | None) -> Iterator[AnyObservation]:
        """Yield the observations of the smallest of these indexes, or all if there are none, newest first.

        They may be in their stored form; pass them to `as_observation` before use. With `below_seq`, only those added
        before it. The page must not change until the iterator is exhausted or dropped.
        """
        indexes, shown = self._indexes(), self._shown
        seqs: Sequence[int] = min((indexes.get(name, ()) for name in names or (_ALL,)), key=len)
        at = len(seqs) if below_seq is None else bisect_left(seqs, below_seq)
        while at:
            at -= 1
            yield shown[seqs[at]]

    def evolve(self, event: Event) -> tuple[BeforeAfter, str]:
        """Fold an event; return what it changed, and the reason if it could not be folded.

        An event that is already folded changes nothing.
        """
        before = self._before(event.subject)
        if before is not None and event.seq <= before.seq:
            return (before, before), ""
        after, problem = SCRATCH_PAGE.fold(before, event)
        return self._apply(event.subject, before, after), problem

    def damage(self, subject: str, ms: int, seq: int) -> BeforeAfter:
        """Mark the observation of an event that could not be read as damaged."""
        before = self._before(subject)
        return self._apply(subject, before, damage(before, ms, seq))

    def advance(self, now_ms: int) -> None:
        """Advance the clock: expired observations read as archived from now on, and ended claims as none."""
        self._now = now = max(self._now, now_ms)
        while self._alarms and self._alarms[0] >> _SEQ_BITS <= now:
            shown = self._shown.get(heappop(self._alarms) & _SEQ_MASK)
            if shown is None:
                continue
            document = self.as_observation(shown)
            stored = self._documents[document.id]  # as the log has it: not final if no event records the expiry yet
            if self._keep is not None and scratch_page.may_be_paged_out(stored) and stored.ms + self._keep <= now:
                self._drop(stored)
            else:
                self._show(document, scratch_page.settled(document, now))
        self._await_next()

    def _before(self, subject: str) -> Observation | None:
        """Return an observation as the log has it."""
        document = self._documents.get(subject)
        return self.as_observation(document) if isinstance(document, StoredObservation) else document

    def _await_next(self) -> None:
        self.next_ms = self._alarms[0] >> _SEQ_BITS if self._alarms else inf

    def _apply(self, id: str, before: Observation | None, after: Observation | None) -> BeforeAfter:
        if after is before:
            return before, after
        self._index(before, after)
        was_shown = self._shown.pop(before.added_seq) if before is not None else None
        if after is None:
            del self._documents[id]
            self._rank(was_shown, None)
            return before, after
        self._documents[id] = freeze(after)
        pending = self._alarms_of(before) if before is not None else []
        for alarm in self._alarms_of(after):
            if alarm not in pending:
                heappush(self._alarms, alarm)
        if len(self._alarms) > _MAX_STALE + 2 * len(self._documents):
            self._alarms = [alarm for document in self._shown.values() for alarm in self._alarms_of(document)]
            heapify(self._alarms)
        self._await_next()
        self._show(was_shown, scratch_page.settled(after, self._now))
        return before, after

    def _drop(self, document: AnyObservation) -> None:
        """Remove an observation that has been final for `keep_final_ms`."""
        self._index(self._documents.pop(document.id), None)
        del self._shown[document.added_seq]

    def _alarms_of(self, observation: AnyObservation) -> list[int]:
        """Return the times at which an observation changes or is dropped.

        Each is one number, with the milliseconds in the high bits and the observation's seq in the low bits: a page has
        many of them, and tuples would burden the garbage collector.
        """
        is_open, expires_at, claim = observation.status_class == "open", observation.expires_at, observation.claim
        alarms = []
        if is_open and expires_at is not None:
            alarms.append(_millis_from(expires_at))
        if claim is not None:
            alarms.append(_millis_from(claim.until))
        if observation.not_before is not None:
            alarms.append(_millis_from(observation.not_before))
        if not is_open and self._keep is not None and scratch_page.may_be_paged_out(observation):
            alarms.append(observation.ms + self._keep)
        seq = observation.added_seq
        return [ms << _SEQ_BITS | seq for ms in alarms]

    def _show(self, before: AnyObservation | None, after: Observation) -> None:
        self._shown[after.added_seq] = after
        self._rank(before, after)

    def _rank(self, before: AnyObservation | None, after: Observation | None) -> None:
        """Replace an observation in the order of the active ones."""
        was = before if before is not None and is_active(before) else None
        now = after if after is not None and is_active(after) else None
        self._blocked += _may_be_blocked(now) - _may_be_blocked(was)
        if was is not None and now is not None and was.priority == now.priority:
            return
        if was is not None:
            _remove(self._active, was.priority, was.added_seq)
        if now is not None:
            _insert(self._active, now.priority, now.added_seq)

    def _index(self, before: AnyObservation | None, after: Observation | None) -> None:
        """Replace an observation in all indexes; None stands for one that is not on the page."""
        if self._named is None:
            return
        removed, added = _entries(before), _entries(after)
        for name, seq in removed - added:
            _remove(self._named, name, seq)
        for name, seq in added - removed:
            _insert(self._named, name, seq)


def _sort_all(lists: Iterable[list[int]]) -> None:
    for each in lists:
        each.sort()


def _insert(lists: dict[Key, list[int]], key: Key, seq: int) -> None:
    """Insert a seq into a sorted list, which is new if there is none."""
    seqs = lists.setdefault(key, [])
    if seqs and seqs[-1] > seq:
        insort(seqs, seq)
    else:
        seqs.append(seq)


def _remove(lists: dict[Key, list[int]], key: Key, seq: int) -> None:
    """Remove a seq from its sorted list, and the list if it was the last."""
    seqs = lists[key]
    del seqs[bisect_left(seqs, seq)]
    if not seqs:
        del lists[key]


def _may_be_blocked(document: AnyObservation | None) -> bool:
    return document is not None and bool(document.blocked_by)


def _millis_from(at: datetime) -> int:
    """Return a time as milliseconds since the epoch, rounded up."""
    days, seconds, micros = (since := at - _EPOCH).days, since.seconds, since.microseconds
    return (days * 86_400 + seconds) * 1_000 + -(-micros // 1_000)


def _entries(document: AnyObservation | None) -> set[tuple[Name, int]]:
    """Return the entries of an observation in the indexes."""
    if document is None:
        return set()
    return {(name, document.added_seq) for name in (_ALL, *scratch_page.index_entries(document))}
