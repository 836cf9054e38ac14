"""Archiving: how fast events move from the log to segments, and out of the log."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis

from scratchbus import Bus
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.blocks import LEVEL
from scratchbus.eventlog.compression import zstd
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import ROOM, Sizes, Stage, catch_up, fill

_AT_ONCE = 1_000
_RUNS = 3  # backlogs in one run of the archiver


def measure_archive(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare a run of the archiver, trimming included, with bare `XRANGE` and zstd of as many equal events."""
    count = _RUNS * sizes.backlog
    rounds = max(2, sizes.rounds // 2)  # few and long, because each round fills its bus again
    same = stage.bus("same")
    fill(same.page(), count)
    key = same.core.log.keys(0).log
    terms: dict[str, Any] = {"retain": "1ms", "retain_events": 1}
    with (
        TemporaryDirectory(prefix="scratchbus-archive-") as name,
        Bus.connect(
            stage.url, source="bench", bus="archived", max_observations=ROOM, archive_url=f"{name}/archive", **terms
        ) as bus,
    ):

        def add() -> None:
            fill(bus.page(), count)
            catch_up(bus)

        taken = interleave(
            rounds,
            Side("archive run", count, lambda: archive_bus(bus), add),
            Side("XRANGE, zstd -3", count, lambda: _dump(stage.bare, key, Path(name) / "dump.zst")),
        )
    ours, bare = taken
    return [rates(taken, ours, bare, floor=Floor("ratio", "at least", 0.9), note="with hashes, index and trimming")]


def _dump(bare: redis.Redis, key: str, file: Path) -> None:
    """Read a log, and write all its entries to one compressed file on disk."""
    after = "-"
    with file.open("wb") as disk:
        with zstd.open(disk, "wb", level=LEVEL) as out:
            while True:
                entries: Any = bare.xrange(key, after, "+", count=_AT_ONCE)
                if not entries:
                    break
                out.write(b"".join([id + b" " + b" ".join(fields.values()) + b"\n" for id, fields in entries]))
                after = f"({entries[-1][0].decode()}"
        os.fsync(disk.fileno())
