"""Mappings in bounded memory: values that do not fit are in a temporary database."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from typing import Any

from scratchbus.domain.document import Remembered
from scratchbus.domain.observation import Observation
from scratchbus.errors import ScratchbusError
from scratchbus.eventlog.stored_documents import encode_document, read_document

KEPT_BYTES = 64 * 1024 * 1024
"""The approximate size of the values kept in memory, in bytes."""

_OVERHEAD = 1_500  # approximate bytes of a value besides its text

_Key = tuple[str, str, str]  # kind, page, name


@contextmanager
def temporary_spill() -> Iterator[Spill]:
    """Yield a spill, which disappears however the process ends. Raises ScratchbusError if the disk fails."""
    try:
        with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as database:
            for command in (
                "PRAGMA journal_mode = OFF",
                "PRAGMA synchronous = OFF",
                "PRAGMA cache_size = -16384",  # KiB
                "CREATE TABLE fact (kind TEXT, page TEXT, name TEXT, value BLOB, PRIMARY KEY (kind, page, name))"
                " WITHOUT ROWID",
                "BEGIN",
            ):
                database.execute(command)
            yield Spill(database)
    except sqlite3.Error as problem:
        raise ScratchbusError(
            f"the temporary files of the import cannot be used: {problem}; nothing was imported. Free disk space, or"
            " set SQLITE_TMPDIR to a directory with space"
        ) from None


class Spill:
    """The values of all mappings, by kind, page and name; None means no value."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._loaded: dict[_Key, Any] = {}
        self._unsaved: set[_Key] = set()
        self._bytes = 0

    def get(self, key: _Key) -> Any:
        """Return a value, or None."""
        if key not in self._loaded:
            query = "SELECT value FROM fact WHERE kind = ? AND page = ? AND name = ?"
            (row,) = self._database.execute(query, key).fetchone() or (None,)
            self._make_room(len(row or b""))
            self._loaded[key] = row and _decode(key[2], row)
        return self._loaded[key]

    def put(self, key: _Key, value: Any, size: int = 0) -> None:
        """Set a value of about `size` bytes."""
        self._make_room(size)
        self._loaded[key] = value
        self._unsaved.add(key)

    def pages(self, kind: str) -> Iterator[str]:
        """Yield the pages that have values of a kind."""
        self._save()
        return (page for (page,) in self._database.execute("SELECT DISTINCT page FROM fact WHERE kind = ?", (kind,)))

    def names(self, kind: str, page: str) -> Iterator[str]:
        """Yield the names of the values of a kind on a page, in order."""
        self._save()
        query = "SELECT name FROM fact WHERE kind = ? AND page = ? AND value IS NOT NULL ORDER BY name"
        return (name for (name,) in self._database.execute(query, (kind, page)))

    def _make_room(self, size: int) -> None:
        self._bytes += size + _OVERHEAD
        if self._bytes > KEPT_BYTES:
            self._save()
            self._loaded.clear()
            self._bytes = size + _OVERHEAD

    def _save(self) -> None:
        rows = ((*key, _encode(self._loaded[key])) for key in self._unsaved)
        self._database.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)", rows)
        self._unsaved.clear()


def _encode(value: Any) -> bytes | None:
    if isinstance(value, Observation | Remembered):
        return encode_document(value)
    return None if value is None else pickle.dumps(value)


def _decode(name: str, row: bytes) -> Any:
    return read_document(name, row) if row[:1] in b"[{" else pickle.loads(row)  # noqa: S301  # this process wrote it


class Spilled(MutableMapping[str, Any]):
    """The values of one kind on one page."""

    __slots__ = ("_spill", "_where")

    def __init__(self, spill: Spill, kind: str, page: str = "") -> None:
        self._spill, self._where = spill, (kind, page)

    def __getitem__(self, name: str) -> Any:
        found = self._spill.get((*self._where, name))
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        self._spill.put((*self._where, name), value)

    def __delitem__(self, name: str) -> None:
        self[name] = None

    def __iter__(self) -> Iterator[str]:
        return self._spill.names(*self._where)

    def __len__(self) -> int:
        return sum(1 for _ in self)
