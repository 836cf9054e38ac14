"""Memory: the bytes that the engine uses for an observation, by key."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tests.benchmarks.rows import Floor, Row
from tests.benchmarks.stage import CONTENT, Sizes, Stage, add_each, catch_up, given

STREAM = "bare"
PAGE = "main"
PATIENCE = 10.0  # seconds for the engine to free its buffers
CALM = 5  # equal readings in a row


def measure_memory(stage: Stage, sizes: Sizes) -> list[Row]:
    """Measure the engine's memory for a folded observation; the row has the worst of several sizes."""
    with_scripts = stage.bus("warm-up")
    with_scripts.page(PAGE).add(**given(0))
    catch_up(with_scripts)
    with_scripts.close()
    before = _settled_memory(stage)
    each: dict[int, float] = {}
    done = 0
    for size in sizes.memory:
        bus = stage.bus("memory")
        page = bus.page(PAGE)
        add_each(page, map(given, range(done, size)))
        done = size
        catch_up(bus)
        bus.close()  # frees the buffers of its connections
        each[size] = (_settled_memory(stage) - before) / size
    keys = _memory_by_key(stage, bus.core.log.keys(0).tag)
    rows = [
        Row(
            "engine memory per observation", "the bytes of its content", "bytes", max(each.values()), CONTENT,
            floor=Floor("ours", "at most", 1_300),
            note="the worst of " + ", ".join(f"{bytes:,.0f} B at {size:,}" for size, bytes in each.items()),
        )
    ]  # fmt: skip
    bare = _bare_stream(stage, bus.core.log.keys(0).log) / done
    for name, total in keys.most_common():
        if name == "log":
            rows.append(Row("… of it: log", "a bare stream of the same entries", "bytes", total / done, bare))
        elif total / done >= 1:
            rows.append(Row(f"… of it: {name}", "", "bytes", total / done))
    rest = each[done] - sum(keys.values()) / done
    rows.append(Row("… of it: in no key", "", "bytes", rest))
    return rows


def _settled_memory(stage: Stage) -> int:
    """Return the engine's used memory once it has stopped changing, or after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    before, agreed = 0, 0
    while True:
        info: Any = stage.bare.info()
        used = int(info["used_memory"])
        calm = abs(used - before) < 4096 and not info["aof_rewrite_in_progress"]
        agreed, before = (agreed + 1 if calm else 0), used
        if agreed == CALM or time.monotonic() > deadline:
            return used
        time.sleep(0.1)


def _memory_by_key(stage: Stage, tag: str) -> Counter[str]:
    """Return the bytes of all keys of a shard, by the purpose of the key."""
    total: Counter[str] = Counter()
    for key in stage.bare.scan_iter(f"{tag}*", count=1_000):
        name = key.decode().removeprefix(tag).partition(f":{PAGE}")[0]
        used: Any = stage.bare.memory_usage(key, samples=0)
        total[name] += used or 0
    return total


def _bare_stream(stage: Stage, log: str) -> int:
    """Write the entries of a log to a stream with a bare client; return the bytes of the stream."""
    for _, fields in stage.log_entries(log):
        stage.bare.xadd(STREAM, fields)
    used: Any = stage.bare.memory_usage(STREAM, samples=0)
    return int(used)
