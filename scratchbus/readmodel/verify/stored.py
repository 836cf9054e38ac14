"""The keys that the engine holds, each with its expected content."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from scratchbus.domain.memories import Session
from scratchbus.domain.position import START, Position
from scratchbus.errors import shown
from scratchbus.eventlog import positions
from scratchbus.eventlog.index_tables import ENTRY, ID, PagedOut, entries_in, id_text, ids_in, range_of
from scratchbus.eventlog.keys import SYSTEM_PAGE, ShardKeys
from scratchbus.eventlog.paged_out import IndexEdit
from scratchbus.eventlog.stored_documents import read_document
from scratchbus.projections.event_relations import RELATIONS
from scratchbus.projections.projection import Document
from scratchbus.projections.scratch_page import may_be_paged_out
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.subjects import is_remembered
from scratchbus.readmodel.verify.differences import (
    differences,
    document_difference,
    head_difference,
    moment_difference,
    presence,
    score_difference,
    table_difference,
    text_difference,
)
from scratchbus.readmodel.verify.expected import ExpectedState, PageState
from scratchbus.readmodel.verify.read_model import ReadModel, offset_of


class StoredKey(NamedTuple):
    """A key with its expected content, evaluated when the functions are called.

    `members` yields the required members. `expected` returns the value of a member, None if it must not exist.
    `difference` describes how the stored value differs, "" if it does not. Members for which `is_excused` is true may
    exist or not. `rows` has the expected values in the form in which they are stored, if they have only one.
    """

    kind: str
    key: str
    type: Literal["hash", "zset"]
    members: Callable[[], Iterable[str]]
    expected: Callable[[str], Any]
    difference: Callable[[Any, bytes], str]
    is_excused: Callable[[str, bytes | None], bool] = lambda member, row: False
    rows: Mapping[str, Any] | None = None

    def problems(self, members: Sequence[str], values: Sequence[bytes | None]) -> Iterator[tuple[str, str]]:
        """Yield the members with these stored values that have a fault, each with its description."""
        if self.rows is not None:
            found = [float(value) for value in values if value] if self.type == "zset" else values
            if found == [*map(self.rows.get, members)]:
                return
        for member, value in zip(members, values, strict=True):
            if problem := self.problem(member, value):
                yield member, problem

    def problem(self, member: str, row: bytes | None) -> str:
        """Describe the fault of a member with this stored value, None for no value; "" if there is none."""
        if self.is_excused(member, row):
            return ""
        expected = self.expected(member)
        return self.difference(expected, row) if expected is not None and row is not None else presence(expected, row)


class StoredKeys:
    """The keys of a shard: by `base` those of the read model, and by `tip` those that the append script writes.

    `absent` are the pages and ids of observations that may be paged out, since their document is not stored, or is
    missing in an index (`unindexed`): only one read of all of it shows whether they are. `unreadable` are the keys that
    have the wrong type. `tombstoned` are the numbers of the events that tombstones name as erased, and `erased_in_log`
    those of events that were recorded as erased when they were read from the log.
    """

    def __init__(self, keys: ShardKeys) -> None:
        self.keys = keys
        self.floor = START
        self.base = ReadModel(keys)
        self.tip = ExpectedState()
        self.absent: set[tuple[str, str]] = set()
        self.unindexed: set[tuple[str, str]] = set()
        self.unreadable: set[str] = set()
        self.tombstoned: set[int] = set()
        self.erased_in_log: set[int] = set()
        self._ids: dict[str, dict[int, str]] = defaultdict(dict)
        self._ids_at: dict[str, Position] = {}

    def names(self) -> set[str]:
        """Return the keys that must exist now."""
        names = {self.keys.pages, *self.base.rows, *self.base.positions}
        for page in self.tip.pages:
            names |= {self.keys.heads(page), self.keys.open(page), self.keys.dedupe(page)}
        return names

    def find(self, key: str) -> StoredKey | None:
        """Return the expected content of a key; None if it is not compared member by member."""
        name, build = key.removeprefix(self.keys.tag), f"p{self.base.build}:"
        kind, _, page = name.removeprefix(build).partition(":")
        if name.startswith(build):
            return self._find_in_build(key, kind, page)

        def tip() -> PageState:
            return self.tip.peek(page)

        match kind:
            case "pages":
                return StoredKey("page", key, "hash", lambda: self.tip.pages, self._soonest, moment_difference)
            case "heads":
                return StoredKey(
                    "head", key, "hash", lambda: tip().sure(), lambda id: tip().head(id),
                    partial(head_difference, page == SYSTEM_PAGE), partial(self._may_lack_head, page),
                )  # fmt: skip
            case "open":
                return StoredKey(
                    "room", key, "zset", lambda: tip().open(), lambda id: tip().score(id), score_difference
                )
            case "keys":
                return StoredKey(
                    "key", key, "hash", lambda: tip().dedupe_keys(), lambda field: tip().holders.get(field),
                    text_difference,
                )  # fmt: skip
        return None

    def _find_in_build(self, key: str, kind: str, page: str) -> StoredKey | None:
        rows = self.base.rows[key]

        def document(subject: str) -> Document | None:
            return read_document(subject, rows[subject]) if subject in rows else None

        match kind:
            case "docs" | "memory":
                may_lack = partial(self._may_be_paged_out, page)
                return StoredKey("document", key, "hash", lambda: rows, document, document_difference, may_lack, rows)
            case "paged":
                return StoredKey("paged", key, "hash", tuple, str, partial(self._bucket_difference, page))
            case "places":
                return StoredKey("paged", key, "hash", tuple, str, partial(self._range_difference, page))
            case "tables":
                return StoredKey("paged", key, "hash", tuple, str, table_difference)
            case "gaps":
                return StoredKey("index", key, "hash", lambda: rows, rows.get, text_difference)
            case "types":
                return StoredKey(
                    "index", key, "hash", lambda: rows, rows.get, text_difference,
                    partial(self._may_be_listed_or_not, page),
                )  # fmt: skip
            case "type" | "tag" | "owner" | "waiting":  # the names of other keys may have a "#" in them
                may_lack = partial(self._may_be_unindexed, page.partition("#")[0])
                return StoredKey("index", key, "zset", lambda: rows, rows.get, score_difference, may_lack, rows)
        if kind == "due":
            return StoredKey(
                "due", key, "zset", lambda: rows, rows.get, score_difference, self._may_be_due_or_not, rows
            )
        if kind in RELATIONS:
            return StoredKey(
                "relation", key, "zset", lambda: rows, rows.get, score_difference, self._may_be_unrelated, rows
            )
        return None

    def positions_differ(self, key: str, row: bytes) -> bool:
        """Return whether a page's stored positions differ from its events; those below the floor may be missing."""
        expected = self.base.positions[key]
        floor = offset_of(expected, self.floor.ms, self.floor.seq + 1)
        above, below = expected[floor:], _positions(expected[:floor])
        is_known = all(each in below for each in _positions(row[: max(0, len(row) - len(above))]))  # in this order
        return not (is_known and row.endswith(above))

    # -- what the append script writes -----------------------------------------------------------------------------

    def _soonest(self, page: str) -> int | None:
        return self.tip.peek(page).soonest() if page in self.tip.pages else None

    def _may_lack_head(self, page: str, id: str, row: bytes | None) -> bool:
        """Return whether a head may be missing because its subject is final, or another one may be there."""
        tip = self.tip.peek(page)
        if not tip.is_sure(id):
            return True  # an entry that is not an event was not added by the script
        if row is not None:
            return False
        if (document := tip.observation(id)) is not None and may_be_paged_out(document):
            return True
        head, session = tip.head(id), tip.memory(SESSION)
        if head is None or Position.parse(head.position).seq > self.floor.seq:
            return False
        is_over = isinstance(session, Session) and session.ended and session.seq <= self.floor.seq
        return head.status_class == "f" or (is_over and id != SESSION and is_remembered(id))

    # -- erased subjects -------------------------------------------------------------------------------------------

    def _may_be_due_or_not(self, member: str, row: bytes | None) -> bool:
        id, _, page = member.partition("@")
        return (page, id) in self.base.unfolded

    def _may_be_unrelated(self, member: str, row: bytes | None) -> bool:
        """Return whether a relation may be missing: the append script drops those that erased events recorded."""
        end = member.rpartition("\t")[2]
        return row is None and not self.base.erased_ends.isdisjoint((end, end.rpartition("@")[2]))

    # -- paged-out observations ------------------------------------------------------------------------------------

    def _may_be_paged_out(self, page: str, id: str, row: bytes | None) -> bool:
        """Return whether the row of a document may be missing, and then note it as absent; or whether it may be there.

        Until the tombstone of an erased subject is folded, its document may be there or not.
        """
        if (page, id) in self.base.unfolded:
            return True
        document = self.base.observation(page, id) if row is None else None
        is_absent = document is not None and may_be_paged_out(document)
        if is_absent:
            self.absent.add((page, id))
        return is_absent

    def _may_be_unindexed(self, page: str, id: str, row: bytes | None) -> bool:
        is_absent = self._may_be_paged_out(page, id, row)
        if is_absent:
            self.unindexed.add((page, id))
        return is_absent

    def _may_be_listed_or_not(self, page: str, type: str, row: bytes | None) -> bool:
        """Return whether a type may be listed or not: all its observations were erased or may be paged out."""
        names = self.keys.page(page, self.base.build)
        if row is not None:
            return (names.types, type) in self.base.erased_types and row == b"1"
        return all(self._may_be_paged_out(page, id, None) for id in self.base.rows[names.index("type", type)])

    def _bucket_difference(self, page: str, _: object, row: bytes) -> str:
        """Check the ids of a bucket, which may be paged in by the time their positions are compared."""
        if len(row) % ID.size:
            return f"cannot be read: {shown(row)}"
        problems = []
        for id, added in ids_in(row).items():
            document = self.base.observation(page, id_text(id))
            if (page, id_text(id)) in self.base.unfolded:
                continue
            if document is None or document.added_seq != added:
                problems.append(f"{id_text(id)} was not added by event {added}")
            self.absent.add((page, id_text(id)))
        return ", ".join(problems)

    def _range_difference(self, page: str, name: str, row: bytes) -> str:
        """Check the index entries of a range, whose observations may be paged in by the time they are compared."""
        if not name.isdigit():
            return ""
        if len(row) % ENTRY.size:
            return f"cannot be read: {shown(row)}"
        problems = []
        for added, entry in entries_in(row).items():
            id = self._id_of(page, added)
            if id is None and (not entry.seq or (self.base.unfolded and added in self.tip.erased)):
                continue  # erased, after it was paged in or by a tombstone that is not folded
            if id is None:
                problems.append(f"event {added} added no observation to this page")
            else:
                self.absent.add((page, id))
        return ", ".join(problems)

    def _id_of(self, page: str, added: int) -> str | None:
        """Return the id of the observation that was added at this seq."""
        if added not in self._ids[page] and self._ids_at.get(page) != self.base.at:
            self._ids_at[page] = self.base.at
            names = self.keys.page(page, self.base.build)
            rows = [self.base.rows[names.index("type", type)] for type in self.base.rows[names.types]]
            self._ids[page] = {int(score): id for row in rows for id, score in row.items()}
        return self._ids[page].get(added)

    def problem_of_absent(self, page: str, id: str, row: bytes | None, index: IndexEdit) -> str:
        """Describe the fault of a document that must be either stored or paged out."""
        if (page, id) in self.base.unfolded:
            return ""
        expected = self.base.observation(page, id)
        entry = index.find(id)
        if expected is None:
            return presence(expected, row) if entry is None else "is paged out, and should not be there"
        if entry is None:
            if row is None:
                return presence(expected, row)
            entry = index.ranges.get(range_of(expected.added_seq), {}).get(expected.added_seq)
            if entry is not None and entry.seq:
                return "is stored, and still has a position in the index of paged-out observations"
            return document_difference(expected, row)
        if row is not None:
            return "is stored and paged out at once"
        if not may_be_paged_out(expected):
            return "is paged out and not final"
        return differences(entry, PagedOut.of(expected), PagedOut._fields)


def _positions(packed: bytes | bytearray) -> Iterator[bytes]:
    """Yield the packed positions one by one."""
    return (bytes(packed[at : at + positions.WIDTH]) for at in range(0, len(packed), positions.WIDTH))
