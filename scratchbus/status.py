"""What is going on: the engine, the logs, the projections, the pages."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from scratchbus.core import Core
from scratchbus.domain.position import START, Position
from scratchbus.log.commit import Checkpoint
from scratchbus.log.connect import UNKNOWN, read_info, risks
from scratchbus.log.steps import Step, ask, ask_all
from scratchbus.projections import scratch_page


class ShardStatus(BaseModel):
    """One log: how many events it holds, where it ends, and how far behind the projection is."""

    shard: int
    events: int
    end: str
    checkpoint: str
    lag: int
    lag_seconds: float
    rejected: int


class PageStatus(BaseModel):
    """One page, and how many observations are open on it."""

    page: str
    open: int


class Status(BaseModel):
    """A bus as a whole. `directory` is that of an embedded engine; `risks` are how the engine may lose events.

    What the engine does not tell this user is "unknown", or None.
    """

    bus: str
    url: str
    directory: str | None
    engine: str
    version: str
    memory_bytes: int | None
    persistence: str
    risks: list[str]
    registry_version: int
    types: list[str]
    shards: list[ShardStatus]
    pages: list[PageStatus]


def read_status(core: Core, url: str, directory: str | None, about: dict[str, str]) -> Step[Status]:
    """Return the status of a bus."""
    shards, pages = [], []
    for shard in range(core.log.shards):
        keys = core.log.keys(shard)
        length, tail, row, rejected, names = yield from ask_all(
            shard,
            [
                ("XLEN", keys.log),
                ("GET", keys.tail),
                ("GET", keys.checkpoint(scratch_page.NAME)),
                ("XLEN", keys.rejected(scratch_page.NAME)),
                ("HKEYS", keys.pages),
            ],
        )
        end = Position.parse(tail.partition(b"|")[0].decode())._replace(shard=shard) if tail else START
        done = Checkpoint.parse(row, shard).position
        lag = end.seq - done.seq
        shards.append(
            ShardStatus(
                shard=shard, events=length, end=str(end), checkpoint=str(done), lag=lag,
                lag_seconds=(yield from _lag_seconds(core, shard, done)) if lag else 0.0, rejected=rejected,
            )
        )  # fmt: skip
        for page in sorted(name.decode() for name in names):
            size = yield from ask(shard, "ZCARD", keys.open(page))
            pages.append(PageStatus(page=page, open=size))
    memory, persistence, info = yield from _about_engine(about)
    return Status(
        bus=core.log.bus, url=url, directory=directory, engine=about.get("engine", "fakeredis"),
        version=about.get("version", "-"), memory_bytes=memory, persistence=persistence,
        risks=risks(info),
        registry_version=core.registry_version, types=sorted(core.registry.types), shards=shards, pages=pages,
    )  # fmt: skip


def _lag_seconds(core: Core, shard: int, done: Position) -> Step[float]:
    """Return how old the first event is that is not folded yet, by the engine's clock."""
    keys = core.log.keys(shard)
    first, time = yield from ask_all(shard, [("XRANGE", keys.log, f"({done.stream_id}", "+", "COUNT", 1), ("TIME",)])
    if not first:
        return 0.0
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    return max(0, now - int(first[0][0].partition(b"-")[0])) / 1000


def _about_engine(about: Mapping[str, str]) -> Step[tuple[int | None, str, dict[str, str]]]:
    """Return how much memory the engine uses, how it keeps its data, and the INFO that says so."""
    if not about:
        return 0, "none: this process only", {}
    if about["version"] == UNKNOWN:
        return None, UNKNOWN, {}
    info = yield from read_info("memory", "persistence")
    is_on = info.get("aof_enabled") == "1"
    persistence = f"append-only file, last write {info.get('aof_last_write_status', '?')}"
    return int(info["used_memory"]), persistence if is_on else "no append-only file", info
