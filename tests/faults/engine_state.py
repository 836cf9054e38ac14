"""All data of a bus in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog.below_floor import archived_after, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, read_unchecked
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.positions import read_positions
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.stored_documents import read_document


@dataclass
class PageState:
    """The data of one page in the engine, except for the log."""

    heads: dict[str, Head]
    open: dict[str, float]
    dedupe: dict[str, str]
    docs: dict[str, Observation]
    types: set[str]
    positions: list[Position]
    indexes: dict[tuple[str, str], dict[str, float]]


@dataclass
class ShardState:
    """The data of one shard in the engine."""

    shard: int
    entries: list[Any]
    floor: Position
    tail: str
    origin: str
    checkpoint: Checkpoint
    due: dict[str, float]
    names: set[str]
    rejected: list[str]
    pages: dict[str, PageState]


def read_shard(log: Log, shard: int) -> Step[ShardState]:
    """Read all data of one shard, including its archived events."""
    keys = log.keys(shard)
    floor, at, archived = (yield from read_floor(log, shard)), START._replace(shard=shard), list[Any]()
    while at < floor.position:
        chunk = yield from archived_after(log, floor, at, 10_000)
        archived, at = archived + chunk.entries, chunk.at
    entries = archived + (yield from ask(shard, "XRANGE", keys.log, f"({floor.position.stream_id}", "+"))
    names = {name.decode() for name in (yield from ask(shard, "HKEYS", keys.pages))}
    checkpoint = yield from read_unchecked(keys)
    common = PageKeys(keys, "", checkpoint.build)
    rejected = yield from ask(shard, "XRANGE", common.rejected, "-", "+")
    pages = {}
    for name in sorted(names | {entry_fields(entry)[b"page"].decode() for entry in entries}):
        pages[name] = yield from _read_page(keys, name, checkpoint.build)
    return ShardState(
        shard,
        entries,
        floor.position,
        _text((yield from ask(shard, "GET", keys.tail))),
        _text((yield from ask(shard, "GET", keys.origin))),
        checkpoint,
        _scores((yield from ask(shard, "ZRANGE", common.due, 0, -1, "WITHSCORES"))),
        names,
        [entry[0].decode() for entry in rejected],
        pages,
    )


def _read_page(keys: ShardKeys, page: str, build: int) -> Step[PageState]:
    shard, names = keys.shard, PageKeys(keys, page, build)
    indexes = {}
    for kind in ("type", "tag", "owner", "waiting"):
        prefix = names.index(kind, "")
        for key in (yield from ask(shard, "KEYS", f"{prefix}*")):
            rows = yield from ask(shard, "ZRANGE", key, 0, -1, "WITHSCORES")
            indexes[kind, key.decode().removeprefix(prefix)] = _scores(rows)
    heads = yield from ask(shard, "HGETALL", keys.heads(page))
    docs = yield from ask(shard, "HGETALL", names.docs)
    positions = yield from read_positions(shard, names.positions, START, 1_000_000)
    return PageState(
        {id.decode(): Head.parse(row) for id, row in zip(heads[::2], heads[1::2], strict=True)},
        _scores((yield from ask(shard, "ZRANGE", keys.open(page), 0, -1, "WITHSCORES"))),
        _mapping((yield from ask(shard, "HGETALL", keys.dedupe(page)))),
        {
            id.decode(): cast(Observation, read_document(id.decode(), row))
            for id, row in zip(docs[::2], docs[1::2], strict=True)
        },
        {row.decode() for row in (yield from ask(shard, "HKEYS", names.types))},
        positions,
        indexes,
    )


def _text(row: bytes | None) -> str:
    return row.decode() if row else ""


def _mapping(flat: list[bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _scores(flat: list[bytes]) -> dict[str, float]:
    return {member.decode(): float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}
