"""Search by meaning: an embedder turns texts into vectors, and sqlite-vec finds those nearest to a question's vector.

Callers pass an embedder, their own or the one in `adapters/wordllama.py`; nothing is downloaded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from struct import pack
from typing import Final, Protocol

from scratchbus.context.recall_index import RecallIndex
from scratchbus.errors import InvalidField, ScratchbusError, shown

_AT_ONCE: Final = 256  # texts per call of an embedder
_MAX_CHARACTERS: Final = 4_000  # characters embedded of each text
_MISSING: Final = (
    "SELECT row, items.page_number, tags || ' ' || substr(content, 1, ?) FROM items JOIN texts ON texts.rowid = row"
    " WHERE items.page_number IN (SELECT value FROM json_each(?)) AND row NOT IN (SELECT row FROM vectors)"
)
_EXTRA: Final = 'install it with `pip install "scratchbus[vectors]"`'


class Embedder(Protocol):
    """Turns texts into vectors: any object with this method, such as a static model or the client of a service."""

    def embed(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Return the vector of each text, all of the same length; similar meanings give vectors close together."""
        ...


class Vectors:
    """One embedder's vectors for the items of an index, computed on first use and kept."""

    def __init__(self, index: RecallIndex, embedder: Embedder) -> None:
        """Keep the embedder; compute nothing yet. Raises InvalidField if it is not an embedder."""
        if not callable(getattr(embedder, "embed", None)):
            raise InvalidField("embedder", f"{shown(embedder)} has no method `embed`; pass an object that has it")
        self.embedder = embedder
        self._index = index
        self._length = 0
        self._indexed: tuple[int, frozenset[int]] = -1, frozenset()

    def nearest(self, question: str, page_numbers: Collection[int], limit: int) -> list[tuple[int, float]]:
        """Return the rows of the items nearest to a question in meaning, with their cosine distance, nearest first.

        Raises InvalidField for an embedder that does not return one vector for each text.
        """
        (vector,) = self._embed([question])
        with self._index.changing() as database:
            self._begin(database, len(vector))
            self._add_missing(database, page_numbers)
            query = "SELECT row, distance FROM vectors WHERE embedding MATCH ? AND k = ? AND page_number = ?"
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
        _load_extension(database)
        database.execute("DROP TABLE IF EXISTS vectors")
        database.execute(
            "CREATE VIRTUAL TABLE vectors USING vec0"
            "(row INTEGER PRIMARY KEY, page_number INTEGER PARTITION KEY,"
            f" embedding FLOAT[{length}] distance_metric=cosine)"
        )
        self._length = length

    def _add_missing(self, database: sqlite3.Connection, page_numbers: Collection[int]) -> None:
        """Compute the vectors of new items, and drop those of removed items."""
        if self._indexed[0] == self._index.version and self._indexed[1].issuperset(page_numbers):
            return
        removed = database.execute("SELECT row FROM vectors EXCEPT SELECT row FROM items").fetchall()
        database.executemany("DELETE FROM vectors WHERE row = ?", removed)
        missing = database.execute(_MISSING, (_MAX_CHARACTERS, json.dumps([*page_numbers]))).fetchall()
        for at in range(0, len(missing), _AT_ONCE):
            batch = missing[at : at + _AT_ONCE]
            vectors = self._embed([text for _, _, text in batch])
            database.executemany(
                "INSERT INTO vectors (row, page_number, embedding) VALUES (?, ?, ?)",
                [
                    (row, page_number, _packed(vector))
                    for (row, page_number, _), vector in zip(batch, vectors, strict=True)
                ],
            )
        covered = self._indexed[1] if self._indexed[0] == self._index.version else frozenset()
        self._indexed = self._index.version, covered.union(page_numbers)

    def _embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        vectors: list[Sequence[float]] = [list(map(float, vector)) for vector in self.embedder.embed(texts)]
        lengths = {len(vector) for vector in vectors} | ({self._length} if self._length else set())
        if len(vectors) != len(texts) or len(lengths) != 1 or 0 in lengths:
            found = f"{len(vectors)} vectors of {', '.join(map(str, sorted(lengths))) or 'no'} numbers"
            raise InvalidField(
                "embedder", f"returned {found} for {len(texts)} texts; return one for each, all of the same length"
            )
        return vectors


def _packed(vector: Sequence[float]) -> bytes:
    return pack(f"<{len(vector)}f", *vector)


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
