"""Reads of an archive that is checked: an unreadable file does not end the check, a store that is down does."""

from __future__ import annotations

from scratchbus.archive.stores import Store
from scratchbus.errors import ArchiveUnavailable

_MAX_UNREADABLE = 3


class Unreadable(Exception):
    """A file cannot be read, though others can."""


class FileReads:
    """The files of a store; `unreadable` are those that cannot be read.

    The store is down if it cannot be listed after the first failure, or if more than three files in a row fail.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self.list = store.list
        self._store, self._folder = store, folder
        self._is_listed = False
        self.unreadable: set[str] = set()
        self._in_a_row: set[str] = set()

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, None if there is none. Raises Unreadable, or ArchiveUnavailable."""
        try:
            content = self._store.get(name)
        except ArchiveUnavailable:
            content = self._get_again(name)
        self._in_a_row.clear()
        return content

    def _get_again(self, name: str) -> bytes | None:
        if not self._is_listed:
            self._store.list(self._folder)
            self._is_listed = True
        try:
            return self._store.get(name)
        except ArchiveUnavailable as problem:
            self._in_a_row.add(name)
            if len(self._in_a_row) > _MAX_UNREADABLE:
                raise
            self.unreadable.add(name)
            raise Unreadable(f"it cannot be read: {problem}") from None
