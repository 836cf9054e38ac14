"""Log entries are decoded in batches; a fault affects only its own entry."""

from __future__ import annotations

import gc

import pytest

from scratchbus.errors import CodeTooOld
from scratchbus.eventlog import codec, log_entry
from scratchbus.eventlog.codec import Poison, decode_bodies, decode_entry, decode_items
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.raw_entries import LAYOUT, RawEntry

GOOD, DAMAGED, NEWER = b'{"v":2,"by":"tester"}', b'{"v":2,"by":7}', b'{"v":9,"by":"tester"}'


def entry(seq: int, body: bytes = GOOD, **fields: bytes) -> RawEntry:
    values = {"id": b"e%d" % seq, "subject": b"s", "page": b"main", "kind": b"cleared", "type": b"observation"}
    values |= {"batch": b"1/1", "prev": b"", "event": body} | fields
    return [b"1700000000000-%d" % seq, [part for name in LAYOUT for part in (name, values[name.decode()])]]


def items_of(*bodies: bytes) -> list[LogEntry]:
    items = [LogEntry(entry(seq, body), 3) for seq, body in enumerate(bodies, 1)]
    LogEntry.decode(items)
    return items


def test_each_entry_of_a_batch_has_its_own_outcome():
    first, damaged, newer, last = items_of(GOOD, DAMAGED, NEWER, GOOD)
    assert first.event == decode_entry(first.entry, 3)
    assert isinstance(damaged.event, Poison)
    assert (damaged.event.reason, str(damaged.event.position)) == (
        "by: Input should be a valid string", "3/1700000000000-2",
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(CodeTooOld, match="has schema version 9"):
            newer.event  # noqa: B018 - it raises
    assert last.event == decode_entry(last.entry, 3)


@pytest.mark.parametrize(
    "halves",
    [
        (b'{"v":2,"by":"a","reason":"x', b'{"v":2,y","backoff":1}'),
        (b'{"v":2,"by":"a"', b'{"v":2,"reason":"y"}'),
        (b'{"v":2,"by":"a"}]', b'{"v":2,"by":"b"}'),
        (b'{"v":2,"by":"a"},', b'{"v":2,"by":"b"}'),
        (b'{"v":2,"by":"a"},{"v":2,"by":"b"}', b""),
    ],
)
def test_damaged_bodies_do_not_complete_each_other(halves: tuple[bytes, bytes]):
    for kinds in ((b"released", b"released", b"released"), (b"released", b"released", b"cleared")):
        bodies = zip((*halves, GOOD), kinds, strict=True)
        entries = [entry(seq, body, kind=kind) for seq, (body, kind) in enumerate(bodies, 1)]
        alone = [decode_bodies([each], 0).bodies[0] for each in entries]
        assert [type(each) for each in decode_bodies(entries, 0).bodies] == [type(each) for each in alone]
        assert isinstance(alone[0], Poison)


def test_bodies_of_several_kinds_are_decoded_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(codec, "_decode_body", lambda *_: pytest.fail("decoded one by one"))
    kinds = (b"released", b"cleared", b"linked", b"released")
    bodies = (b'{"v":2,"by":"a","backoff":7}', GOOD, b'{"v":2,"by":"c","action":"call"}', GOOD)
    entries = [entry(seq, body, kind=kind) for seq, (kind, body) in enumerate(zip(kinds, bodies, strict=True), 1)]
    events = [item for _, item in decode_items(entries, 0)]
    assert [(each.kind.encode(), each.by) for each in events] == [
        *zip(kinds, ("a", "tester", "c", "tester"), strict=True)
    ]
    assert (events[0].backoff, events[2].action, events[3].backoff) == (7, "call", 0)


def test_an_event_is_built_on_first_access(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_entry, "decode_items", lambda *_: pytest.fail("built without access"))
    good, damaged = items_of(GOOD, DAMAGED)
    assert (good.problem, good.is_event, damaged.is_event) == (None, True, False)
    assert damaged.problem is not None


def test_an_event_is_built_once():
    good, _ = items_of(GOOD, GOOD)
    assert good.event is good.event


def test_entries_of_different_layouts_are_decoded_together():
    usual, reordered = entry(1), entry(2)
    reordered[1][:4] = [*reordered[1][2:4], *reordered[1][:2]]
    more, less = [b"1-3", [*entry(3)[1], b"note", b"by hand"]], [b"1-4", entry(4)[1][2:]]
    found = [item for _, item in decode_items([usual, reordered, more, less], 0)]
    assert [(item.id, item.subject, item.kind, item.seq) for item in found] == [
        ("e1", "s", "cleared", 1), ("e2", "s", "cleared", 2), ("e3", "s", "cleared", 3), ("", "s", "cleared", 4),
    ]  # fmt: skip


@pytest.mark.parametrize("place", range(4))
def test_an_entry_decodes_the_same_alone_and_in_a_batch(place: int):
    reordered, more, less = entry(2), [b"1-3", [*entry(3)[1], b"note", b"by hand"]], [b"1-4", entry(4)[1][2:]]
    reordered[1][:4] = [*reordered[1][2:4], *reordered[1][:2]]
    all_items = decode_items(entries := [entry(1), reordered, more, less], 0)
    assert decode_items([entries[place]], 0) == [all_items[place]]


def test_shifted_field_names_do_not_match_the_layout():
    long, short = [b"1-1", [*entry(1)[1], *entry(1)[1][:2]]], [b"1-2", entry(2)[1][2:]]
    assert [each.by for each in decode_bodies([short, long], 0).bodies] == ["tester", "tester"]
    assert [item.id for _, item in decode_items([short, long], 0)] == ["", "e1"]


def test_invalid_utf8_is_replaced_only_in_its_entry():
    first, second = (item for _, item in decode_items([entry(1, id=b"\xff"), entry(2, id="ü".encode())], 0))
    assert (first.id, second.id) == ("\ufffd", "ü")


def test_decoding_restores_the_garbage_collector():
    gc.disable()
    try:
        decode_items([entry(1)], 0)
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(CodeTooOld):
        decode_items([entry(1, NEWER)], 0)
    assert gc.isenabled()
