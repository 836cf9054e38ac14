"""What is known of a file that is being checked, in bounded memory: what is not in use goes to a temporary database."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from scratchbus.domain.position import Position
from scratchbus.errors import ScratchbusError
from scratchbus.eventlog.codec import (
    LAYOUT,
    RawEntry,
    decode_document,
    encode_document,
)
from scratchbus.eventlog.layouts import Head
from scratchbus.readmodel.verify.expected import PageState, Subject

KEPT_BYTES = 64 * 1024 * 1024
"""About how many bytes of documents, heads and keys are kept in memory."""

_OVERHEAD = 1_500  # about what a value takes beside its text
_ENTRIES_AT_ONCE = 500
_BETWEEN = b"\0"  # which no field of an entry has in it

_Key = tuple[int, str, str, str]  # shard, kind, page, name


class _Codec(NamedTuple):
    encode: Callable[[Any], bytes]
    decode: Callable[[str, bytes], Any]


def _encode_subject(subject: Subject) -> bytes:
    gone = None if subject.gone is None else str(subject.gone)
    return to_json([subject.events, subject.last, gone, subject.is_sure])


def _decode_subject(_: str, row: bytes) -> Subject:
    events, last, gone, is_sure = from_json(row)
    return Subject(events, last, None if gone is None else Head.parse(gone.encode()), is_sure)


_CODECS = {
    "document": _Codec(encode_document, decode_document),
    "remembered": _Codec(encode_document, decode_document),
    "subject": _Codec(_encode_subject, _decode_subject),
    "holder": _Codec(str.encode, lambda _, row: row.decode()),
    "soonest": _Codec(lambda ms: b"%d" % ms, lambda _, row: int(row)),
}
"""The kinds of facts, and how each is written down."""


class Facts:
    """The facts of all logs of a file, and their entries. Everything is gone with it, however the process ends."""

    def __init__(self) -> None:
        self.weight = 0  # about how many bytes what is put now has
        self._kept: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._unsaved: set[_Key] = set()
        self._bytes = 0
        self._entries: list[tuple[int, int, bytes, bytes]] = []
        with _explained():
            self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # "": nobody else's, on disk
            for command in (
                "PRAGMA journal_mode = OFF",
                "PRAGMA synchronous = OFF",
                "PRAGMA cache_size = -16384",
                "CREATE TABLE entry (shard INTEGER, seq INTEGER, id BLOB, fields BLOB, PRIMARY KEY (shard, seq))"
                " WITHOUT ROWID",
                "CREATE TABLE fact (shard INTEGER, kind TEXT, page TEXT, name TEXT, value BLOB,"
                " PRIMARY KEY (shard, kind, page, name)) WITHOUT ROWID",
                "BEGIN",
            ):
                self._db.execute(command)

    def close(self) -> None:
        """Forget everything."""
        self._db.close()

    def get(self, key: _Key) -> Any:
        """Return a fact, None if there is none."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        with _explained():
            row = self._db.execute(
                "SELECT value FROM fact WHERE shard = ? AND kind = ? AND page = ? AND name = ?", key
            ).fetchone()
        value = _CODECS[key[1]].decode(key[3], row[0]) if row and row[0] is not None else None
        self._keep(key, value, len(row[0]) if row and row[0] is not None else 0)
        return value

    def put(self, key: _Key, value: Any) -> None:
        """Set a fact; None is that there is none."""
        before = self._kept[key][1] if key in self._kept else 0
        self._unsaved.add(key)
        self._keep(key, value, before + self.weight)

    def names(self, shard: int, kind: str, page: str) -> Iterator[str]:
        """Yield the names of the facts of a kind on a page."""
        self.save()
        for (name,) in self._db.execute(
            "SELECT name FROM fact WHERE shard = ? AND kind = ? AND page = ? AND value IS NOT NULL", (shard, kind, page)
        ):
            yield name

    def all(self, shard: int, kind: str) -> Iterator[tuple[str, str, Any]]:
        """Yield page, name and value of all facts of a kind, page by page."""
        self.save()
        decode = _CODECS[kind].decode
        for page, name, row in self._db.execute(
            "SELECT page, name, value FROM fact WHERE shard = ? AND kind = ? AND value IS NOT NULL ORDER BY page, name",
            (shard, kind),
        ):
            yield page, name, decode(name, row)

    def add_entry(self, place: Position, entry: RawEntry) -> None:
        """Take in an entry that is to be written."""
        self._entries.append((place.shard, place.seq, entry[0], _BETWEEN.join(entry[1][1::2])))
        if len(self._entries) >= _ENTRIES_AT_ONCE:
            self._save_entries()

    def entries(self, shard: int) -> Iterator[RawEntry]:
        """Yield the entries of a log, in order."""
        self._save_entries()
        for id, fields in self._db.execute("SELECT id, fields FROM entry WHERE shard = ? ORDER BY seq", (shard,)):
            values = fields.split(_BETWEEN)
            yield [id, [part for pair in zip(LAYOUT, values, strict=True) for part in pair]]

    def save(self) -> None:
        """Write down what is not."""
        rows = []
        for key in self._unsaved:
            value = self._kept[key][0]
            rows.append((*key, None if value is None else _CODECS[key[1]].encode(value)))
        with _explained():
            self._db.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?, ?)", rows)
        self._unsaved.clear()

    def _save_entries(self) -> None:
        with _explained():
            self._db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", self._entries)
        self._entries.clear()

    def _keep(self, key: _Key, value: Any, weight: int) -> None:
        before = self._kept.pop(key, None)
        self._bytes += weight - before[1] if before is not None else weight + _OVERHEAD
        self._kept[key] = value, weight
        if self._bytes <= KEPT_BYTES:
            return
        self.save()
        while self._bytes > KEPT_BYTES // 2 and len(self._kept) > 1:
            _, (_, weight) = self._kept.popitem(last=False)
            self._bytes -= weight + _OVERHEAD


class View(MutableMapping[str, Any]):
    """The facts of one kind on one page; one that is None is none."""

    __slots__ = ("_facts", "_kind", "_page", "_shard")

    def __init__(self, facts: Facts, shard: int, kind: str, page: str) -> None:
        self._facts, self._shard, self._kind, self._page = facts, shard, kind, page

    def __getitem__(self, name: str) -> Any:
        found = self._facts.get((self._shard, self._kind, self._page, name))
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        self._facts.put((self._shard, self._kind, self._page, name), value)

    def __delitem__(self, name: str) -> None:
        self[name] = None

    def __iter__(self) -> Iterator[str]:
        return self._facts.names(self._shard, self._kind, self._page)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Pages(dict[str, PageState]):
    """The pages of a log: each is made of its facts when it is asked for."""

    def __init__(self, facts: Facts, shard: int) -> None:
        super().__init__()
        self._page = lru_cache(256)(
            lambda name: PageState(*(View(facts, shard, kind, name) for kind in list(_CODECS)[:4]))
        )

    def get(self, name: str, default: Any = None) -> PageState:
        """Return a page; each is there."""
        return self._page(name)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as problem:
        raise ScratchbusError(
            f"the temporary files of the import cannot be used: {problem}; nothing was written. Free disk space, or set"
            " SQLITE_TMPDIR to a directory with space"
        ) from None
