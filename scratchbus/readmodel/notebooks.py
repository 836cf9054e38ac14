"""The notes of sessions as this process holds them, so that no call reads all that a session has.

Each is read once from the state, and from then on kept up by the log: a read takes in, in one round trip, what has
happened since the one before it. After a log was replaced or has lost events, the notes are read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from scratchbus.domain.memories import Note
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import EngineForbidden, EngineReadOnly, LogGap, LogRewound, PositionLost
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_checkpoint
from scratchbus.eventlog.codec import Poison, RawEntry, decode_entry, entry_fields, entry_position, text_of
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.stored_documents import decode_document
from scratchbus.projections import notes, session
from scratchbus.projections.notebook import Notebook
from scratchbus.readmodel.catch_up import catch_up

MOST_BYTES = 64 * 1024 * 1024
"""About how many bytes of notes a bus holds; the session that was used last is always among them."""

_AT_ONCE = 1_000  # documents that one look takes: about a millisecond of the engine's time


class CachedNotebook:
    """The notes of one session, and up to where in the log they are known. Use `notes` with the lock."""

    def __init__(self, page: str, its_notes: Notebook, cursor: Cursor) -> None:
        self.lock = threading.Lock()
        self.notes = its_notes
        self.cursor = cursor
        self._page = page
        self._name = page.encode()

    def catch_up(self, log: Log) -> Step[None]:
        """Take in what has happened since. Raises PositionLost, LogRewound or LogGap."""
        ahead = replace(self.cursor)
        while True:
            chunks = yield from read(log, [ahead])
            self._take(chunks[0][1] if chunks else [], ahead)
            if not ahead.has_more:
                return
            ahead.page = self._page  # it is far behind: by the index of the page, as far as that goes

    def _take(self, entries: Sequence[RawEntry], ahead: Cursor) -> None:
        shard = ahead.position.shard
        with self.lock:
            for entry in entries:
                fields = entry_fields(entry)
                is_ours = fields.get(b"page") == self._name and fields.get(b"subject", b"").startswith(_WANTED)
                if is_ours and entry_position(entry, shard) > self.cursor.position:
                    with suppress(Poison):
                        self.notes.evolve(decode_entry(entry, shard))
            if ahead.position >= self.cursor.position:
                self.cursor = replace(ahead, page="")


_WANTED = (notes.PREFIX.encode(), session.SUBJECT.encode())


class Notebooks:
    """The notes of the sessions that a bus was asked for last. Safe to share between threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, CachedNotebook] = OrderedDict()

    def fresh(self, log: Log, page: str) -> Step[CachedNotebook]:
        """Return the notes of a session with all that was acknowledged before. Raises as reading the log does."""
        for is_last in (False, True):
            held = self._held.get(page) or (yield from _read(log, page))
            try:
                yield from held.catch_up(log)
            except (PositionLost, LogRewound, LogGap):
                with self._lock:
                    self._held.pop(page, None)
                if is_last:
                    raise
            else:
                self._keep(page, held)
                return held
        raise AssertionError("the last try returns or raises")

    def _keep(self, page: str, held: CachedNotebook) -> None:
        with self._lock:
            self._held[page] = held
            self._held.move_to_end(page)
            size = sum(each.notes.size for each in self._held.values())
            while size > self._most_bytes and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                size -= gone.notes.size


def _read(log: Log, page: str) -> Step[CachedNotebook]:
    """Read the notes of a session from the state, some at a time.

    Some may be newer than the checkpoint that was read before them: what they have in them already changes nothing.
    """
    shard = log.shard(page)
    keys = log.keys(shard)
    with suppress(EngineReadOnly, EngineForbidden):  # then more is read from the log
        yield from catch_up(log, shard)
    while True:
        row, origin = yield from ask_all(shard, [("GET", checkpoint_key(keys)), ("GET", keys.origin)])
        checkpoint = Checkpoint.parse(row, shard)
        found: dict[str, Note] = {}
        at, name = b"0", PageKeys(keys, page, checkpoint.build).memory
        while True:
            at, flat = yield from ask(shard, "HSCAN", name, at, "COUNT", _AT_ONCE)
            for subject, row in zip(flat[::2], flat[1::2], strict=True):
                document = decode_document(text_of(subject), row)
                if isinstance(document, Note):
                    found[document.id] = document
            if int(at) == 0:
                break
        if (yield from read_checkpoint(keys)).build == checkpoint.build:
            cursor = Cursor(checkpoint.position, checkpoint.event_id, (origin or b"").decode())
            return CachedNotebook(page, Notebook(found.values()), cursor)
