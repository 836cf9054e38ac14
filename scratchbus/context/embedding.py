"""Search by meaning: an embedder turns texts into vectors, and sqlite-vec finds those nearest to a question's vector.

Callers pass an embedder, their own or the one in `adapters/wordllama.py`; nothing is downloaded.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
from collections.abc import Collection, Sequence
from struct import pack
from typing import Any, Final, Protocol

from scratchbus.context.recall_index import RecallIndex
from scratchbus.errors import InvalidField, ScratchbusError, shown
from scratchbus.projections.fulltext import unspaced

_AT_ONCE: Final = 256  # texts per call of an embedder
_MAX_CHARACTERS: Final = 4_000  # characters embedded of each text
_MAX_SPACED: Final = 3 * _MAX_CHARACTERS  # the most that these are in the index, where spaces may surround each
_CHUNK: Final = 64  # vectors for which sqlite-vec allocates memory at once, for each page; by default 1,024
_MAX_NUMBERS: Final = 8_191  # numbers of a vector: the limit of sqlite-vec, less one
_REMOVED: Final = "SELECT row, page_number FROM {table} EXCEPT SELECT row, page_number FROM items"
_DELETE: Final = "DELETE FROM {table} WHERE row = ?"
_INSERT: Final = "INSERT INTO {table} (row, page_number, embedding) VALUES (?, ?, ?)"
_NEAREST: Final = "SELECT row, distance FROM {table} WHERE embedding MATCH ? AND k = ? AND page_number = ?"
_MISSING: Final = (
    "SELECT row, items.page_number, tags || ' ' || substr(content, 1, ?) FROM items JOIN texts ON texts.rowid = row"
    " WHERE items.page_number IN (SELECT value FROM json_each(?)) AND row NOT IN (SELECT row FROM {table})"
)
_EXTRA: Final = 'install it with `pip install "scratchbus[vectors]"`'


class Embedder(Protocol):
    """Turns texts into vectors: any object with this method, such as a static model or the client of a service.

    A bus calls it one thread at a time; `AsyncBus` calls it in other threads than that of the event loop.
    """

    def embed(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Return the vector of each text, all of the same length; similar meanings give vectors close together."""
        ...


