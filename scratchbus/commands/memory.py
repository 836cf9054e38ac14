"""Carry out edits of an agent's memory: each is an event guarded on the version that it was made for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from scratchbus.commands.copied_errors import copied
from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory_edit import MemoryEdit, earlier_attempt, put
from scratchbus.domain.digest import digest_of
from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Session
from scratchbus.engine.retry_limits import contention
from scratchbus.engine.steps import Pause, Queued, Step, Wrote
from scratchbus.errors import Conflict, EngineError, EventIdReused, InvalidInput, NotFound, SessionOver, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.codec import encode_body
from scratchbus.eventlog.ids import OPEN_END, bound_of
from scratchbus.eventlog.retries import has_same_fields
from scratchbus.eventlog.writes import MAX_BATCH, MAX_BODIES, Write
from scratchbus.projections import session
from scratchbus.projections.subjects import projection_of
from scratchbus.readmodel.history import known_events, walk_back
from scratchbus.readmodel.memory_history import folded
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.scope import Core

_TRIES = 100


def edit(core: Core, page: str, command: MemoryEdit, occasion: Occasion | None = None) -> Step[Remembered | None]:
    """Append the event that an edit makes of its subject, and return the resulting subject.

    Concurrent edits of one subject in this process are queued, and appended together. If another process was faster,
    they are decided again on the new state. A retry gets the subject as the event already in the log left it. Raises
    the errors of `decide`, SessionOver, EventIdReused, or Conflict if others keep changing the subject.
    """
    return (yield from _edit(core, page, command, occasion)).document


def remove(core: Core, page: str, command: MemoryEdit) -> Step[Remembered | None]:
    """Carry out an edit that removes its subject, as `edit` does, and return the subject as it was before."""
    return (yield from _edit(core, page, command)).before


def _edit(core: Core, page: str, command: MemoryEdit, occasion: Occasion | None = None) -> Step[_Edited]:
    job = _Job(command, occasion or command.on(core, page))
    edited: _Edited = yield Queued(core.queues, (page, command.about), job, partial(_edit_all, core))
    if edited.event is not None:
        yield Wrote(edited.event.id, edited.event.position)
    return edited


def append_new(
    core: Core, occasion: Occasion, event: Event, version: int | None = 0, varying: frozenset[str] = frozenset()
) -> Step[Event]:
    """Append the first event of a subject, and return it as the log has it, perhaps from a previous attempt.

    With `version` None the subject may exist already. A retry may compute the fields in `varying` otherwise. Raises
    SessionOver or EventIdReused.
    """
    appended = yield from append(core.log, occasion.page, [put(occasion, event, version, varying=varying)])
    if appended.recalled is None:
        return appended.written[0].placed(event)
    (known,) = yield from known_events(core.log, appended.recalled)
    return known


class _Job(NamedTuple):
    """An edit in the queue."""

    command: MemoryEdit
    occasion: Occasion

    @property
    def own_id(self) -> str | None:
        """The event id chosen by its caller."""
        return self.occasion.event_id if self.occasion.digest else None

    def with_kept_id(self) -> _Job:
        """Return the edit with an event id that is remembered like those chosen by callers."""
        if self.own_id is not None:
            return self
        digest = digest_of(self.command.verb, self.occasion.page, self.command.about, *self.command.retry_arguments())
        id = self.occasion.event_id.partition("~")[0].removesuffix(OPEN_END)  # an id without a bound is looked up
        return self._replace(occasion=self.occasion._replace(event_id=id, digest=digest))

    def decide(self, document: Remembered | None, its_session: Remembered | None) -> Event | Exception | None:
        """Return the event that the edit makes of a document, None for none, or the error."""
        if isinstance(its_session, Session) and its_session.ended and self.command.about != session.SUBJECT:
            return SessionOver(its_session.id)
        try:
            return self.command.decide(self.occasion, document)
        except (InvalidInput, NotFound, Conflict) as error:
            return error

    def makes(self, event: Event, before: Remembered | None) -> bool:
        """Return whether the edit makes this event, found under its id, of the earlier document.

        A generated id has no digest, so the edit is decided again.
        """
        if bound_of(event.id) is None:
            return True
        repeated = self.decide(before, None)
        return isinstance(repeated, Event) and type(repeated) is type(event) and has_same_fields(repeated, event)


class _Edited(NamedTuple):
    """The document after an edit; if it changed anything, the edit's event, and the document before it."""

    document: Remembered | None
    event: Event | None = None
    before: Remembered | None = None


_Decided = list[tuple[_Job, Event | Exception | None]]
_Outcome = _Edited | Exception


def _edit_all(core: Core, jobs: Sequence[_Job]) -> Step[list[_Outcome]]:
    """Do edits of one subject in order; return the document after each, or its error."""
    outcomes = list[_Outcome]()
    limit = len(jobs)
    while len(outcomes) < len(jobs):
        batch = jobs[len(outcomes) :][:limit]
        try:
            outcomes += yield from _append_some(core, batch)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, Conflict | InvalidInput | NotFound):
                limit = len(batch) // 2  # nothing was written; halve the batch until the edit at fault is alone
                continue
            outcomes += [copied(error, job.own_id) for job in batch]
        limit = min(len(jobs), 2 * limit)
    return outcomes


