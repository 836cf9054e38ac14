"""Folding additions by column stores exactly what folding single events does."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from scratchbus.engine.scripts import Command
from scratchbus.eventlog.checkpoint import Checkpoint
from scratchbus.eventlog.codec import decode_bodies, decode_items
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.readmodel.additions import PageAdditions, split_additions
from scratchbus.readmodel.fold import Fold
from scratchbus.readmodel.state_commands import commands
from scratchbus.readmodel.verify.read_model import ReadModel

KEYS = ShardKeys("bus", 3)
ID = "01M820Q31TJ9HE6T5BTANR69X"

PLAIN: list[dict[str, Any]] = [
    {},
    {"ttl": 604_800_000, "tags": ["disk"], "priority": 90},
    {"tags": ["a", "b", "a#b"], "owner": "agent", "source": "other", "times": 10**30, "confidence": 0.25},
    {"confidence": 1, "context": {"n": 10**30, "deep": [{"x": None}]}, "metadata": {"é": "☃"}},
    {"expires_at": "2027-01-01T00:00:00.000001Z", "remind_at": "2026-12-31T23:59:59+02:00", "dedupe_key": "k"},
    {"remind_on": {"type": "risk_alert"}, "remind_at": "2026-12-31T23:59:59Z", "ttl": 1},
    {"evidence": ["01M820Q31TJ9HE6T5BTANR69XQ"], "cause": "0/1-1", "traceparent": "00-x"},
    {"status": "pending_review"},
    {"status": "resolved", "status_class": "closed", "ttl": 1000},
    {"status": "active", "status_class": "open", "confidence": 1.0, "priority": 50, "tags": [], "context": {}},
    {"ttl": -5},
]

POISON: list[dict[str, Any]] = [
    {"content": 5},
    {"by": None},
    {"links": ["goal"]},
    {"priority": 2**53},
    {"confidence": 1.5},
    {"ttl": 2**53 - 1},
    {"expires_at": "tomorrow"},
    {"tags": "disk"},
    {"context": []},
]


def entry(number: int, body: object, *, subject: str = "", kind: str = "added", page: str = "main") -> RawEntry:
    """Return the entry of this number, as the append script writes it."""
    text = '{"v":2,' + json.dumps({"by": "tester", "content": "seen"} | body)[1:] if isinstance(body, dict) else body
    fields = {
        "id": f"e{number}", "subject": subject or f"{ID}{number:X}", "page": page, "kind": kind, "type": "observation",
        "batch": "1/1", "prev": "", "event": text,
    }  # fmt: skip
    return [f"1795364195387-{number}".encode(), [str(part).encode() for field in fields.items() for part in field]]


def one_by_one(entries: list[RawEntry]) -> ReadModel:
    """Return what the fold of single events stores."""
    model = ReadModel(KEYS)
    model.build = 1
    model.apply(decode_items(entries, KEYS.shard), {})
    return model


def split(entries: list[RawEntry]) -> tuple[list[PageAdditions], list[RawEntry]]:
    """Return the additions to fold by column, by page, and all other entries."""
    additions, others, decoded = split_additions(entries, decode_bodies(entries, KEYS.shard), KEYS.shard)
    assert len(decoded.bodies) == len(others)
    return additions, [*others]


def by_column(entries: list[RawEntry]) -> ReadModel:
    """Return what a projector stores."""
    model, fold = ReadModel(KEYS), Fold(KEYS.shard)
    additions, others, decoded = split_additions(entries, decode_bodies(entries, KEYS.shard), KEYS.shard)
    for other, item in decode_items(others, KEYS.shard, decoded):
        fold.apply(other, item)
    for command in commands(KEYS, fold, Checkpoint(), additions):
        for each in _as_commands_of_engine(command):
            model._run(tuple(map(_text, each)) if each[0] in ("HSET", "ZADD") else each)
    return model


def _as_commands_of_engine(command: Command) -> list[Command]:
    """Return the commands that commands.lua runs for a command."""
    if command[0] != "ADDITIONS":
        return [command]
    docs, due, behind, count, first, *rest = map(_as_bytes, command[1:])
    size = int(count)
    documents, rest = rest[: 2 * size], rest[2 * size :]
    ids, commands = documents[::2], [("HSET", docs.decode(), *documents)]
    if due:
        moments, rest = rest[:size], rest[size:]
        members = [part for id, ms in zip(ids, moments, strict=True) if ms for part in (ms, id + behind)]
        commands.append(("ZADD", due.decode(), *members))
    seqs: list[Any] = [*range(int(first), int(first) + size)] if first else rest[:size]
    rest = rest if first else rest[size:]
    for key, packed in zip(rest[::2], rest[1::2], strict=True):
        numbers = struct.unpack(f">{len(packed) // 2}H", packed)
        commands.append(("ZADD", key.decode(), *(part for each in numbers for part in (seqs[each], ids[each]))))
    return commands


def _as_bytes(part: str | bytes) -> bytes:
    return part.encode() if isinstance(part, str) else part


def same(model: ReadModel, other: ReadModel) -> bool:
    """Return whether two read models have the same content."""
    return bool(_as_text(model) == _as_text(other))


def _as_text(model: ReadModel) -> Any:
    rows = {key: {_text(k): _text(v) for k, v in row.items()} for key, row in model.rows.items() if row}
    return rows, dict(model.positions), model.rejected


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize("body", PLAIN, ids=json.dumps)
def test_an_addition_is_stored_as_by_the_single_fold(body):
    entries = [entry(1, body)]
    additions, others = split(entries)
    assert [each.count for each in additions] == [1]
    assert not others
    assert same(by_column(entries), one_by_one(entries))


@pytest.mark.parametrize("body", POISON, ids=json.dumps)
def test_poison_is_left_to_the_single_fold(body):
    entries = [entry(1, body)]
    assert split(entries) == ([], entries)
    assert by_column(entries).rejected == {"1795364195387-1"}


@pytest.mark.parametrize(
    "other",
    [
        entry(1, '{"v":2,'),
        entry(1, "{}"),
        entry(1, {}, kind="updated"),
        entry(1, {}, subject="notepad"),
        [b"1-1", [b"id", b"e", b"event", b"{}"]],
        [b"1-1", []],
    ],
)
def test_other_entries_are_left_to_the_single_fold(other):
    entries = [other, entry(2, {})]
    additions, others = split(entries)
    assert others == [other]
    assert [each.count for each in additions] == [1]


def test_additions_with_later_events_are_left_to_the_single_fold():
    entries = [entry(1, {}), entry(2, {}, page="user:1"), entry(3, {"action": "goal"}, kind="linked", subject=ID + "1")]
    additions, others = split(entries)
    assert others == [entries[0], entries[2]]
    assert [each.name for each in additions] == ["user:1"]


@pytest.mark.parametrize("body", ['{"v":1,"by":"x","content":"old"}', '{"v":2,"content":"y","by":"x","times":3}'])
def test_old_and_handwritten_additions_are_folded_alike(body):
    by_hand = [b"1-7", [b"kind", b"added", b"subject", ID.encode() + b"7", b"page", b"main", b"event", body.encode()]]
    assert [each.count for each in split([entry(1, body), by_hand])[0]] == [2]
    assert same(by_column([entry(1, body), by_hand]), one_by_one([entry(1, body), by_hand]))


def test_a_handwritten_entry_counts_for_its_subject():
    by_hand = [b"1-2", [b"page", b"main", b"subject", ID.encode() + b"1", b"kind", b"linked", b"event", b"{}"]]
    assert split([entry(1, {}), by_hand]) == ([], [entry(1, {}), by_hand])


@pytest.mark.parametrize("field", [b"subject", b"page", b"type"])
def test_invalid_utf8_is_stored_alike(field):
    stream_id, flat = entry(1, {"ttl": 1})
    flat[flat.index(field) + 1] = b"\xffA"
    assert same(by_column([[stream_id, flat]]), one_by_one([[stream_id, flat]]))


def test_positions_of_a_page_stay_in_order_over_both_folds():
    entries = [
        entry(1, {}),
        entry(2, {}, subject="AA"),
        entry(3, {}, subject="AA"),
        entry(4, {"content": 5}),
        entry(5, {}),
    ]
    assert same(by_column(entries), one_by_one(entries))
    (held,) = by_column(entries).positions.values()
    assert [held[at + 15] for at in range(0, len(held), 16)] == [1, 2, 3, 4, 5]