class Vectors:
    """One embedder's vectors for the items of an index, computed on first use and kept. Safe to share between threads.

    Others may use the index while the embedder works.
    """

    def __init__(self, index: RecallIndex, embedder: Embedder) -> None:
        """Keep the embedder; compute nothing yet. Raises InvalidField if it is not an embedder."""
        if isinstance(embedder, type):
            raise InvalidField("embedder", f"{embedder.__name__} is a class; pass an instance of it")
        if not callable(getattr(embedder, "embed", None)):
            raise InvalidField("embedder", f"{shown(embedder)} has no method `embed`; pass an object that has it")
        self.embedder = embedder
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._index = index
        self._table = index.open_table(self)
        self._is_loaded = False
        self._length = 0
        self._indexed: tuple[int, frozenset[int]] = -1, frozenset()

    def is_of(self, embedder: Embedder) -> bool:
        """Return whether these are the vectors of an embedder in this process, not in the parent of a fork."""
        return self.embedder is embedder and self._pid == os.getpid()

    def nearest(self, question: str, page_numbers: Collection[int], limit: int) -> list[tuple[int, float]]:
        """Return the rows of the items nearest to a question in meaning, with their cosine distance, nearest first.

        Nothing is near a vector of zeros. Raises InvalidField for an embedder that does not return one vector for each
        text.
        """
        with self._lock:
            with self._index.changing() as database:
                if not self._is_loaded:  # before the embedder, which may be slow, works for nothing
                    _load_extension(database)
                    self._is_loaded = True
            (vector,) = self._embed([question])
            if not any(vector):
                return []
            self._add_missing(page_numbers, len(vector))
            with self._index.changing() as database:
                query = _NEAREST.format(table=self._table)
                found = [
                    (row, distance)
                    for page_number in page_numbers
                    for row, distance in database.execute(query, (_packed(vector), limit, page_number))
                ]
            return sorted(found, key=lambda each: (each[1], -each[0]))[:limit]

    def _begin(self, database: sqlite3.Connection, length: int) -> None:
        """Create the table for vectors of this length, unless it exists."""
        if self._length:
            return
        database.execute(
            f"CREATE VIRTUAL TABLE {self._table} USING vec0"
            "(row INTEGER PRIMARY KEY, page_number INTEGER PARTITION KEY,"
            f" embedding FLOAT[{length + 1}] distance_metric=cosine, chunk_size={_CHUNK})"
        )
        self._length = length

    def _add_missing(self, page_numbers: Collection[int], length: int) -> None:
        """Compute the vectors of new items, and drop those of removed items."""
        with self._index.changing() as database:
            self._begin(database, length)
            version = self._index.version
            covered = self._indexed[1] if self._indexed[0] == version else frozenset()
            if covered.issuperset(page_numbers):
                return
            removed = database.execute(_REMOVED.format(table=self._table)).fetchall()
            database.executemany(_DELETE.format(table=self._table), [(row,) for row, _ in removed])
            query = _MISSING.format(table=self._table)
            missing = database.execute(query, (_MAX_SPACED, json.dumps([*page_numbers]))).fetchall()
        for at in range(0, len(missing), _AT_ONCE):
            batch = missing[at : at + _AT_ONCE]
            vectors = self._embed([unspaced(text)[:_MAX_CHARACTERS] for _, _, text in batch])
            rows = [
                (row, page_number, _packed(vector))
                for (row, page_number, _), vector in zip(batch, vectors, strict=True)
            ]
            with self._index.changing() as database:
                database.executemany(_INSERT.format(table=self._table), rows)
        self._indexed = version, covered.union(page_numbers)

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        vectors = _as_vectors(self.embedder.embed(texts))
        lengths = {len(vector) for vector in vectors} | ({self._length} if self._length else set())
        if len(vectors) != len(texts) or len(lengths) != 1 or 0 in lengths:
            found = f"{len(vectors)} vectors of {', '.join(map(str, sorted(lengths))) or 'no'} numbers"
            raise InvalidField(
                "embedder", f"returned {found} for {len(texts)} texts; return one for each, all of the same length"
            )
        if max(lengths) > _MAX_NUMBERS:
            raise InvalidField(
                "embedder", f"returned vectors of {max(lengths):,} numbers; the limit is {_MAX_NUMBERS:,}"
            )
        return vectors


def _as_vectors(returned: Any) -> list[list[float]]:
    """Return what an embedder returned as lists of finite numbers. Raises InvalidField."""
    try:
        vectors = [list(map(float, vector)) for vector in returned]
    except (TypeError, ValueError, OverflowError) as problem:
        raise InvalidField("embedder", f"returned no list of vectors ({problem}); return one for each text") from None
    for number in (number for vector in vectors for number in vector):
        if not math.isfinite(number):
            raise InvalidField("embedder", f"returned a vector with {number}; return finite numbers")
    return vectors


def _packed(vector: Sequence[float]) -> bytes:
    """Return a vector as sqlite-vec stores it, scaled to length 1, so that no square of a number is too large.

    One more number gives zeros, which have no direction, one that is at right angles to all others.
    """
    largest = max(map(abs, vector))
    scaled = [number / largest for number in vector] if largest else list(vector)
    length = math.hypot(*scaled)
    numbers = [*(number / length for number in scaled), 0.0] if length else [*scaled, 1.0]
    return pack(f"<{len(numbers)}f", *numbers)


def _load_extension(database: sqlite3.Connection) -> None:
    """Load sqlite-vec. Raises ScratchbusError."""
    try:
        import sqlite_vec  # type: ignore[import-untyped]  # an extra, without types
    except ImportError:
        raise ScratchbusError(f"search by meaning needs the package sqlite-vec; {_EXTRA}") from None
    try:
        database.enable_load_extension(True)
        sqlite_vec.load(database)
        database.enable_load_extension(False)
    except (AttributeError, sqlite3.Error) as error:
        problem = f"this Python's SQLite cannot load sqlite-vec ({error}); use a Python whose SQLite loads extensions"
        raise ScratchbusError(problem) from None
