"""Entries of the log are decoded together; what is wrong with one is found at that one."""

from __future__ import annotations

import gc

import pytest

from scratchbus.errors import CodeTooOld
from scratchbus.eventlog import tail
from scratchbus.eventlog.codec import LAYOUT, Poison, RawEntry, decode_bodies, decode_entry, decode_items
from scratchbus.eventlog.tail import LogEntry

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


def test_an_event_is_made_when_it_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tail, "decode_items", lambda *_: pytest.fail("nobody has looked"))
    good, damaged = items_of(GOOD, DAMAGED)
    assert (good.problem, good.is_event, damaged.is_event) == (None, True, False)
    assert damaged.problem is not None


def test_an_event_is_made_once():
    good, _ = items_of(GOOD, GOOD)
    assert good.event is good.event


def test_entries_of_different_layouts_are_decoded_together():
    usual, turned = entry(1), entry(2)
    turned[1][:4] = [*turned[1][2:4], *turned[1][:2]]
    more, less = [b"1-3", [*entry(3)[1], b"note", b"by hand"]], [b"1-4", entry(4)[1][2:]]
    found = [item for _, item in decode_items([usual, turned, more, less], 0)]
    assert [(item.id, item.subject, item.kind, item.seq) for item in found] == [
        ("e1", "s", "cleared", 1), ("e2", "s", "cleared", 2), ("e3", "s", "cleared", 3), ("", "s", "cleared", 4),
    ]  # fmt: skip


def test_names_that_fit_only_by_chance_are_not_taken_for_the_usual_ones():
    long, short = [b"1-1", [*entry(1)[1], *entry(1)[1][:2]]], [b"1-2", entry(2)[1][2:]]
    assert [each.by for each in decode_bodies([short, long], 0).bodies] == ["tester", "tester"]
    assert [item.id for _, item in decode_items([short, long], 0)] == ["", "e1"]


def test_what_is_not_utf8_is_replaced_in_its_entry_alone():
    first, second = (item for _, item in decode_items([entry(1, id=b"\xff"), entry(2, id="ü".encode())], 0))
    assert (first.id, second.id) == ("\ufffd", "ü")


def test_the_collector_is_left_as_it_was():
    gc.disable()
    try:
        decode_items([entry(1)], 0)
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(CodeTooOld):
        decode_items([entry(1, NEWER)], 0)
    assert gc.isenabled()
