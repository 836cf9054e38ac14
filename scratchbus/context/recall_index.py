"""The items that recall searches, by page, in an in-memory database.

An item's row number comes from the position of its last event, so the newest rows are the last ones.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, NamedTuple

from scratchbus.context.recall_sources import IndexEntry
from scratchbus.engine.at_fork import locked_by_forks
from scratchbus.projections.fulltext import (
    TOKENIZE,
    any_of,
    open_database,
    phrase_of,
    storable,
    telling_words_of,
    unspaced,
    with_runs_apart,
)

MAX_MATCHES: Final = 1_000
"""The most items searched for a question's words: rare words first, and for common words the newest items."""

_COMMON: Final = 200  # items with a word; from this many on, they are counted only now and then
_MANY_CHANGES: Final = 500
_SHARDS: Final = 65_536

_SCHEMA: Final = f"""
CREATE TABLE items (
    row INTEGER PRIMARY KEY, page_number INTEGER NOT NULL, subject TEXT NOT NULL, kind TEXT NOT NULL,
    priority REAL NOT NULL, ms INTEGER NOT NULL, UNIQUE (page_number, subject)
);
CREATE TABLE entities (name TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY (name, row)) WITHOUT ROWID;
CREATE INDEX entities_of ON entities (row);
CREATE VIRTUAL TABLE texts USING fts5(page_number, tags, content, {TOKENIZE});
CREATE VIRTUAL TABLE shown USING fts5(tags, content, {TOKENIZE});
CREATE VIRTUAL TABLE terms USING fts5vocab(texts, 'row');
CREATE VIRTUAL TABLE asked USING fts5(content, content = '', {TOKENIZE});
CREATE VIRTUAL TABLE asked_terms USING fts5vocab(asked, 'instance');
"""

_BY_ROW: Final = "SELECT row FROM items WHERE row = ?"
_BY_SUBJECT: Final = "SELECT row FROM items WHERE page_number = ? AND subject = ?"
_OF_PAGE: Final = "SELECT row FROM items WHERE page_number = ?"
_MEMORIES_OF_PAGE: Final = "SELECT row FROM items WHERE page_number = ? AND kind <> 'observation'"
_DELETE: Final = (
    "DELETE FROM texts WHERE rowid = ?", "DELETE FROM entities WHERE row = ?", "DELETE FROM items WHERE row = ?",
)  # fmt: skip
_FIND: Final = "SELECT rowid, bm25(texts, 0, 3, 1) FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?"
_MENTIONING: Final = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?"
_ITEMS: Final = "SELECT * FROM items WHERE row IN (SELECT value FROM json_each(?))"
_TEXTS: Final = "SELECT rowid, tags, content FROM texts WHERE rowid IN (SELECT value FROM json_each(?))"
_BEGIN, _END = "\x02", "\x03"  # around each match
_CUT = "\x04"  # where an excerpt leaves text out
_MARKED: Final = re.compile(f"{_BEGIN}(.*?){_END}", re.DOTALL)
_EXCERPTS: Final = (
    "SELECT rowid, highlight(shown, 0, ?, ?), snippet(shown, 1, ?, ?, ?, 64) FROM shown WHERE shown MATCH ?"
)
_NEWEST: Final = "SELECT row FROM items WHERE page_number IN (SELECT value FROM json_each(?)) ORDER BY row DESC LIMIT ?"
_CONNECTING: Final = """
SELECT connecting.row, wanted.value FROM json_each(?) AS wanted JOIN entities AS connecting
ON connecting.name = wanted.value AND connecting.row IN (
    SELECT row FROM entities JOIN items USING (row)
    WHERE name = wanted.value AND page_number IN (SELECT value FROM json_each(?)) ORDER BY row DESC LIMIT ?
) ORDER BY wanted.key, connecting.row DESC
"""
_CONNECTED: Final = "SELECT name FROM json_each(?) JOIN entities ON row = value ORDER BY key, name"
_KNOWN: Final = "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM entities WHERE name = value)"


class IndexedItem(NamedTuple):
    """An item of the index: where it is, and its ranking criteria other than words."""

    row: int
    page_number: int
    subject: str
    kind: str
    priority: float
    ms: int


