"""Scans of an engine: all keys, and all members of large ones, some at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from scratchbus.engine.steps import Call, Collect, Send, Step, ask
from scratchbus.errors import EngineError

_SCANS = 5  # of the same keys or fields, while each may have left some out
_RUN_ID = re.compile(rb"^run_id:(\w+)", re.MULTILINE)


def scan(
    shard: int, take: Callable[[list[Any]], object], verb: str, *key: str, match: str = "*", count: int
) -> Step[None]:
    """Pass everything that a SCAN, HSCAN or ZSCAN finds to `take`, about `count` at a time; some may come twice."""
    at: Any = b"0"
    while True:
        at, found = yield from ask(shard, verb, *key, at, "MATCH", match, "COUNT", count)
        take(found)
        if int(at) == 0:
            return


def find_keys(shard: int, match: str) -> Step[list[bytes]]:
    """Return all keys that match a pattern; some may be there twice.

    A cursor is valid for one process of the engine, so it scans again if another one answers at the end. That cannot
    be known if the engine refuses INFO.
    """
    found = list[bytes]()
    for _ in range(_SCANS):
        before = yield from run_id(shard)
        yield from scan(shard, found.extend, "SCAN", match=match, count=1_000)
        if (yield from run_id(shard)) == before:
            break
    return found


def run_id(shard: int) -> Step[bytes]:
    """Return the id of the process of the engine that has a shard: another one follows a restart or a failover.

    It is empty if the engine refuses INFO.
    """
    try:
        found = _RUN_ID.search((yield from ask(shard, "INFO", "server")))
    except EngineError:  # the engine in memory has no INFO
        return b""
    return found[1] if found else b""


def scan_hash(shard: int, take: Callable[[list[Any]], object], key: str, count: int) -> Step[None]:
    """Pass all fields of a hash, each followed by its value, to `take`, about `count` at a time; some may come twice.

    A cursor is valid for one process of the engine: after a restart or a failover in between, fields are left out. If
    it finds fewer than there were and are, it scans again, but not for ever: others may be removed all the time.
    """
    expected = yield from ask(shard, "HLEN", key)
    for _ in range(_SCANS):
        at, rows = yield from ask(shard, "HSCAN", key, 0, "COUNT", count)
        found = set[Any](rows[::2])
        while int(at):
            sent = yield Send(Call(shard, (("HSCAN", key, at, "COUNT", count),)))
            take(rows)  # while the engine works
            ((at, rows),) = yield Collect(sent)
            found.update(rows[::2])
        take(rows)
        if len(found) < expected:
            expected = yield from ask(shard, "HLEN", key)
        if len(found) >= expected:
            return
