"""The expected state: everything that the engine must hold of a shard at some position, folded from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import START, Position
from scratchbus.domain.values import millis
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.dropped_heads import head_of
from scratchbus.eventlog.gaps import ERASED
from scratchbus.eventlog.layouts import FOREVER, NO_TAGS, SPAN, Head
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, index_in_batch
from scratchbus.projections.projection import Document
from scratchbus.projections.subjects import fold_event, is_remembered

Report = Callable[[str, str, str], None]
"""Receives a fault of the log itself: kind, where, what."""

_LAST = {"note_deleted": "deleted", "session_ended": "ended"}
"""The kinds of events that are the last about a memory, and the status of its head then."""

_OF_BUS = ("types_changed", "relations_changed")
"""The kinds of events whose subjects are neither observations nor memories."""


class Subject(NamedTuple):
    """A subject after its events: their number, the last one, and the head of a subject that is off its page.

    `is_sure` is false if an entry about it is not an event. The head of an erased subject has no priority and no seq
    of its first event.
    """

    events: int = 0
    last: str = ""
    last_head: Head | None = None
    is_sure: bool = True


@dataclass(slots=True)
class PageState:
    """A page: its observations and memories, all known subjects, and the holder of each dedupe key."""

    documents: MutableMapping[str, Document | None] = field(default_factory=dict)
    subjects: MutableMapping[str, Subject] = field(default_factory=dict)
    holders: MutableMapping[str, str | None] = field(default_factory=dict)

    def observation(self, id: str) -> Observation | None:
        """Return an observation on the page."""
        found = self.documents.get(id)
        return found if isinstance(found, Observation) else None

    def memory(self, subject: str) -> Remembered | None:
        """Return a memory on the page."""
        found = self.documents.get(subject)
        return found if isinstance(found, Remembered) else None

    def live(self) -> Iterator[Observation]:
        """Yield the observations on the page."""
        return (document for document in self.documents.values() if isinstance(document, Observation))

    def open(self) -> Iterator[str]:
        """Yield the ids of the open observations."""
        return (document.id for document in self.live() if document.is_open)

    def sure(self) -> Iterator[str]:
        """Yield the subjects of which every event could be read."""
        return (subject for subject in self.subjects if self.is_sure(subject))

    def is_sure(self, subject: str) -> bool:
        """Return whether every event about a subject could be read."""
        return self.subjects.get(subject, Subject()).is_sure

    def dedupe_keys(self) -> Iterator[str]:
        """Yield the dedupe keys of the open observations."""
        return (key for key, holder in self.holders.items() if holder is not None)

    def head(self, id: str) -> Head | None:
        """Return the head that the append script must have of a subject."""
        document = self.observation(id)
        return head_of(document) if document is not None else self.subjects.get(id, Subject()).last_head

    def score(self, id: str) -> int | None:
        """Return the score that an open observation must have, None for any other subject."""
        document = self.observation(id)
        return document.priority * SPAN + document.added_seq if document is not None and document.is_open else None

    def soonest(self) -> int:
        """Return when (ms) the first open observation expires."""
        ends = (document.expires_at for document in self.live() if document.is_open)
        return min(filter(None, (millis(each) for each in ends if each is not None)), default=FOREVER)


@dataclass(slots=True)
class ExpectedState:
    """The fold of a shard's log up to `at`, the event `event_id`."""

    at: Position = START
    event_id: str = ""
    batch: tuple[int, int] = (1, 1)
    pages: dict[str, PageState] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    erased: set[int] = field(default_factory=set)

    def peek(self, name: str) -> PageState:
        """Return a page to read, an empty one if there is none."""
        return self.pages.get(name) or PageState()

    def apply(self, entry: RawEntry, item: Event | Poison, report: Report) -> None:
        """Fold one entry, and report faults of its position in the log."""
        position = item.position
        self._follow(position, index_in_batch(entry), report)
        self.event_id = entry_id(entry)
        if isinstance(item, Poison):
            self._reject(item.page, item.subject, position, item.reason, report)
            return
        page, kind = self.page(item.page), item.kind  # kinds are compared, since isinstance is slow for models
        before, before_event = page.observation(item.subject), page.subjects.get(item.subject, Subject())
        last_id = "" if kind == "erased" else before_event.last  # a tombstone starts a new chain
        if item.prev != last_id:
            report("chain", str(position), f"says that {item.prev!r} came before it, and not {last_id!r}")
        if before is not None and item.type != before.type:
            report("chain", str(position), f"is of the type {item.type!r}, its observation of {before.type!r}")
        if problem := fold_event(page.documents, item):
            self._reject(item.page, item.subject, position, problem, report)
            return
        after, count = page.observation(item.subject), before_event.events + 1
        archived_head = before_event.last_head
        if isinstance(item, Erased):
            archived_head, count = _erased(item), item.version
        elif is_remembered(item.subject) or kind in _OF_BUS:
            archived_head = _versioned(before_event, item)
        elif before is not None and after is None:
            archived_head = _final_head(before, item)
        page.subjects[item.subject] = Subject(count, position.stream_id, archived_head, before_event.is_sure)
        for document, holder in ((before, None), (after, item.subject)):
            if document is not None and document.dedupe_key and document.is_open:
                page.holders[document.dedupe_key] = holder

    def page(self, name: str) -> PageState:
        """Return a page to change, a new one if there is none."""
        found = self.pages.get(name)
        if found is None:
            found = self.pages[name] = PageState()
        return found

    def _follow(self, position: Position, batch: tuple[int, int], report: Report) -> None:
        """Report an entry that may not come next."""
        if position.seq <= self.at.seq:
            report("order", str(position), f"comes behind {self.at}")
        elif missing := self._missing_before(position.seq):
            lost = "1 event is" if missing == 1 else f"{missing:,} events are"
            report("gap", str(position), f"{lost} missing before it, behind {self.at}")
            self.gaps[position.stream_id] = missing
        elif position.ms < self.at.ms:
            report("order", str(position), f"has a time before that of {self.at}")
        last_index, total = self.batch
        is_next = batch == (last_index + 1, total) if last_index < total else batch[0] == 1 <= batch[1]
        if position.seq == self.at.seq + 1 and not is_next:
            report("batch", str(position), f"is {batch[0]}/{batch[1]} of a batch, behind {last_index}/{total}")
        self.at, self.batch = position, batch

    def _missing_before(self, seq: int) -> int:
        """Return how many events are missing before the next one and were not erased; it may be very far ahead."""
        missing = seq - self.at.seq - 1
        if not missing:
            return 0
        if missing <= len(self.erased):
            return sum(each not in self.erased for each in range(self.at.seq + 1, seq))
        return missing - sum(self.at.seq < each < seq for each in self.erased)

    def _reject(self, page: str, subject: str, at: Position, reason: str, report: Report) -> None:
        report("event", str(at), f"could not be folded: {reason}")
        state = self.page(page)
        entry = state.subjects.get(subject, Subject())
        state.subjects[subject] = entry._replace(is_sure=False)


def _final_head(before: Observation, event: Event) -> Head:
    """Return the head of a subject that an event took off its page."""
    head = head_of(before)
    if before.is_open:
        head = head._replace(holder="", until=0)
    return head._replace(
        version=head.version + 1, status=event.kind, status_class="f", due_at=0, position=event.position.stream_id
    )


def _versioned(known: Subject, event: Event) -> Head:
    """Return the head of a memory, or of the registry, after an event about it."""
    head = known.last_head or Head(0, "active", "c", event.type, 0, event.seq, 0, 0, 0, "", 0, "", 0, 0, NO_TAGS, "")
    if event.kind in _LAST:
        head = head._replace(status=_LAST[event.kind], status_class="f")
    elif head.status == ERASED:
        head = head._replace(status="active", status_class="c")
    return head._replace(version=known.events + 1, position=event.position.stream_id)


def _erased(event: Erased) -> Head:
    """Return the known part of the head of an erased subject."""
    stream_id = event.position.stream_id
    return Head(event.version, ERASED, "f", event.type, 0, 0, 0, 0, 0, "", 0, stream_id, 0, 0, NO_TAGS, "")