def _append_some(core: Core, jobs: Sequence[_Job]) -> Step[list[_Outcome]]:
    """Append the events of the first edits, as many as fit into one batch; return the outcome of each edit."""
    page, subject = jobs[0].occasion.page, jobs[0].command.about
    missing = 0
    for attempt in range(_TRIES):
        found = yield from recollect(core, page, (subject, session.SUBJECT))
        before = found.get(subject)
        version = before.version if before else missing
        decided, writes = _decide(jobs, before, found.get(session.SUBJECT), version)
        if not writes:
            return (yield from _outcomes(core, decided, before))
        try:
            appended = yield from append(core.log, page, writes)
        except VersionConflict as conflict:
            missing = conflict.actual  # of a subject whose document cannot be read
            yield Pause(contention(attempt))
            continue
        except EngineError as error:
            decided_events = _with_events(decided, [write.event for write in writes])
            return [
                copied(error, decision.id if isinstance(decision, Event) else job.own_id)
                for job, decision in decided_events
            ]
        if appended.recalled is None:
            prev = before.position.stream_id if before else ""
            written: list[Event] = []
            for write, row in zip(writes, appended.written, strict=True):
                written.append(row.placed(write.event).placed(prev=prev))
                prev = row.position.stream_id
            return (yield from _outcomes(core, _with_events(decided, written), before))
        if len(appended.recalled) != len(writes):
            raise EventIdReused(writes[0].event.id)
        known = yield from known_events(core.log, appended.recalled)
        return (yield from _outcomes(core, _with_events(decided, known), None, are_recalled=True))
    raise Conflict(f"{subject} keeps changing; try again")


def _with_events(decided: _Decided, events: Sequence[Event]) -> _Decided:
    """Return the decisions with these events in place of the new ones."""
    remaining = iter(events)
    return [(job, next(remaining) if isinstance(decision, Event) else decision) for job, decision in decided]


def _decide(
    jobs: Sequence[_Job], document: Remembered | None, its_session: Remembered | None, version: int
) -> tuple[_Decided, list[Write]]:
    """Return the outcomes of the first edits, each based on the one before, and the batch of their writes.

    A retry of a batch is recognised by all of its ids, so if callers chose some of them, the generated ones are
    remembered too. An edit that ends its subject is the last of its batch.
    """
    keeps_all = any(job.own_id is not None for job in jobs)
    decided: _Decided = []
    writes: list[Write] = []
    size = 0
    for each in jobs:
        job = each.with_kept_id() if keeps_all else each
        decision = job.decide(document, its_session)
        if isinstance(decision, Event):
            write = put(job.occasion, decision, version + len(writes), job.command.ends_as)
            write.body = encode_body(decision)
            size += len(write.body)
            if writes and (size > MAX_BODIES or len(writes) == MAX_BATCH):
                break
            writes.append(write)
            document = _folded_on(document, decision)
        decided.append((job, decision))
        if job.command.ends_as:
            break
    return decided, writes


def _outcomes(
    core: Core, decided: _Decided, document: Remembered | None, *, are_recalled: bool = False
) -> Step[list[_Outcome]]:
    """Return the document after each of these edits, or the error for a refused one.

    Events that `are_recalled` were in the log before, as are those of retries that would make none now.
    """
    outcomes = list[_Outcome]()
    for job, decision in decided:
        event = decision if isinstance(decision, Event) else (yield from _known_or_error(core, job))
        if not isinstance(event, Event):
            outcomes.append(event or (decision if isinstance(decision, Exception) else _Edited(document)))
            continue
        try:
            follows = event.prev == (document.position.stream_id if document else "")
            before = document if follows else (yield from _before(core, event))
        except EngineError as error:
            outcomes.append(copied(error, event.id, event.position))
            continue
        edited = _folded_on(before, event)
        is_own = event is decision and not are_recalled
        is_done = is_own or job.makes(event, before)
        outcomes.append(_Edited(edited, event, before) if is_done else EventIdReused(event.id))
        document = edited if event is decision else document
    return outcomes


def _folded_on(document: Remembered | None, event: Event) -> Remembered | None:
    return projection_of(event.subject).fold(document, event)[0]


def _known_or_error(core: Core, job: _Job) -> Step[Event | Exception | None]:
    """Return the event that a retry has already appended, None if this is not a retry."""
    try:
        positions = yield from earlier_attempt(core, job.occasion, job.command.about)
        return None if positions is None else (yield from known_events(core.log, positions))[0]
    except (EventIdReused, EngineError) as error:
        return error


def _before(core: Core, event: Event) -> Step[Remembered | None]:
    """Return a subject as it was before one of its events."""
    events, at = list[Event](), event.prev
    while at:
        batch, at = yield from walk_back(core.log, event.page, event.subject, at, 500)
        events += batch
    return folded(events[::-1], event.subject)