class RecallIndex:
    """The items of the held pages. Safe to share between threads.

    `version` grows with every change, `page_numbers` are the numbers of the pages.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.database = open_database()
        weakref.finalize(self, self.database.close).atexit = False
        self.database.executescript(_SCHEMA)
        self._numbers = count(1)
        self._page_numbers: set[int] = set()
        self._closed_pages: list[int] = []
        self._closed_tables: list[str] = []
        self._counts: dict[str, int] = {}
        self._changes = 0
        self.version = 0
        locked_by_forks(self)

    def open_page(self, holder: object) -> int:
        """Return the number of a new page; its items are removed once its holder is not referenced."""
        page_number = next(self._numbers)
        self._page_numbers.add(page_number)
        weakref.finalize(holder, self._closed_pages.append, page_number)  # may run on any thread, at any time
        return page_number

    def open_table(self, holder: object) -> str:
        """Return the name for a table of its holder; the table is dropped once its holder is not referenced."""
        table = f"vectors_{next(self._numbers)}"
        weakref.finalize(holder, self._closed_tables.append, table)
        return table

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Lend the database for changes, after removing pages and tables that are no longer held."""
        with self.lock:
            while self._closed_pages:
                page_number = self._closed_pages.pop()
                self._page_numbers.discard(page_number)
                self._delete(_OF_PAGE, [(page_number,)])
            while self._closed_tables:
                self.database.execute(f"DROP TABLE IF EXISTS {self._closed_tables.pop()}")
            yield self.database

    def put(self, page_number: int, entries: Iterable[IndexEntry]) -> None:
        """Insert items, replacing those with the same subject."""
        rows = [(each.seq * _SHARDS + each.shard, each) for each in entries]
        with self.changing() as database:
            self._delete(_BY_ROW, [(row,) for row, _ in rows])
            self._delete(_BY_SUBJECT, [(page_number, each.subject) for _, each in rows])
            database.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)",
                [(row, page_number, each.subject, each.kind, each.priority, each.ms) for row, each in rows],
            )
            database.executemany(
                "INSERT INTO texts (rowid, page_number, tags, content) VALUES (?, ?, ?, ?)",
                [(row, f"p{page_number}", storable(each.tags), storable(each.text)) for row, each in rows],
            )
            names = [(entity_key(name), row) for row, each in rows for name in each.entities]
            database.executemany("INSERT OR IGNORE INTO entities VALUES (?, ?)", names)
            self._changed(len(rows))

    def remove(self, page_number: int, subjects: Collection[str]) -> None:
        """Remove the items with these subjects."""
        with self.changing():
            self._delete(_BY_SUBJECT, [(page_number, subject) for subject in subjects])

    def remove_memories(self, page_number: int) -> None:
        """Remove all items of a page except its observations."""
        with self.changing():
            self._delete(_MEMORIES_OF_PAGE, [(page_number,)])

    def _delete(self, query: str, values: Sequence[tuple[object, ...]]) -> None:
        rows = [row for each in values for row in self.database.execute(query, each)]
        for statement in _DELETE:
            self.database.executemany(statement, rows)
        self._changed(len(rows))

    def _changed(self, number: int) -> None:
        self._changes += number
        self.version += number

    def find(self, question: str, page_numbers: Collection[int]) -> list[tuple[int, float]]:
        """Return the rows of the items that have words of a question, with their BM25 scores, best first.

        Tags count three times as much as texts.
        """
        with self.changing() as database:
            words, matches = self._telling(telling_words_of(question))
            if not words:
                return []
            query = self._within(page_numbers, f"({any_of(words)})")
            limit = MAX_MATCHES if matches > MAX_MATCHES else -1
            return sorted(database.execute(_FIND, (query, limit)), key=lambda found: (found[1], -found[0]))

    def _within(self, page_numbers: Collection[int], words: str) -> str:
        """Return the FTS5 query for words on some pages; it leaves the pages out if these are all."""
        if not self._page_numbers - set(page_numbers):
            return f"{{tags content}} : {words}"
        pages = any_of([f"p{page_number}" for page_number in page_numbers])
        return f"page_number : ({pages}) AND {{tags content}} : {words}"

    def _telling(self, words: list[str]) -> tuple[list[str], int]:
        """Return the words to search by, rarest first, and the most items that can have them."""
        rarest: list[str] = []
        total = 0
        for number, word in sorted(zip(self._count(words), words, strict=True)):
            if not number or (rarest and total + number > MAX_MATCHES):
                continue
            rarest.append(word)
            total += number
        return rarest, total

    def _count(self, words: list[str]) -> list[int]:
        """Return about how many items have each word; counts are cached, since they change slowly."""
        if self._changes > _MANY_CHANGES:
            self._counts.clear()
            self._changes = 0
        find = self.database.execute
        find("INSERT INTO asked (asked) VALUES ('delete-all')")
        self.database.executemany("INSERT INTO asked (rowid, content) VALUES (?, ?)", enumerate(words))
        numbers = [-1] * len(words)
        for term, index in find("SELECT term, doc FROM asked_terms").fetchall():
            count = self._counts.get(term)
            if count is None:
                (count,) = find("SELECT doc FROM terms WHERE term = ?", (term,)).fetchone() or (0,)
                if count > _COMMON:
                    self._counts[term] = count
            numbers[index] = count if numbers[index] < 0 else min(numbers[index], count)
        return [max(0, number) for number in numbers]

    def items(self, rows: Iterable[int]) -> dict[int, IndexedItem]:
        """Return the items in these rows."""
        with self.lock:
            found = self.database.execute(_ITEMS, (json.dumps([*rows]),))
            return {item.row: item for item in map(IndexedItem._make, found)}

    def rows(self, page_numbers: Collection[int], limit: int) -> list[int]:
        """Return the rows of up to `limit` items, newest first."""
        with self.lock:
            return [row for (row,) in self.database.execute(_NEWEST, (json.dumps([*page_numbers]), limit))]

    def excerpts(self, rows: Collection[int], question: str) -> dict[int, tuple[str, list[str]]]:
        """Return the part of each item's text with the most words of a question, and these words as spelled there.

        Only these few items are searched: a common word would take long among all.
        """
        with self.lock:
            find = self.database.execute
            texts = find(_TEXTS, (json.dumps([*rows]),)).fetchall()
            found: dict[int, tuple[str, list[str]]] = {row: (unspaced(text), []) for row, _, text in texts}
            if words := telling_words_of(question):
                find("DELETE FROM shown")
                self.database.executemany("INSERT INTO shown (rowid, tags, content) VALUES (?, ?, ?)", texts)
                for row, *parts in find(_EXCERPTS, (_BEGIN, _END, _BEGIN, _END, _CUT, any_of(words))):
                    marked = [unspaced(word).casefold() for part in parts for word in _MARKED.findall(part)]
                    excerpt = unspaced(parts[1].replace(_BEGIN, "").replace(_END, "")).replace(_CUT, " … ")
                    found[row] = excerpt, list(dict.fromkeys(marked))
        return found

    def mentions(self, name: str, page_numbers: Collection[int], limit: int) -> list[int]:
        """Return the rows of up to `limit` items whose text has the name of an entity, newest first."""
        if not (phrase := phrase_of(name)):
            return []
        with self.changing() as database:
            query = self._within(page_numbers, phrase)
            return [row for (row,) in database.execute(_MENTIONING, (query, limit))]

    def with_entities(self, names: Sequence[str], page_numbers: Collection[int], maximum: int) -> dict[int, str]:
        """Return the rows of up to `maximum` items that connect each entity, and the entity, newest first."""
        found: dict[int, str] = {}
        with self.lock:
            for row, name in self.database.execute(
                _CONNECTING, (json.dumps(names), json.dumps([*page_numbers]), maximum)
            ):
                found.setdefault(row, name)
        return found

    def entities_of(self, rows: Sequence[int]) -> list[str]:
        """Return the entities that the items in these rows connect."""
        with self.lock:
            return list(dict.fromkeys(name for (name,) in self.database.execute(_CONNECTED, (json.dumps(rows),))))

    def known_entities(self, names: Sequence[str]) -> list[str]:
        """Return which of these names are entities."""
        with self.lock:
            known = {name for (name,) in self.database.execute(_KNOWN, (json.dumps(names),))}
            return [name for name in names if name in known]


def entity_key(name: str) -> str:
    """Return an entity's name normalized in case and spaces."""
    return " ".join(with_runs_apart(name).casefold().split())
