"""The writes that bring the state from before a fold to after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import cast

from scratchbus.domain.observation import Observation
from scratchbus.engine.scripts import Command
from scratchbus.eventlog import positions
from scratchbus.eventlog.checkpoint import Checkpoint
from scratchbus.eventlog.codec import Poison, encode_document, encode_remembered, entry_fields
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.projections import scratch_page
from scratchbus.readmodel.fold import Fold

_WIDEST = 2_000  # arguments of one command; Lua's unpack fails near 8,000


def commands(keys: ShardKeys, fold: Fold, checkpoint: Checkpoint) -> Iterator[Command]:
    """Yield the writes that bring the state from before the fold to after it."""
    writes: dict[Command, list[object]] = defaultdict(list)
    cached: dict[str, PageKeys] = {}

    def names_of(page: str) -> PageKeys:
        return cached.get(page) or cached.setdefault(page, PageKeys(keys, page, checkpoint.build))

    for (page, subject), after in fold.documents.items():
        before = fold.before.get((page, subject))
        if after is before:
            continue
        name = names_of(page)
        if after is None:
            before = cast(Observation, before)  # both None would be the same
            writes["HDEL", name.docs].append(subject)
            writes["ZREM", name.all].append(subject)
            writes["ZREM", name.due].append(f"{subject}@{page}")
            for index in scratch_page.index_entries(before):
                writes["ZREM", name.index(*index)].append(subject)
            continue
        writes["HSET", name.docs] += (subject, encode_document(after))
        due, was_due = scratch_page.next_moment(after), scratch_page.next_moment(before) if before else None
        if due is not None and due != was_due:
            writes["ZADD", name.due] += (due, f"{subject}@{page}")
        elif due is None and was_due is not None:
            writes["ZREM", name.due].append(f"{subject}@{page}")
        if before is None:
            writes["ZADD", name.all] += (after.added_seq, subject)
            for index in scratch_page.index_entries(after):
                writes["ZADD", name.index(*index)] += (after.added_seq, subject)
        elif any(getattr(before, field) != getattr(after, field) for field in scratch_page.INDEXED):
            was, now = set(scratch_page.index_entries(before)), set(scratch_page.index_entries(after))
            for index in was - now:
                writes["ZREM", name.index(*index)].append(subject)
            for index in now - was:
                writes["ZADD", name.index(*index)] += (after.added_seq, subject)
    _remember(fold, writes, names_of)
    places: dict[str, list[int]] = defaultdict(list)
    for place, missing in fold.gaps.items():
        writes["HSET", names_of("").gaps] += (place, missing)
    for item in fold.folded:
        if isinstance(item, Poison):
            places[item.envelope["page"]] += item.position[:2]
            continue
        places[item.page] += (item.ms, item.seq)
        for relation, start, end in scratch_page.relations(item):
            writes["ZADD", names_of(item.page).relation(relation)] += (0, f"{start}\t{end}")
    yield from fold.paged_in
    for page in fold.emptied:
        yield ("DEL", names_of(page).memory)  # first: what was remembered since is written again
    for command, arguments in writes.items():
        for at in range(0, len(arguments), _WIDEST):
            yield (*command, *arguments[at : at + _WIDEST])
    for page, some in places.items() if not fold.is_archived else ():
        yield ("APPEND", names_of(page).positions, positions.pack(some))
    for entry, reason in fold.rejected:
        fields = entry_fields(entry)
        yield (
            "XADD", PageKeys(keys, "", checkpoint.build).rejected, entry[0], "reason", reason,
            "page", fields.get(b"page", b""), "subject", fields.get(b"subject", b""),
            "event", fields.get(b"event", b""),
        )  # fmt: skip


def _remember(fold: Fold, writes: dict[Command, list[object]], names_of: Callable[[str], PageKeys]) -> None:
    """Write what agents remember; of a page that was emptied, all that is there now."""
    for (page, subject), after in fold.remembered.items():
        if page not in fold.emptied and after is fold.remembered_before.get((page, subject)):
            continue
        if after is not None:
            writes["HSET", names_of(page).memory] += (subject, encode_remembered(after))
        elif page not in fold.emptied:
            writes["HDEL", names_of(page).memory].append(subject)
