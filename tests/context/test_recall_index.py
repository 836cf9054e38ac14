"""The index of recall."""

import sqlite3

import pytest

from scratchbus.context.embedding import Vectors
from scratchbus.context.page_index import PageIndex
from scratchbus.context.recall_index import RecallIndex
from scratchbus.domain.memories import Note


def note(id="note_1", seq=1, content="x" * 100):
    return Note(id=id, content=content, source="a", added_ms=1, added_seq=1, ms=seq, seq=seq)


def test_the_size_of_a_page_counts_each_item_once():
    page = PageIndex(RecallIndex())
    page.load({"note_1": note(), "note_2": note("note_2", 2)})
    size = page.size
    for seq in range(3, 100):
        page.update(["note_1"], [note(seq=seq)])
    assert page.size == size
    page.update(["note_2"], [])
    assert page.size == size / 2
    page.is_over = True
    page.take()
    assert page.size == 0


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"), reason="this Python's SQLite loads no extensions"
)
def test_the_vectors_of_many_small_pages_take_little_memory():
    pytest.importorskip("sqlite_vec")

    class Constant:
        def embed(self, texts):
            return [[1.0] * 1_536 for _ in texts]

    index = RecallIndex()
    vectors = Vectors(index, Constant())
    pages = [PageIndex(index) for _ in range(20)]
    for seq, page in enumerate(pages, 1):
        page.load({"note_1": note(seq=seq)})
    assert len(vectors.nearest("x", [page.page_number for page in pages], 100)) == len(pages)
    (used,) = index.database.execute("PRAGMA page_count").fetchone()
    assert used * 4_096 < 20 * 1024 * 1024
