"""The status of a bus: its engine, logs, projection, subscriptions and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from pydantic import BaseModel

from scratchbus.engine.connect import UNKNOWN, read_info, risks
from scratchbus.engine.steps import Step, ask_all
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.foreign import read_foreign
from scratchbus.eventlog.gaps import read_gaps
from scratchbus.eventlog.lag import end_of, read_lags
from scratchbus.eventlog.raw_entries import texts_of
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.status.page_status import PageStatus, read_sizes, with_claims
from scratchbus.readmodel.status.subscription_status import SubscriptionStatus, read_subscriptions

MAX_PAGES = 20
"""The most pages in a status: those with the most open observations."""

MAX_GAPS = 20
"""The most gaps of a log in a status: the first ones."""

MAX_FOREIGN = 1_000
"""The most entries behind the end of a log that are counted."""


class Gap(BaseModel):
    """A gap in a log: the number of events missing before the event at this position."""

    before: str
    missing: int


class ShardStatus(BaseModel):
    """One log: its number of events, its end, and the lag of the projection.

    `lag_seconds` is the age of the first event that is not folded yet. `gaps` has the first gaps; `missing` counts the
    missing events of all. `floor` is the last event that is only in the archive, or None. `foreign` counts the entries
    that someone added by hand behind the end, up to 1,000; they block all writes (see `Bus.repair`).
    """

    shard: int
    events: int
    end: str
    checkpoint: str
    lag: int
    lag_seconds: float
    rejected: int
    missing: int = 0
    gaps: list[Gap] = []
    floor: str | None = None
    foreign: int = 0


class Status(BaseModel):
    """A whole bus. `directory` belongs to an embedded engine; `risks` says how the engine may lose events.

    A value that the engine does not reveal to this user is "unknown" or None; `memory_limit_bytes` is also None without
    a limit. `pages` has the busiest of `page_count` pages; `open` counts the open observations of all. `archive` is the
    archive that this process reads, or None.
    """

    bus: str
    url: str
    directory: str | None
    engine: str
    version: str
    memory_bytes: int | None
    memory_limit_bytes: int | None
    persistence: str
    risks: list[str]
    registry_version: int
    types: list[str]
    shards: list[ShardStatus]
    subscriptions: list[SubscriptionStatus]
    page_count: int
    open: int
    pages: list[PageStatus]
    archive: str | None = None


class _EngineStatus(NamedTuple):
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    persistence: str = UNKNOWN
    risks: Sequence[str] = ()


def read_status(core: Core, url: str, directory: str | None, about: dict[str, str]) -> Step[Status]:
    """Return the status of a bus."""
    shards: list[ShardStatus] = []
    sizes: dict[str, int] = {}
    for shard in range(core.log.shards):
        status, pages = yield from _read_shard(core, shard)
        shards.append(status)
        sizes |= yield from read_sizes(core, shard, pages)
    busiest = nsmallest(MAX_PAGES, sizes, key=lambda page: (-sizes[page], page))
    engine = yield from _read_engine(core, about)
    return Status(
        bus=core.log.bus,
        url=url,
        directory=directory,
        engine=about.get("engine", "fakeredis"),
        version=about.get("version", "-"),
        registry_version=core.registry_version.number,
        types=sorted(core.registry.types),
        shards=shards,
        subscriptions=(yield from read_subscriptions(core)),
        page_count=len(sizes),
        open=sum(sizes.values()),
        pages=(yield from with_claims(core, {page: sizes[page] for page in busiest})),
        archive=core.log.archive.where if core.log.archive else None,
        **engine._asdict(),
    )


def _read_shard(core: Core, shard: int) -> Step[tuple[ShardStatus, list[str]]]:
    """Return the status of a log, and the names of its pages."""
    keys = core.log.keys(shard)
    checkpoint = yield from read_checkpoint(keys)
    folded, common = checkpoint.position, keys.page("", checkpoint.build)
    foreign = len((yield from read_foreign(core.log, shard, MAX_FOREIGN)))
    reads = [("XLEN", keys.log), ("GET", keys.tail), ("XLEN", common.rejected), ("HKEYS", keys.pages)]
    length, tail, rejected, names, flat = yield from ask_all(shard, [*reads, ("HGETALL", common.gaps)])
    gaps = [Gap(before=str(position), missing=count) for position, count in read_gaps(flat, shard).items()]
    floor = (yield from read_floor(core.log, shard)).position
    lag = (yield from read_lags(core.log, [folded]))[folded]
    status = ShardStatus(
        shard=shard,
        events=length - foreign,
        end=str(end_of(tail, shard)),
        checkpoint=str(folded),
        lag=lag.events,
        lag_seconds=lag.seconds,
        rejected=rejected,
        missing=sum(gap.missing for gap in gaps),
        gaps=gaps[:MAX_GAPS],
        floor=floor.stream_id if floor.seq else None,
        foreign=foreign,
    )
    return status, texts_of(names)


def _read_engine(core: Core, about: Mapping[str, str]) -> Step[_EngineStatus]:
    """Return the memory the engine uses and may use, its persistence, and the resulting risks.

    For several servers this is the sum of memory and the worst persistence.
    """
    if not about:
        return _EngineStatus(0, persistence="none: this process only")
    if about["version"] == UNKNOWN:
        return _EngineStatus()
    servers: dict[str, dict[str, str]] = {}
    for shard in range(core.log.shards if core.log.is_spread else 1):
        info = yield from read_info(shard)
        servers[info.get("run_id", "")] = info
    limits = [int(info.get("maxmemory", 0)) for info in servers.values()]
    return _EngineStatus(
        sum(int(info["used_memory"]) for info in servers.values()),
        sum(limits) if all(limits) else None,
        max(map(_persistence, servers.values()), key=lambda each: not each.endswith(" ok")),
        list(dict.fromkeys(risk for info in servers.values() for risk in risks(info, core.log.replicas))),
    )


def _persistence(info: Mapping[str, str]) -> str:
    if info.get("aof_enabled") != "1":
        return "no append-only file"
    return f"append-only file, last write {info.get('aof_last_write_status', '?')}"
