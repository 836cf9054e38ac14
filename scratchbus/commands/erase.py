"""Erasing: a tombstone replaces the events of a subject and everything derived from them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from secrets import token_hex
from typing import IO, cast

from scratchbus.commands import files
from scratchbus.commands.execution import Occasion
from scratchbus.commands.fork_copies import copies_in_forks
from scratchbus.commands.held_lock import WhileLocked, take_lock
from scratchbus.commands.observations import not_found
from scratchbus.commands.scratch_directory import ScratchDirectory, name_of, names_in
from scratchbus.domain.checks import check_own_event_id, check_reason
from scratchbus.domain.conversations import subject_of
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.facts import Fact
from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import Position
from scratchbus.domain.values import SCOPE_PAGES, SESSION_PAGES
from scratchbus.engine.steps import Fetch, Pause, Step, ask
from scratchbus.errors import (
    ArchiveBusy,
    ArchiveError,
    Conflict,
    EventIdReused,
    FilesUnavailable,
    InvalidField,
    InvalidId,
    NotReplicated,
    PositionLost,
    ScratchbusError,
)
from scratchbus.eventlog.append import append
from scratchbus.eventlog.below_floor import from_archive, read_floor
from scratchbus.eventlog.confirm import confirm
from scratchbus.eventlog.ids import bound_of
from scratchbus.eventlog.staging import abort_import
from scratchbus.eventlog.subscription_state import names
from scratchbus.eventlog.trim import LONGEST_LEASE, Archiving
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections import event_relations
from scratchbus.projections.facts import PREFIX as FACTS
from scratchbus.projections.files import PREFIX as FILES
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.subjects import check_subject
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.history import history
from scratchbus.readmodel.queries import read_head, recollect
from scratchbus.readmodel.rebuild_lease import RebuildLease, clear, take
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):  # few erasures are of facts
    from scratchbus.commands import contested_facts

_TRIES = 5
_CHECKS, _NAP = 20, 0.25  # checks whether an archiver has ended, and seconds between them
_LEASE_MS = LONGEST_LEASE


def erase(core: Core, page: str, id: str, reason: str, event_id: str | None) -> Step[Erased]:
    """Erase all events about a subject, and its copies in forks; return the tombstone.

    An erased subject is left unchanged. If an erasure was cut short, the next call completes it. Waits while an
    archiver is at work. An error of the archive, or of private files, is raised once everything else is erased.
    """
    failures: list[ScratchbusError] = []
    contest = (yield from _contest_of(core, page, id)) if _is_fact(page, id) else None
    lock: IO[bytes] | None = None
    try:
        lock = yield from _lock_file(core, page, id)
    except FilesUnavailable as failure:
        failures.append(failure)
    with lock or nullcontext():
        tombstone = yield from _erase_one(core, page, id, reason, event_id, failures)
        if lock is not None:
            yield from _delete_file(core, page, id, lock)
    pending, seen = [tombstone], {page}
    while pending:
        parent = pending.pop()
        for copy in (yield from copies_in_forks(core, parent)):
            if copy.page in seen:
                continue  # an older version could record a session as its own fork
            seen.add(copy.page)
            copy_id = f"{parent.id}/{copy.page}"
            erasing = _erase_one(core, copy.page, copy.subject, reason, copy_id, failures, parent.position)
            pending.append((yield from erasing))
    if contest is not None:
        yield from contested_facts.review(core, page, *contest)
    if failures:
        raise failures[0]
    return tombstone


def _is_fact(page: str, id: object) -> bool:
    return page.startswith(SCOPE_PAGES) and isinstance(id, str) and id.startswith(FACTS)


def _contest_of(core: Core, page: str, id: str) -> Step[tuple[list[Fact], list[Fact]]]:
    """Return the rivals of a fact that will be erased, and the fact, if it is still there."""
    found = yield from recollect(core, page, [id])
    facts = [fact for fact in found.values() if isinstance(fact, Fact)]
    return (yield from contested_facts.rivals_of(core, page, facts)), facts


def _lock_file(core: Core, page: str, subject: object) -> Step[IO[bytes] | None]:
    """Return the lock of a session's files if the subject is one of them, and they are on this machine.

    While it is held, no `sync` lists the file again. Raises FilesUnavailable.
    """
    if not (isinstance(subject, str) and subject.startswith(FILES) and page.startswith(SESSION_PAGES)):
        return None
    session = page.removeprefix(SESSION_PAGES)
    names = yield Fetch(partial(names_in, files.home_of(core.settings)))
    if name_of(core.settings.bus, session) not in names:
        return None
    return (yield from take_lock(files.directory(core, session)))


def _delete_file(core: Core, page: str, subject: str, lock: IO[bytes]) -> Step[None]:
    """Delete the file of an erased record, and what killed writers left. Raises FilesUnavailable."""
    scratch = files.directory(core, page.removeprefix(SESSION_PAGES))
    yield Fetch(WhileLocked(lock, partial(_delete_from, scratch, subject)))


def _delete_from(scratch: ScratchDirectory, subject: str) -> None:
    scratch.clear_incoming()
    for file in scratch.scan():
        if subject_of(FILES, file.path) == subject:
            scratch.remove(file.path)


def _erase_one(
    core: Core,
    page: str,
    id: str,
    reason: str,
    event_id: str | None,
    failures: list[ScratchbusError],
    cause: Position | None = None,
) -> Step[Erased]:
    id, reason = check_subject(id), cast(str, check_reason(reason))
    if id == SESSION:
        raise InvalidId("id: the record of a session itself cannot be erased; erase its notepad, notes or todo list")
    if not reason:
        raise InvalidField("reason", "say why it is erased; the tombstone records it")
    check_own_event_id(event_id)
    keys = core.log.keys(core.log.shard(page))
    events = yield from history(core.log, page, id)
    if not events and cause is None:
        raise not_found(page, id)
    last = events[-1] if events else None  # a copy that is about to be written finds the tombstone
    if isinstance(last, Erased) and last.id == event_id and cause is None and last.reason != reason:
        raise EventIdReused(event_id)
    archiving = Archiving(keys, token_hex(8), core.process, _LEASE_MS)
    yield from _take_lease(archiving)
    try:
        if not isinstance(last, Erased):
            occasion = Occasion.of(core, page, event_id, "erase", id, reason)
            yield from _erase(core, archiving, occasion if cause is None else occasion.caused_by(cause), id, reason)
        tombstone = cast(Erased, (yield from history(core.log, page, id))[-1])
        try:
            yield from _erase_archived(core, archiving, tombstone)
        except (ArchiveError, ArchiveBusy, PositionLost) as failure:
            failures.append(failure)
    except GeneratorExit:
        raise  # nothing more can be sent
    except BaseException:  # such as Ctrl-C or a cancellation
        yield from archiving.leave()
        raise
    yield from archiving.leave()
    yield from abort_import(keys)  # it could not end, since the log has a tombstone
    yield from catch_up(core.log, keys.shard)  # so that the document is removed at once
    for cache in (keys.cached_reads, keys.cached_folds):
        cache.pop(page, None)
    yield from _delete_dead_letters(core, tombstone)
    try:
        yield from confirm(core.log, keys.shard)  # the tombstone may be from another process, which did not wait
    except NotReplicated as failure:
        failures.append(failure)
    return tombstone


def _take_lease(archiving: Archiving) -> Step[None]:
    """Take the lease of archivers, which hold in memory what they store next. Raises ArchiveBusy after a while."""
    for checks_left in range(_CHECKS, -1, -1):
        try:
            yield from archiving.take()
            return
        except ArchiveBusy:
            if not checks_left:
                raise
            yield Pause(_NAP)


def _erase(core: Core, archiving: Archiving, occasion: Occasion, id: str, reason: str) -> Step[None]:
    """Delete the leftovers of an aborted rebuild, then erase under the lease of rebuilds."""
    lease = yield from take(archiving.keys, core.process)
    try:
        yield from clear(lease, kept=(lease.live,))
        yield from _append_tombstone(core, lease, archiving, occasion, id, reason)
    except GeneratorExit:
        raise  # nothing more can be sent
    except BaseException:
        yield from lease.leave()
        raise
    yield from lease.leave()


def _append_tombstone(
    core: Core, lease: RebuildLease, archiving: Archiving, occasion: Occasion, id: str, reason: str
) -> Step[None]:
    """Append the tombstone and delete the events from the log, in one step."""
    page = occasion.page
    for _ in range(_TRIES):
        yield from catch_up(core.log, lease.keys.shard)
        head, events = (yield from read_head(core.log, page, id)), (yield from history(core.log, page, id))
        if events and isinstance(events[-1], Erased):
            return
        tombstone = occasion.event(
            Erased,
            id,
            type=events[0].type if events else "",
            reason=reason,
            positions=[at for event in events for at in (*_replaced_by(event), event.position.stream_id)],
            version=1 + (head.version if head else len(events)),
        )
        version = 0 if head is None else head.version  # an archiver may have dropped the head
        argument = _argument([lease.token, archiving.token], events)
        try:
            write = Write(tombstone, Op.ERASE, occasion.digest, version, argument=argument, verb="erased")
            yield from append(core.log, page, [write])
            return
        except EventIdReused:
            raise
        except Conflict:
            yield from lease.keep()  # raises if another process has taken over, as the next one does
            yield from archiving.keep()
    raise Conflict(f"{id} keeps changing; try again")


def _replaced_by(event: AnyEvent) -> list[str]:
    """Return the positions that only this event says were erased, if it is a tombstone, to be erased itself."""
    return event.positions if isinstance(event, Erased) else []


def _argument(tokens: list[str], events: list[AnyEvent]) -> str:
    """Return the script's arguments: the leases, the entries to delete, and their members in relations.

    Includes the generated event ids of these entries: a retry of one would not find the event, and write it again.
    """
    ids = [event.id for event in events if bound_of(event.id)]
    parts = [*tokens, str(len(events)), *(event.position.stream_id for event in events), str(len(ids)), *ids]
    for event in events:
        for relation, start, end in event_relations.relations(event):
            parts += [relation, f"{start}\t{end}"]
    return "".join(f"{len(part.encode())}:{part}" for part in parts)


def _erase_archived(core: Core, archiving: Archiving, tombstone: Erased) -> Step[None]:
    """Erase the events in the archive, including those that are still in the log.

    Without an archive, an archiver that has stored some of them erases them in its next run.
    """
    if core.log.archive is None:
        return
    shard, positions = archiving.keys.shard, [Position.parse(position) for position in tombstone.positions]
    seqs, times = [each.seq for each in positions], {each.seq: each.ms for each in positions}
    floor = yield from read_floor(core.log, shard)
    what = f"the history of {tombstone.subject}"
    steps = yield from from_archive(core.log, shard, what, lambda past: past.erase(shard, floor.origin, seqs, times))
    while not (yield Fetch(partial(next, steps, True))):
        yield from archiving.keep()


def _delete_dead_letters(core: Core, tombstone: Erased) -> Step[None]:
    """Delete the erased events from the dead letters of subscriptions, including those to be redelivered."""
    keys, shard = core.log.keys(0), core.log.shard(tombstone.page)
    positions = [str(Position.parse(position)._replace(shard=shard)) for position in tombstone.positions]
    if positions:
        for name in (yield from names(keys)):
            yield from ask(0, "HDEL", keys.dead(name), *positions)
            yield from ask(0, "HDEL", keys.again(name), *positions)
