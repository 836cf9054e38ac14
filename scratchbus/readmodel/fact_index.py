"""The facts of one scope in SQLite, with their indexes.

The caller feeds it events; it reads nothing itself. It is not thread-safe. The database is a temporary file; SQLite
keeps in memory as much as fits into its cache.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from scratchbus.domain.event import Event
from scratchbus.domain.facts import Fact, plain_entity
from scratchbus.domain.relation_registry import SAME_AS, RelationRegistry
from scratchbus.domain.values import millis
from scratchbus.errors import IndexFailed
from scratchbus.eventlog.stored_documents import encode_document, read_as
from scratchbus.projections.facts import PREFIX
from scratchbus.projections.table import PROJECTIONS
from scratchbus.readmodel.memory_cache import MemoryKind

EVER: Final = 2**62
"""Later than all events of a log, and all times."""

NOW: Final = EVER - 1
"""A position (seq) after every event of a log: with it, all facts are known."""

_CACHE_KB = 32 * 1024
_ROW_BYTES = 700  # approximate size of a fact
_MAX_NUMBERS = 50_000  # names in the cache

_SETUP = f"""
PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
PRAGMA cache_size = -{_CACHE_KB};
CREATE TABLE entities (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE facts (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, document BLOB NOT NULL);
CREATE TABLE edges (
    seq INTEGER NOT NULL, side INTEGER NOT NULL,
    subject INTEGER NOT NULL, relation TEXT NOT NULL, object INTEGER NOT NULL,
    begins INTEGER NOT NULL, ends INTEGER NOT NULL, retracted INTEGER NOT NULL,
    source TEXT NOT NULL, is_dated INTEGER NOT NULL
);
"""
_INDEXES = """
CREATE INDEX by_seq ON edges (seq);
CREATE INDEX by_key ON edges (subject, relation, begins);
CREATE INDEX by_subject ON edges (subject, seq);
CREATE INDEX by_object ON edges (object, seq);
CREATE INDEX by_relation ON edges (relation, seq);
"""

WHOLE, FIRST, MIRROR = range(3)
"""The sides of facts: a symmetric fact has two edges, one per direction."""

Names = tuple[int, ...]
"""The numbers of all names of an entity; the first represents it."""


class Edge(NamedTuple):
    """A fact from one of its sides, with the numbers of the names in it.

    Times are ms, and `retracted` is a seq; EVER stands for never. `is_dated` says that `valid_at` was given.
    """

    seq: int
    side: int
    subject: int
    relation: str
    object: int
    begins: int
    ends: int
    retracted: int
    source: str
    is_dated: int


class FactIndex:
    """The facts of a scope; `newest` is the ms of the last event. Any call may raise IndexFailed, as on a full disk."""

    def __init__(self, relations: RelationRegistry) -> None:
        self.relations = relations
        self.newest = 0
        self._count = 0
        self._loaded: set[str] = set()
        self._numbers: dict[str, int] = {}  # recently used names
        self._same: dict[int, Names] | None = None  # as of now
        try:
            self._open()
        except (OSError, sqlite3.Error) as error:
            raise IndexFailed(str(error)) from None

    def _open(self) -> None:
        """Create the tables in a file that is unlinked at once, so that it goes away with the process.

        SQLite's own temporary databases count their changed pages with every change, which is slow if there are many.
        """
        with tempfile.TemporaryDirectory(prefix="scratchbus-", ignore_cleanup_errors=True) as directory:
            file = os.path.join(directory, "facts.sqlite")
            self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            weakref.finalize(self, self._db.close).atexit = False
            self._db.executescript(_SETUP)

    @property
    def size(self) -> int:
        """Approximate memory use in bytes; the rest is in the file."""
        return min(self._count * _ROW_BYTES, _CACHE_KB * 1024)

    # -- changes -------------------------------------------------------------------------------------------------------

    def load(self, documents: Mapping[str, Fact]) -> None:
        """Take some of the stored facts, in any order; known facts change nothing."""
        missing = [fact for fact in documents.values() if fact.id not in self._loaded]
        self._loaded.update(fact.id for fact in missing)
        self._write("BEGIN")
        self._put(missing)
        self._write("COMMIT")

    def loaded(self) -> None:
        """Create the indexes, which is faster than maintaining them during the load."""
        for statement in _INDEXES.split(";"):
            self._write(statement)
        self._loaded.clear()
        self._numbers.clear()

    def evolve(self, event: Event) -> None:
        """Fold an event; one that is already folded changes nothing."""
        if not event.subject.startswith(PREFIX):
            return
        before = self.fact(event.subject)
        if before is None or before.seq < event.seq:
            after, _ = PROJECTIONS["fact"].fold(before, event)
            if before is not None:
                self._delete(before)
            if isinstance(after, Fact):
                self._put([after])
        self.newest = max(self.newest, event.ms)

    def _put(self, facts: Sequence[Fact]) -> None:
        edges = [edge for fact in facts for edge in self._edges_of(fact)]
        rows = [(fact.added_seq, fact.id, encode_document(fact)) for fact in facts]
        self._write_all("INSERT INTO facts VALUES (?, ?, ?)", rows)
        self._write_all("INSERT INTO edges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", edges)
        self._count += len(facts)
        self.newest = max(self.newest, *(fact.ms for fact in facts), 0)
        if any(edge.relation == SAME_AS for edge in edges):
            self._same = None

    def _edges_of(self, fact: Fact) -> list[Edge]:
        named = self.relations.read(fact.relation)
        entities = (fact.object, fact.subject) if named.is_inverse else (fact.subject, fact.object)
        subject, object = map(self._enter, entities)
        ends = EVER if fact.invalid_at is None else millis(fact.invalid_at)
        retracted = EVER if fact.retraction is None else fact.retraction.seq
        common = fact.begins_ms, ends, retracted, fact.source, int(fact.valid_at is not None)
        name, seq = named.relation.name, fact.added_seq
        if not named.relation.symmetric:
            return [Edge(seq, WHOLE, subject, name, object, *common)]
        return [Edge(seq, FIRST, subject, name, object, *common), Edge(seq, MIRROR, object, name, subject, *common)]

    def _delete(self, fact: Fact) -> None:
        self._write("DELETE FROM facts WHERE seq = ?", fact.added_seq)
        self._write("DELETE FROM edges WHERE seq = ?", fact.added_seq)
        self._count -= 1
        if fact.relation == SAME_AS:
            self._same = None

    def _enter(self, name: str) -> int:
        """Return the number of a name; assign one to a new name."""
        plain_name = plain_entity(name)
        found = self._numbers.get(plain_name) or self.entity(name)
        if found is None:
            ((found,),) = self._rows("INSERT INTO entities (name) VALUES (?) RETURNING id", plain_name)
        if len(self._numbers) < _MAX_NUMBERS:
            self._numbers[plain_name] = found
        return found

    # -- reads ---------------------------------------------------------------------------------------------------------

    def fact(self, id: str) -> Fact | None:
        """Return a fact."""
        return self._read("SELECT document FROM facts WHERE id = ?", id)

    def fact_at(self, seq: int) -> Fact:
        """Return the fact that was asserted at this seq."""
        return cast(Fact, self._read("SELECT document FROM facts WHERE seq = ?", seq))

    def _read(self, select: str, key: object) -> Fact | None:
        for (row,) in self._rows(select, key):
            return read_as(Fact, row)
        return None

    def entity(self, name: str) -> int | None:
        """Return the number of a name; None if no fact ever had it."""
        for (number,) in self._rows("SELECT id FROM entities WHERE name = ?", plain_entity(name)):
            return int(number)
        return None

    def edges(self, condition: str, *values: object) -> Iterator[Edge]:
        """Yield the edges that match a condition."""
        return map(Edge._make, self._rows(f"SELECT * FROM edges WHERE {condition}", *values))  # noqa: S608  # from this room

    def same(self, known: int) -> Mapping[int, Names]:
        """Return all names of each entity that had several at a position (seq) of the log, by each name."""
        if known >= NOW and self._same is not None:
            return self._same
        groups: dict[int, deque[int]] = {}
        where = "relation = ? AND side = ? AND seq <= ? AND retracted > ? ORDER BY seq"
        for edge in self.edges(where, SAME_AS, FIRST, known, known):
            left, right = (groups.setdefault(each, deque([each])) for each in (edge.subject, edge.object))
            if left is right:
                continue
            if len(right) <= len(left):  # the smaller group joins the other one: else a large entity takes very long
                left.extend(right)
                groups.update(dict.fromkeys(right, left))
            else:
                right.extendleft(reversed(left))
                groups.update(dict.fromkeys(left, right))
        found: dict[int, Names] = {}
        for name, group in groups.items():
            if name not in found and len(group) > 1:
                found |= dict.fromkeys(group, tuple(group))
        if known >= NOW:
            self._same = found
        return found

    def _write(self, statement: str, *values: object) -> None:
        for _ in self._rows(statement, *values):
            pass

    def _write_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        try:
            self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise IndexFailed(str(error)) from None

    def _rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise IndexFailed(str(error)) from None


def kind(relations: RelationRegistry) -> MemoryKind[FactIndex]:
    """Return the kind of memory that holds the facts of a page, read by these relations."""
    return MemoryKind(partial(FactIndex, relations), (Fact,), (PREFIX,))
