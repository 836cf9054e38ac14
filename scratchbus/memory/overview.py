"""The sessions and agents of a bus: those with events on their pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scratchbus.domain.document import Document
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Session, SessionInfo
from scratchbus.domain.position import START, Position
from scratchbus.domain.values import AGENT_PAGES, SESSION_PAGES, page_of_session, time_of_position
from scratchbus.engine.steps import Step, ask, ask_all, batches, side_by_side
from scratchbus.errors import EngineForbidden, EngineReadOnly, InvalidName, shown
from scratchbus.eventlog.below_floor import Floor, archived_after, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.codec import decode_item
from scratchbus.eventlog.positions import WIDTH, count_many_positions, unpack
from scratchbus.eventlog.raw_entries import entry_position
from scratchbus.eventlog.stored_documents import decode_document
from scratchbus.projections import scratchpad, session
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.memory_history import folded, history_of
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel import When
from scratchbus.timetravel.cut import Cut, cut_at

_AT_ONCE = 500  # pages per round trip


def list_sessions(core: Core, names: Collection[str] | None, when: When | None) -> Step[list[SessionInfo]]:
    """Return the sessions, or those with these names, sorted by name, now or at a moment.

    Cost: a few round trips per 500 sessions; at a moment, also the events of each session.
    """
    requested = None if names is None else _pages_of(names)
    found: list[SessionInfo] = []
    for shard in range(core.log.shards):
        pages = yield from _pages(core, shard, SESSION_PAGES, requested)
        cut = (yield from cut_at(core, pages[0], when)) if pages and when is not None else None
        for batch in batches(pages, _AT_ONCE):
            found += yield from _describe(core, shard, batch, cut)
    return sorted(found, key=lambda each: each.id)


def _pages_of(names: Collection[str]) -> list[str]:
    """Return the pages of sessions, given as a list or one name. Raises InvalidName."""
    if not isinstance(names, Collection):
        raise InvalidName(f"names: {shown(names)} is not a list of sessions")
    return [page_of_session(name) for name in ([names] if isinstance(names, str) else names)]


def list_agents(core: Core) -> Step[list[str]]:
    """Return the agents that have written to their scratchpads, sorted by name."""
    found: list[str] = []
    for shard in range(core.log.shards):
        keys, pages = core.log.keys(shard), (yield from _pages(core, shard, AGENT_PAGES, None))
        for batch in batches(pages, _AT_ONCE):
            replies = yield from ask_all(shard, [("HEXISTS", keys.heads(page), scratchpad.SUBJECT) for page in batch])
            found += [page.removeprefix(AGENT_PAGES) for page, has_pad in zip(batch, replies, strict=True) if has_pad]
    return sorted(found)


def _pages(core: Core, shard: int, prefix: str, requested: Collection[str] | None) -> Step[list[str]]:
    """Return the pages of a shard with a prefix, or only the wanted ones."""
    key = core.log.keys(shard).pages
    if requested is None:
        names = [name.decode() for name in (yield from ask(shard, "HKEYS", key))]
        return sorted(name for name in names if name.startswith(prefix))
    on_shard = [page for page in dict.fromkeys(requested) if core.log.shard(page) == shard]
    rows = (yield from ask(shard, "HMGET", key, *on_shard)) if on_shard else []
    return [page for page, row in zip(on_shard, rows, strict=True) if row is not None]


def _describe(core: Core, shard: int, pages: Sequence[str], cut: Cut | None) -> Step[list[SessionInfo]]:
    records, build = yield from _records(core, shard, pages)
    positions = yield from _last_positions(core, shard, pages, build, cut)
    agents = yield from _writers(core, shard, positions)
    floor = yield from read_floor(core.log, shard)
    described = yield from side_by_side(
        [
            _describe_one(core, page, record, position, agents.get(position) if position else None, floor, cut)
            for page, record, position in zip(pages, records, positions, strict=True)
        ]
    )
    return [each for each in described if each is not None]


def _describe_one(
    core: Core, page: str, record: Document | None, position: Position | None, agent: str | None, floor: Floor,
    cut: Cut | None,
) -> Step[SessionInfo | None]:  # fmt: skip
    """Return a session, now or at a moment; None if it began later."""
    if cut is not None:
        if position is None and not (yield from _was_archived(core.log, floor, page, cut)):
            return None
        if isinstance(record, Session):
            events = yield from history_of(core, page, session.SUBJECT)
            record = folded(events, session.SUBJECT, cut.position)
    session_record = record if isinstance(record, Session) else None
    return SessionInfo(
        id=page.removeprefix(SESSION_PAGES),
        parent=session_record.parent if session_record else None,
        fork=session_record is not None and session_record.fork,
        children=session_record.children if session_record else [],
        ended=session_record is not None and session_record.ended,
        agent=agent,
        updated_at=time_of_position(position.ms) if position else None,
    )


def _records(core: Core, shard: int, pages: Sequence[str]) -> Step[tuple[list[Document | None], int]]:
    """Return the record of each session, None without one, and the build of the state it comes from."""
    keys = core.log.keys(shard)
    try:
        checkpoint = yield from catch_up(core.log, shard)
    except (EngineReadOnly, EngineForbidden):  # one by one, each with its events not folded yet
        found: list[Document | None] = []
        for page in pages:
            record = yield from recollect_one(core, page, session.SUBJECT)
            found.append(record)
        return found, (yield from read_checkpoint(keys)).build
    while True:
        hashes = [keys.page(page, checkpoint.build).memory for page in pages]
        rows = yield from ask_all(shard, [("HGET", key, session.SUBJECT) for key in hashes])
        current = yield from read_checkpoint(keys)
        if current.build == checkpoint.build:
            return [decode_document(session.SUBJECT, row) if row else None for row in rows], current.build
        checkpoint = current  # it was rebuilt meanwhile


def _last_positions(
    core: Core, shard: int, pages: Sequence[str], build: int, cut: Cut | None
) -> Step[list[Position | None]]:
    """Return the position of each page's newest event up to a moment; None if it has left the log."""
    keys = [core.log.keys(shard).page(page, build).positions for page in pages]
    ends = [-WIDTH] * len(keys)
    if cut is not None:
        counted = yield from count_many_positions(shard, [(key, cut.position) for key in keys])
        ends = [(before - 1) * WIDTH for before, _ in counted]
    commands = [("GETRANGE", key, end, end + WIDTH - 1) for key, end in zip(keys, ends, strict=True)]
    rows = yield from ask_all(shard, commands)
    return [
        unpack(row, shard)[0] if len(row) == WIDTH and (cut is None or end >= 0) else None
        for row, end in zip(rows, ends, strict=True)
    ]


def _was_archived(log: Log, floor: Floor, page: str, cut: Cut) -> Step[bool]:
    """Return whether the archive has events of a page from before a moment. Raises PositionLost without an archive."""
    beginning = START._replace(shard=cut.position.shard)
    first = yield from archived_after(log, floor, beginning, 1, page)
    return any(entry_position(entry, beginning.shard) <= cut.position for entry in first.entries)


def _writers(core: Core, shard: int, positions: Sequence[Position | None]) -> Step[dict[Position, str | None]]:
    """Return the writers of the events at these positions that are still in the log."""
    existing = [each for each in positions if each is not None]
    key = core.log.keys(shard).log
    commands = [("XRANGE", key, each.stream_id, each.stream_id) for each in existing]
    replies = (yield from ask_all(shard, commands)) if commands else []
    events = [decode_item(entries[0], shard) if entries else None for entries in replies]
    return {at: event.by for at, event in zip(existing, events, strict=True) if isinstance(event, Event)}
