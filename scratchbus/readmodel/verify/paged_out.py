"""The check of observations that may be paged out: each is either stored, or in the index of paged-out ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Step, ask, batches
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.index_tables import (
    TableName,
    find_in_tables,
    id_text,
    load_table,
    table_names,
)
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.paged_out import IndexEdit, reads
from scratchbus.projections.scratch_page import index_entries
from scratchbus.readmodel.verify.findings import Verified
from scratchbus.readmodel.verify.stored import StoredKeys

_AT_ONCE = 500  # observations per read


class PagedOutCheck:
    """Compares the observations of a shard that the stored documents lack; `read` reads keys at once."""

    def __init__(
        self,
        log: Log,
        wanted: StoredKeys,
        verified: Verified,
        read: Callable[[Iterable[Command]], Step[list[Any]]],
    ) -> None:
        self._log = log
        self._keys = wanted.keys
        self._shard = wanted.keys.shard
        self._wanted = wanted
        self._verified = verified
        self._read = read

    def run(self) -> Step[None]:
        """Compare each of them."""
        for page in self._wanted.tip.pages:
            tables = yield from ask(self._shard, "HGETALL", PageKeys(self._keys, page, self._wanted.base.build).tables)
            for name in _names(tables):
                table = yield from load_table(self._log, self._shard, name)
                self._wanted.absent |= {(page, id_text(id)) for id in table.ids()}
        pages: dict[str, list[str]] = defaultdict(list)
        for page, id in sorted(self._wanted.absent):
            pages[page].append(id)
        for page, ids in pages.items():
            names = PageKeys(self._keys, page, self._wanted.base.build)
            for batch in batches(ids, _AT_ONCE):
                documents = (self._wanted.base.observation(page, id) for id in batch)
                entries = reads(names, batch, (document.added_seq for document in documents if document is not None))
                rows, tables, *found = yield from self._read(
                    [("HMGET", names.docs, *batch), ("HGETALL", names.tables), *entries]
                )
                index, stored = IndexEdit(names, tables=_names(tables)), list[str]()
                index.load(zip(entries, found, strict=True))
                index.in_tables = yield from find_in_tables(self._log, self._shard, index.tables, batch)
                for id, row in zip(batch, rows, strict=True):
                    if problem := self._wanted.problem_of_absent(page, id, row, index):
                        self._verified.add("paged", f"{names.paged} {id}", problem)
                    elif row and (page, id) in self._wanted.unindexed:
                        stored.append(id)
                for id in stored:
                    yield from self._compare_unindexed(names, id)

    def _compare_unindexed(self, names: PageKeys, id: str) -> Step[None]:
        """Check that an observation that was missing in an index, and is stored, was paged in since."""
        document = self._wanted.base.observation(names.page, id)
        keys = [names.index(*each) for each in index_entries(document)] if document is not None else []
        row, *scores = yield from self._read([("HGET", names.docs, id), *(("ZSCORE", key, id) for key in keys)])
        if row is not None and None in scores and self._wanted.base.observation(names.page, id) == document:
            self._verified.add("paged", f"{names.paged} {id}", "is stored, and missing in an index")


def _names(flat: Sequence[bytes]) -> list[TableName]:
    """Return the tables of a page; those whose names cannot be read are reported with the key."""
    try:
        return table_names(flat)
    except ValueError:
        return []
