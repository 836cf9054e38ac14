"""Copy a conversation into a fork: its turns, summaries and tasks, as they were when the fork began.

Each keeps its id, and the id of its event derives from the event that began the fork. So nothing is copied twice, and
an interrupted copy continues with the missing events. If the fork wrote its own turns before that, one may have the
id of a missing one; that one then gets an id that sorts right after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from scratchbus.commands.execution import Occasion
from scratchbus.commands.fork_copies import AFTER, copied_event_id
from scratchbus.commands.memory_edit import put
from scratchbus.commands.memory_reads import read_memory
from scratchbus.domain.conversation_events import TurnAppended, TurnsCompacted
from scratchbus.domain.conversations import SUMMARY, Turn
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Session
from scratchbus.domain.memory_events import SessionSpawned, TaskBegun, TaskEnded
from scratchbus.domain.values import page_of_session
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import Conflict, EventIdReused, SessionOver, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.codec import encode_body
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.writes import MAX_BATCH, MAX_BODIES, Write
from scratchbus.projections.conversation import Conversation, conversation_of
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.tasks import Task
from scratchbus.readmodel.past_documents import memories_at
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core

_TRIES = 5


class _Copy(NamedTuple):
    """An event of the copy: the seq of its original, its subject, the version that it makes, and its fields."""

    seq: int
    id: str
    version: int
    source: str
    kind: type[Event]
    fields: dict[str, Any]


def copy_conversation(core: Core, first: SessionSpawned) -> Step[None]:
    """Copy the conversation of a session from before the event that began a fork; existing copies stay.

    A fork that has ended gets nothing more. Raises PositionLost if the session has ended and its events have left the
    log.
    """
    child = page_of_session(first.session)
    for _ in range(_TRIES):
        missing = yield from _missing(core, child, first)
        try:
            for writes in _batches(core, child, first, missing):
                yield from append(core.log, child, writes)
            return
        except SessionOver:
            return
        except (VersionConflict, EventIdReused):
            continue  # another process copies the same
    raise Conflict(f"others keep writing to session {first.session!r}; fork it again with the same name")


def _missing(core: Core, child: str, first: SessionSpawned) -> Step[list[_Copy]]:
    """Return the parts of the conversation that the fork lacks, in order."""
    documents = (yield from _conversation(core, first)).documents()
    copies = sorted(copy for id, each in documents for copy in _copies(id, each, first) if copy.seq < first.seq)
    if not copies:
        return []
    names = yield from _new_ids(core, child, documents)
    copies = [_renamed(copy, names) for copy in copies]
    keys = core.log.keys(core.log.shard(child))
    ids = [names.get(id, id) for id, _ in documents]
    rows = yield from ask(keys.shard, "HMGET", keys.heads(child), *ids)
    versions = {id: Head.parse(row).version for id, row in zip(ids, rows, strict=True) if row is not None}
    return [copy for copy in copies if versions.get(copy.id, 0) < copy.version]


def _new_ids(core: Core, child: str, originals: Iterable[tuple[str, Turn | Task]]) -> Step[dict[str, str]]:
    """Return new ids for originals whose id the fork gave to something else before the copy was complete."""
    existing = dict((yield from read_memory(core, core.conversations, child, Conversation.documents)))
    return {
        id: f"{id}{AFTER}"
        for id, each in originals
        if id in existing and _fixed_fields(existing[id]) != _fixed_fields(each)
    }


def _fixed_fields(document: Turn | Task) -> tuple[object, ...]:
    """Return the fields that no later event changes."""
    return (document.title,) if isinstance(document, Task) else (document.source, document.role, document.content)


def _renamed(copy: _Copy, names: Mapping[str, str]) -> _Copy:
    fields = copy.fields
    if fields.get("turns"):
        fields = fields | {"turns": [names.get(id, id) for id in fields["turns"]]}
    if fields.get("task") in names:
        fields = fields | {"task": names[fields["task"]]}
    return copy._replace(id=names.get(copy.id, copy.id), fields=fields)


def _conversation(core: Core, first: SessionSpawned) -> Step[Conversation]:
    """Return the conversation of a session; if the session has ended, as of when the fork began."""
    its_session = yield from recollect_one(core, first.page, SESSION)
    if isinstance(its_session, Session) and its_session.ended:
        return conversation_of((yield from memories_at(core.log, first.page, first.position)))
    documents = yield from read_memory(core, core.conversations, first.page, Conversation.documents)
    return conversation_of(dict(documents))


def _copies(id: str, document: Turn | Task, first: SessionSpawned) -> Iterator[_Copy]:
    """Yield the events that make a turn, a summary or a task."""
    if isinstance(document, Task):
        yield _Copy(document.added_seq, id, 1, first.by, TaskBegun, {"title": document.title})
        if document.summary is not None:
            yield _Copy(document.seq, id, 2, first.by, TaskEnded, {"summary": document.summary})
        return
    fields: dict[str, Any] = {"content": document.content, "tokens": document.tokens}
    if document.role == SUMMARY:
        yield _Copy(document.added_seq, id, 1, document.source, TurnsCompacted, fields | {"turns": document.replaces})
    else:
        fields |= {"role": document.role, "task": document.task}
        yield _Copy(document.added_seq, id, 1, document.source, TurnAppended, fields)


def _batches(core: Core, child: str, first: SessionSpawned, copies: Sequence[_Copy]) -> Iterator[list[Write]]:
    """Yield the writes of the copy, in batches as large as possible."""
    writes: list[Write] = []
    size = 0
    for copy in copies:
        occasion = Occasion.of(
            core, child, copied_event_id(first, copy.id, copy.version), "copy_turn", copy.id, copy.version
        )
        occasion = occasion.caused_by(first.position, copy.source)
        write = put(occasion, occasion.event(copy.kind, copy.id, **copy.fields), copy.version - 1)
        write.body = encode_body(write.event)
        if writes and (len(writes) == MAX_BATCH or size + len(write.body) > MAX_BODIES):
            yield writes
            writes, size = [], 0
        writes.append(write)
        size += len(write.body)
    if writes:
        yield writes
