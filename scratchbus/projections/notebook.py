"""The notes of one session in memory, with search by text and tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter

from scratchbus.domain.memories import Note
from scratchbus.projections import notes
from scratchbus.projections.memory_index import MemoryIndex

_BLOCK = 128  # notes whose texts are searched as one
_NOTE_BYTES = 1_500  # approximate size of a note without its text, which is kept twice


class Notebook(MemoryIndex[Note]):
    """The notes of a session, in the order in which they were added."""

    prefixes = (notes.PREFIX,)

    def __init__(self, its_notes: Iterable[Note] = ()) -> None:
        super().__init__()
        self._texts: dict[str, str] = {}
        self._blocks: list[_Block] = []
        self._block_of: dict[str, _Block] = {}
        self._tagged: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._tags: Counter[str] = Counter()
        self.load({note.id: note for note in its_notes})
        self.loaded()

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def total_tags(self) -> int:
        """The number of different tags."""
        return len(self._tags)

    def tags(self) -> dict[str, int]:
        """Return the tags in alphabetical order, each with its number of notes."""
        return {tag: self._tags[tag] for tag in sorted(self._tags, key=lambda tag: (tag.casefold(), tag))}

    def search(self, query: str, tags: Sequence[str]) -> list[Note]:
        """Return the notes that contain a text and have all these tags, ignoring case.

        They are sorted by where the text occurs, then newest first.
        """
        folded_query = query.casefold()
        newest_first = self._with_all(tags) if tags else self._with_text(folded_query)
        if not folded_query:
            return list(newest_first)
        found = [(at, note) for note in newest_first if (at := self._texts[note.id].find(folded_query)) >= 0]
        found.sort(key=itemgetter(0))
        return [note for _, note in found]

    def _with_all(self, tags: Sequence[str]) -> Iterable[Note]:
        groups = sorted((self._tagged.get(tag.casefold(), {}) for tag in tags), key=len)
        found = [self._documents[id] for id in groups[0] if all(id in group for group in groups[1:])]
        return sorted(found, key=attrgetter("added_seq"), reverse=True)

    def _with_text(self, folded_query: str) -> Iterable[Note]:
        """Yield the notes of the blocks that contain a text."""
        for block in reversed(self._blocks):
            if folded_query in block.text(self._texts):
                yield from (self._documents[id] for id in reversed(block.ids))

    def _put(self, subject: str, document: Note | None) -> None:
        """Replace a note in all indexes."""
        before = self._documents.get(subject)
        super()._put(subject, document)
        if before is not None:
            self._untag(before)
            self._block_of[subject].joined = None
            if document is None:
                del self._texts[subject], self._block_of.pop(subject).ids[subject]
        if document is not None:
            self._texts[subject] = document.content.casefold()
            self._tag(document)
            if before is None:
                self._enter(subject)

    def _size_of(self, document: Note) -> int:
        return _NOTE_BYTES + 2 * len(document.content)

    def _enter(self, id: str) -> None:
        """Put the id of a new note into the last block, or a new one."""
        if not self._blocks or len(self._blocks[-1].ids) >= _BLOCK:
            self._blocks.append(_Block())
        block = self._block_of[id] = self._blocks[-1]
        block.ids[id] = block.joined = None

    def _tag(self, note: Note) -> None:
        self._tags.update(note.tags)
        for tag in note.tags:
            self._tagged[tag.casefold()][note.id] = None

    def _untag(self, note: Note) -> None:
        for tag in note.tags:
            self._tags[tag] -= 1
            if not self._tags[tag]:
                del self._tags[tag]
            self._tagged[tag.casefold()].pop(note.id, None)
            if not self._tagged[tag.casefold()]:
                del self._tagged[tag.casefold()]


class _Block:
    """Some notes, whose texts are joined for a search: most blocks do not contain the query."""

    __slots__ = ("ids", "joined")

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.joined: str | None = None

    def text(self, texts: dict[str, str]) -> str:
        """Return the concatenated texts of its notes."""
        if self.joined is None:
            self.joined = "\0".join([texts[id] for id in self.ids])
        return self.joined
