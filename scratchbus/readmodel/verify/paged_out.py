"""The check of observations that may be paged out: each is either stored, or in the index of paged-out ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from scratchbus.engine.steps import Step, ask, batches
from scratchbus.errors import shown
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key
from scratchbus.eventlog.index_tables import (
    ENTRY,
    ID,
    TableName,
    find_in_tables,
    id_text,
    load_table,
    table_names,
)
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.paged_out import IndexEdit, reads
from scratchbus.projections.scratch_page import index_entries
from scratchbus.readmodel.verify.probe import Probe, ShardCheck

_AT_ONCE = 500  # observations per read


class PagedOutCheck(ShardCheck):
    """Compares the observations of a shard that the stored documents lack."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._unmarked = set[str]()  # pages with paged-out observations, where the checkpoint says that there are none

    def run(self) -> Step[None]:
        """Compare each of them."""
        for page in filter(self._is_readable, self._wanted.tip.pages):
            tables = yield from ask(self._shard, "HGETALL", PageKeys(self._keys, page, self._wanted.base.build).tables)
            for name in _names(tables):
                self._log.tables.pop(name.sha256, None)  # the file may have been damaged since this process read it
                table = yield from load_table(self._log, self._shard, name)
                self._wanted.absent |= {(page, id_text(id)) for id in table.ids()}
        pages: dict[str, list[str]] = defaultdict(list)
        for page, id in sorted(self._wanted.absent):
            if self._is_readable(page):
                pages[page].append(id)
        for page, ids in pages.items():
            names = PageKeys(self._keys, page, self._wanted.base.build)
            missing = set[str]()
            for batch in batches(ids, _AT_ONCE):
                missing |= yield from self._compare(names, batch)
            for status in sorted(missing):
                what = "is missing, so that lists of this status leave out paged-out observations"
                self._verified.add("paged", f"{names.places} ={status}", what)
        if self._unmarked:
            what = (
                f"says that no observation is paged out; some are, on {', '.join(map(shown, sorted(self._unmarked)))}"
            )
            self._verified.add("checkpoint", checkpoint_key(self._keys), what)

    def _is_readable(self, page: str) -> bool:
        """Return whether the keys of a page have the right types."""
        names = PageKeys(self._keys, page, self._wanted.base.build)
        return self._wanted.unreadable.isdisjoint((names.docs, names.tables, names.paged, names.places))

    def _compare(self, names: PageKeys, ids: Sequence[str]) -> Step[set[str]]:
        """Compare some observations of a page; return the statuses of paged-out ones that the index does not name."""
        documents = [each for id in ids if (each := self._wanted.base.observation(names.page, id)) is not None]
        statuses = sorted({each.status for each in documents})
        entries = reads(names, ids, (each.added_seq for each in documents))
        rows, tables, checkpoint, named, *found = yield from self._read(
            [
                ("HMGET", names.docs, *ids),
                ("HGETALL", names.tables),
                ("GET", checkpoint_key(self._keys)),
                ("HMGET", names.places, "moves", *(f"={status}" for status in statuses)),
                *entries,
            ]
        )
        unnamed = {status for status, row in zip(statuses, named[1:], strict=True) if row is None}
        index, stored, missing = IndexEdit(names, tables=_names(tables)), list[str](), set[str]()
        index.load(
            (command, _whole(command[1] == names.paged, each)) for command, each in zip(entries, found, strict=True)
        )
        index.in_tables = yield from find_in_tables(self._log, self._shard, index.tables, ids)
        for id, row in zip(ids, rows, strict=True):
            if problem := self._wanted.problem_of_absent(names.page, id, row, index):
                self._verified.add("paged", f"{names.paged} {id}", problem)
            elif row and (names.page, id) in self._wanted.unindexed:
                stored.append(id)
            elif index.find(id) and (document := self._wanted.base.observation(names.page, id)) is not None:
                missing |= {document.status} & unnamed
        if any(map(index.find, ids)) and not Checkpoint.parse(checkpoint, self._shard).is_paged:
            self._unmarked.add(names.page)
        for id in stored:
            yield from self._compare_unindexed(names, id)
        return missing

    def _compare_unindexed(self, names: PageKeys, id: str) -> Step[None]:
        """Check that an observation that was missing in an index, and is stored, was paged in since."""
        document = self._wanted.base.observation(names.page, id)
        keys = [names.index(*each) for each in index_entries(document)] if document is not None else []
        keys = [key for key in keys if key not in self._wanted.unreadable]
        row, *scores = yield from self._read([("HGET", names.docs, id), *(("ZSCORE", key, id) for key in keys)])
        if row is not None and None in scores and self._wanted.base.observation(names.page, id) == document:
            self._verified.add("paged", f"{names.paged} {id}", "is stored, and missing in an index")


def _whole(is_bucket: bool, rows: Sequence[bytes | None]) -> list[bytes | None]:
    """Return buckets or ranges without an incomplete last entry, which is reported with the key."""
    width = ID.size if is_bucket else ENTRY.size
    return [row and row[: len(row) // width * width] for row in rows]


def _names(flat: Sequence[bytes]) -> list[TableName]:
    """Return the tables of a page; those whose names cannot be read are reported with the key."""
    try:
        return table_names(flat)
    except ValueError:
        return []
