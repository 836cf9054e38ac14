"""The status of pages: their numbers of open observations and of claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from scratchbus.engine.steps import Step, ask_all, batches
from scratchbus.eventlog.lag import in_ms
from scratchbus.eventlog.layouts import Head
from scratchbus.readmodel.queries import page_names
from scratchbus.readmodel.scope import Core

MAX_CLAIMS = 1_000
"""The most open observations of a page whose claims are counted."""

_AT_ONCE = 1_000  # commands in a round trip


class PageStatus(BaseModel):
    """One page: its numbers of open observations and of claims.

    `claimed` is None if the page has too many open observations to count their claims.
    """

    page: str
    open: int
    claimed: int | None


def read_pages(core: Core) -> Step[list[PageStatus]]:
    """Return the status of all pages, those with the most open observations first."""
    sizes: dict[str, int] = {}
    for shard in range(core.log.shards):
        sizes |= yield from read_sizes(core, shard, (yield from page_names(core.log.keys(shard))))
    order = sorted(sizes, key=lambda page: (-sizes[page], page))
    return (yield from with_claims(core, {page: sizes[page] for page in order}))


def with_claims(core: Core, sizes: Mapping[str, int]) -> Step[list[PageStatus]]:
    """Return the status of pages, given with their numbers of open observations."""
    claims = {page: 0 for page, size in sizes.items() if not size}
    countable = [page for page, size in sizes.items() if 0 < size <= MAX_CLAIMS]
    for batch in batches(countable, _AT_ONCE):
        claims |= yield from _count_claims(core, batch)
    return [PageStatus(page=page, open=size, claimed=claims.get(page)) for page, size in sizes.items()]


def read_sizes(core: Core, shard: int, pages: list[str]) -> Step[dict[str, int]]:
    """Return the number of open observations of each page."""
    sizes: dict[str, int] = {}
    for batch in batches(pages, _AT_ONCE):
        found = yield from ask_all(shard, [("ZCARD", core.log.keys(shard).open(page)) for page in batch])
        sizes |= zip(batch, found, strict=True)
    return sizes


def _count_claims(core: Core, pages: Sequence[str]) -> Step[dict[str, int]]:
    """Return the number of live claims of each page, by the engine's clock."""
    by_shard: dict[int, list[str]] = defaultdict(list)
    for page in pages:
        by_shard[core.log.shard(page)].append(page)
    claims: dict[str, int] = {}
    for shard, batch in by_shard.items():
        keys = core.log.keys(shard)
        found = yield from ask_all(shard, [("ZRANGE", keys.open(page), 0, -1) for page in batch])
        heads = [("HMGET", keys.heads(page), *ids) for page, ids in zip(batch, found, strict=True) if ids]
        *rows, time = yield from ask_all(shard, [*heads, ("TIME",)])
        now = in_ms(time)
        counts = iter(sum(head is not None and head.until > now for head in map(Head.readable, each)) for each in rows)
        claims |= {page: next(counts) if ids else 0 for page, ids in zip(batch, found, strict=True)}
    return claims
