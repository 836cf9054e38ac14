"""The index of recall."""

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
