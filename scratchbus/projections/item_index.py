"""The items of one store in memory, with search by namespace, by filter and by words of their texts."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from scratchbus.domain.items import PREFIX, Namespace, StoreItem
from scratchbus.errors import InvalidField, shown
from scratchbus.projections.memory_index import MemoryIndex
from scratchbus.telemetry.lazy import imported_on_first_use

if TYPE_CHECKING:
    from sqlite3 import Connection

with imported_on_first_use(__name__):  # only a query needs SQLite
    from scratchbus.projections import fulltext

_BYTES: Final = 2_000  # approximate size of an item without its texts


class FoundItem(NamedTuple):
    """An item that was found; for a query, a higher score is a better match."""

    item: StoreItem
    score: float | None = None


class NamespaceMatch(NamedTuple):
    """A condition for namespaces: they begin or end with a path, in which `*` stands for any label."""

    end: Literal["prefix", "suffix"]
    path: Namespace

    def matches(self, namespace: Namespace) -> bool:
        """Return whether a namespace meets the condition."""
        if len(namespace) < len(self.path):
            return False
        path, labels = (self.path, namespace) if self.end == "prefix" else (self.path[::-1], namespace[::-1])
        return all(pattern in ("*", label) for pattern, label in zip(path, labels, strict=False))


class ItemIndex(MemoryIndex[StoreItem]):
    """The items of a store, including deleted ones."""

    prefixes = (PREFIX,)

    def __init__(self) -> None:
        super().__init__()
        self._spaces: dict[Namespace, dict[str, StoreItem]] = {}  # each sorted, and all by their first items
        self._is_sorted = True
        self._expiring: set[str] = set()
        self._fulltext: Connection | None = None
        self._unindexed: dict[str, None] = {}
        self._rows: dict[str, int] = {}

    @property
    def has_expiring(self) -> bool:
        """Whether any item may expire."""
        return bool(self._expiring)

    def get(self, namespace: Namespace, key: str, now_ms: float) -> StoreItem | None:
        """Return an item, None if it does not exist or has expired."""
        item = self._spaces.get(namespace, {}).get(key)
        return item if item is not None and _is_live(item, now_ms) else None

    def expired(self, now_ms: float) -> list[StoreItem]:
        """Return the items that have expired and are not deleted."""
        return [item for item in map(self._documents.__getitem__, self._expiring) if not _is_live(item, now_ms)]

    def search(
        self, prefix: Namespace, condition: Mapping[str, Any], query: str, limit: int, offset: int, now_ms: float
    ) -> list[FoundItem]:
        """Return the items below a namespace that match a filter, and a query if it has words.

        They are in the order in which they were first put; with a query, the best matches come first. Raises
        InvalidField for an unknown operator, and for one in the place of a field.
        """
        if misplaced := [name for name in condition if name in _OPERATORS or name in _COMBINING]:
            raise InvalidField("filter", f"{shown(misplaced[0])} stands where a field is named; write field: condition")
        test = _test_of_fields(condition)
        if query and (words := fulltext.words_of(query)):
            labels, depth = list(prefix), len(prefix)
            matches = (each for each in self._matching(words) if each.item.namespace[:depth] == labels)
            found = (each for each in matches if _is_live(each.item, now_ms) and test(each.item.value))
        else:
            candidates = (item for item in self._below(prefix) if test(item.value))
            found = (FoundItem(item) for item in candidates if _is_live(item, now_ms))
        return list(islice(found, offset, offset + limit))

    def namespaces(
        self, matches: Sequence[NamespaceMatch], max_depth: int | None, limit: int, offset: int, now_ms: float
    ) -> list[Namespace]:
        """Return the matching namespaces that have items, cut to a depth, in alphabetical order."""
        found = {
            namespace[:max_depth]
            for namespace, items in self._spaces.items()
            if all(match.matches(namespace) for match in matches)
            and any(_is_live(each, now_ms) for each in items.values())
        }
        return sorted(found)[offset : offset + limit]

    def _below(self, prefix: Namespace) -> Iterator[StoreItem]:
        if not self._is_sorted:
            self._spaces = dict(sorted(self._spaces.items(), key=lambda each: next(iter(each[1].values())).added_seq))
            self._is_sorted = True
        for namespace, items in self._spaces.items():
            if namespace[: len(prefix)] == prefix:
                yield from items.values()

    def _put(self, subject: str, item: StoreItem | None) -> None:
        before = self._documents.get(subject)
        super()._put(subject, item)
        if item is None:
            return
        self._unindexed[item.id] = None
        if item.expires_ms is None:
            self._expiring.discard(item.id)
        else:
            self._expiring.add(item.id)
        if not item.deleted:
            space = self._spaces.setdefault(tuple(item.namespace), {})
            space[item.key] = item
            if before is not None and before.deleted:  # put again, where it was
                self._spaces[tuple(item.namespace)] = dict(sorted(space.items(), key=lambda each: each[1].added_seq))
                self._is_sorted = False
        elif before is not None and not before.deleted:
            space = self._spaces.get(tuple(before.namespace), {})
            was_first = next(iter(space), None) == before.key
            space.pop(before.key, None)
            if not space:
                self._spaces.pop(tuple(before.namespace), None)
            elif was_first:
                self._is_sorted = False

    def _size_of(self, document: StoreItem) -> int:
        return _BYTES + len(document.text or "") + sum(map(len, _texts(document.value)))

    def _matching(self, words: list[str]) -> Iterator[FoundItem]:
        """Yield the items that have any of these words, best match first."""
        index = self._updated_fulltext()
        query = "SELECT id, -rank FROM items WHERE text MATCH ?"
        rows = index.execute(query, (fulltext.any_of(words),)).fetchall()
        found = [FoundItem(self._documents[id], score) for id, score in rows]
        yield from sorted(found, key=lambda each: (-(each.score or 0.0), each.item.added_seq))

    def _updated_fulltext(self) -> Connection:
        """Return the full-text index, updated with all changed items."""
        if self._fulltext is None:
            index = fulltext.open_database()
            weakref.finalize(self, index.close).atexit = False
            index.isolation_level = None
            index.execute(f"CREATE VIRTUAL TABLE items USING fts5(id UNINDEXED, text, {fulltext.TOKENIZE})")
            self._fulltext = index
        changed = [self._documents[id] for id in self._unindexed]
        self._fulltext.execute("BEGIN")
        try:
            outdated = [(self._rows[item.id],) for item in changed if item.id in self._rows]
            self._fulltext.executemany("DELETE FROM items WHERE rowid = ?", outdated)
            for item in changed:
                row = self._rows.setdefault(item.id, len(self._rows))
                if text := "" if item.deleted else fulltext.storable(text_of(item)):
                    self._fulltext.execute("INSERT INTO items (rowid, id, text) VALUES (?, ?, ?)", (row, item.id, text))
            self._fulltext.execute("COMMIT")
        except BaseException:
            self._fulltext.execute("ROLLBACK")  # else no later query could begin
            raise
        self._unindexed.clear()
        return self._fulltext


def text_of(item: StoreItem) -> str:
    """Return the text of an item that a query searches."""
    return "\n".join(_texts(item.value)) if item.text is None else item.text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _is_live(item: StoreItem, now_ms: float) -> bool:
    return item.expires_ms is None or item.expires_ms > now_ms


_Test = Callable[[Any], bool]


def _test_of(condition: Any) -> _Test:
    """Return a test of whether a value matches a filter: by equality or operators; objects field by field.

    Raises InvalidField for an unknown operator.
    """
    if isinstance(condition, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in condition):
            applied = [_applied(name, operand) for name, operand in condition.items()]
            return applied[0] if len(applied) == 1 else lambda value: all(test(value) for test in applied)
        return _test_of_fields(condition)
    if isinstance(condition, list | tuple):
        tests = [_test_of(each) for each in condition]
        return lambda value: (
            isinstance(value, list)
            and len(value) == len(tests)
            and all(test(element) for test, element in zip(tests, value, strict=True))
        )
    return lambda value: bool(value == condition)


def _test_of_fields(condition: Mapping[Any, Any]) -> _Test:
    fields = [(name, _test_of(each)) for name, each in condition.items()]
    return lambda value: isinstance(value, dict) and all(test(value.get(name)) for name, test in fields)


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": operator.eq, "$ne": operator.ne, "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt,
    "$lte": operator.le,
}  # fmt: skip

_COMBINING: Final = ("$and", "$or", "$not", "$nor", "$in", "$nin")
"""Operators of other stores."""


def _applied(name: Any, operand: Any) -> _Test:
    """Return the test of an operator; values that cannot be compared do not match. Raises InvalidField."""
    apply = _OPERATORS.get(name)
    if apply is None:
        raise InvalidField("filter", f"{shown(name)} is not an operator; use one of: {', '.join(_OPERATORS)}")
    if name in ("$eq", "$ne"):
        return lambda value: apply(value, operand)
    number = _number(operand)

    def compares(value: Any) -> bool:
        try:
            return apply(_number(value), number)
        except TypeError:
            return False

    return compares


def _number(value: Any) -> Any:
    """Return a text that is a number as a float, and any other value unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
