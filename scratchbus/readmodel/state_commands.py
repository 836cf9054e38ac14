"""The commands that store what a fold changed: documents, indexes, relations and positions."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter

from scratchbus.domain.observation import Observation
from scratchbus.engine.scripts import MAX_ARGUMENTS, Command
from scratchbus.engine.steps import batches
from scratchbus.eventlog import positions
from scratchbus.eventlog.checkpoint import Checkpoint
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.stored_documents import encode_document
from scratchbus.projections import event_relations
from scratchbus.projections.projection import Document, Indexes
from scratchbus.projections.subjects import projection_of
from scratchbus.readmodel.additions import PageAdditions
from scratchbus.readmodel.fold import Fold
from scratchbus.readmodel.type_indexes import unlist

Writes = dict[Command, list[object]]
"""Arguments, by the verb and the key of the command that takes them."""


def commands(
    keys: ShardKeys, fold: Fold, checkpoint: Checkpoint, additions: Iterable[PageAdditions] = ()
) -> Iterator[Command]:
    """Yield the commands that store what a fold changed.

    `additions` are those of the same events that were folded by column instead.
    """
    writes: Writes = defaultdict(list)
    unlist_commands = dict[Command, None]()
    positions_by_page: dict[str, list[int]] = defaultdict(list)
    common = keys.page("", checkpoint.build)
    for (page, subject), after in fold.documents.items():
        before, projection = fold.before.get((page, subject)), projection_of(subject)
        is_emptied = page in fold.emptied and projection.store == "memory"
        if after is before and not is_emptied:
            continue
        name = keys.page(page, checkpoint.build)
        if after is not None:
            writes["HSET", getattr(name, projection.store)] += (subject, encode_document(after))
        elif not is_emptied:
            writes["HDEL", getattr(name, projection.store)].append(subject)
            if isinstance(before, Observation):
                unlist_commands[unlist(name, before.type)] = None
        if projection.indexes is not None:
            _index(writes, name, projection.indexes, subject, before, after)
    for stream_id, missing in fold.gaps.items():
        writes["HSET", common.gaps] += (stream_id, missing)
    for item in fold.folded:
        if isinstance(item, Poison):
            positions_by_page[item.page] += item.position[:2]
            continue
        positions_by_page[item.page] += (item.ms, item.seq)
        for relation, start, end in event_relations.relations(item):
            writes["ZADD", common.relation(relation)] += (0, f"{start}\t{end}")
    added_documents = list[Command]()
    for added in additions:
        added_documents.append(_add(writes, keys.page(added.name, checkpoint.build), added))
        positions_by_page[added.name] = _in_order(positions_by_page[added.name], added.positions)
    yield from fold.paged_in
    for page in fold.emptied:
        yield ("DEL", keys.page(page, checkpoint.build).memory)  # first: later memories are written below
    for command, arguments in writes.items():
        for batch in batches(arguments, MAX_ARGUMENTS):
            yield (*command, *batch)
    yield from added_documents
    yield from unlist_commands
    for page, page_positions in positions_by_page.items() if not fold.is_archived else ():
        yield ("APPEND", keys.page(page, checkpoint.build).positions, positions.pack(page_positions))
    for entry, reason in fold.rejected:
        fields = entry_fields(entry)
        yield (
            "XADD", common.rejected, entry[0], "reason", reason,
            "page", fields.get(b"page", b""), "subject", fields.get(b"subject", b""),
            "event", fields.get(b"event", b""),
        )  # fmt: skip


def _add(writes: Writes, name: PageKeys, added: PageAdditions) -> Command:
    """Return the ADDITIONS command for the additions to a page (see commands.lua); add their other writes to `writes`.

    It names each addition once, however many indexes list it.
    """
    indexes: list[object] = []
    for index, members in added.indexes:
        indexes += (name.index(*index), struct.pack(f">{len(members)}H", *members))
        if index[0] == "type":
            writes["HSET", name.types] += (index[1], "1")
    for relation, start, end in added.relations:
        writes["ZADD", name.relation(relation)] += ("0", f"{start}\t{end}")
    documents = [part for each in zip(added.ids, added.documents, strict=True) for part in each]
    due = ["" if each is None else str(each) for each in added.due]
    first, last = added.seqs[0], added.seqs[-1]
    are_apart = last - first >= added.count
    return (
        "ADDITIONS", name.docs, name.due if any(due) else "", f"@{added.name}", str(added.count),
        "" if are_apart else str(first), *documents, *(due if any(due) else ()),
        *(map(str, added.seqs) if are_apart else ()), *indexes,
    )  # fmt: skip


def _in_order(first: list[int], second: list[int]) -> list[int]:
    """Return two lists of positions, each an ms followed by a seq, as one list in the order of the log."""
    if not first:
        return second
    both = first + second
    return [
        part for position in sorted(zip(both[::2], both[1::2], strict=True), key=itemgetter(1)) for part in position
    ]


def _index(
    writes: Writes, name: PageKeys, indexes: Indexes, id: str, before: Document | None, after: Document | None
) -> None:
    """Add the writes that bring the index entries of a document up to date."""
    due, was_due = indexes.moment(after) if after else None, indexes.moment(before) if before else None
    if due is not None and due != was_due:
        writes["ZADD", name.due] += (due, f"{id}@{name.page}")
    elif due is None and (after is None or was_due is not None):
        writes["ZREM", name.due].append(f"{id}@{name.page}")
    if before and after and all(getattr(before, field) == getattr(after, field) for field in indexes.fields):
        return
    was = {name.index(*each) for each in indexes.entries(before)} if before else set[str]()
    now = {name.index(*each) for each in indexes.entries(after)} if after else set[str]()
    for key in was - now:
        writes["ZREM", key].append(id)
    if after:
        for key in now - was:
            writes["ZADD", key] += (after.added_seq, id)
        if not before and isinstance(after, Observation):
            writes["HSET", name.types] += (after.type, 1)
