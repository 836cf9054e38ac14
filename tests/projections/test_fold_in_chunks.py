"""Folding a chunk of events gives the same documents as folding them one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from scratchbus.eventlog.codec import decode_item
from scratchbus.eventlog.raw_entries import LAYOUT, RawEntry
from scratchbus.eventlog.stored_documents import encode_document
from scratchbus.projections.scratch_page import as_observation
from scratchbus.timetravel.fold_page import Documents, _apply_all, apply

BODIES = {
    "added": ('"content":"a"', '"content":"b","ttl":1000,"times":3,"evidence":["x"]', '"content":7',
              '"content":"c","tags":["t"],"priority":9,"ttl":1,"source":"s"', '"content":"d","ttl":9007199254740991',
              '"content":"e","owner":"o","status":"done","status_class":"closed","confidence":0.5,"context":{"k":[1]},'
              '"metadata":{"m":1},"dedupe_key":"d","remind_at":"2026-01-31T12:00:00Z","blocked_by":["one"],"every":"1d"',
              '"content":"f","times":9007199254740993,"expires_at":"2026-01-31T12:00:00Z"'),
    "updated": ('"changes":{"content":"c","owner":null}', '"changes":{"tags":["t"]}', '"changes":{"odd":1}',
                '"changes":{"confidence":0.8,"context":{"k":1},"expires_at":"2026-01-31T12:00:00Z"}'),
    "repeated": ('"ttl":5000', '"times":2,"evidence":["x","y"]', '"expires_at":"2026-01-31T12:00:00Z"', '"ttl":1.5',
                 '"ttl":9007199254740991'),
    "status_changed": ('"status":"resolved","status_class":"closed","reason_code":"resolved","archive_after":1000',
                       '"status":"active","status_class":"open","reason_code":"reopened","ttl":0', '"status":"x"'),
    "claimed": ('"holder":"h","ttl":1000', '"holder":"h","ttl":1000,"fence":1', '"holder":"h","ttl":8640000000000000',
                '"holder":"h","ttl":1000,"picked":true,"owner":"a1"'),
    "released": ('"backoff":100', '"untried":true'),
    "lapsed": ("",),
    "linked": ('"action":"a"', '"action":"b"'),
    "due": ("", '"next":"2026-01-31T12:00:00Z"'),
    "cleared": ("",),
    "erased": ('"reason":"r","positions":[],"version":1',),
    "context_rendered": ('"observations":{"a":1},"tokens":1',),
    "unheard_of": ("",),
}  # fmt: skip

events = st.sampled_from([(kind, body) for kind, some in BODIES.items() for body in some])


TOO_LATE = [("one", ("added", '"content":"a"')), ("one", ("claimed", '"holder":"h","ttl":8640000000000000'))]


@example(TOO_LATE, 2, 2)
@given(
    st.lists(st.tuples(st.sampled_from(("one", "two")), events), max_size=30),
    st.integers(1, 30),
    st.sampled_from((0, 2)),
)
def test_chunks_are_folded_like_single_events(log: list[tuple[str, tuple[str, str]]], size: int, shard: int) -> None:
    entries = [_entry(seq, *each) for seq, each in enumerate(log, 1)]
    singly: Documents = {}
    for entry in entries:
        apply(singly, decode_item(entry, shard))
    together: Documents = {}
    for at in range(0, len(entries), size):
        _apply_all(together, "main", entries[at : at + size], shard, None)
    assert _all(together) == _all(singly)
    assert [*map(encode_document, together.values())] == [*map(encode_document, singly.values())]


def _entry(seq: int, subject: str, event: tuple[str, str]) -> RawEntry:
    kind, body = event
    values = {"id": f"e{seq}", "subject": subject, "page": "main", "kind": kind, "type": "observation", "batch": "1/1"}
    values |= {"prev": "", "event": f'{{"v":2,"by":"tester"{"," if body else ""}{body}}}'}
    return [b"1700000000000-%d" % seq, [part for name in LAYOUT for part in (name, values[name.decode()].encode())]]


def _all(documents: Documents) -> dict[str, list[tuple[str, Any]]]:
    return {id: list(as_observation(each).__dict__.items()) for id, each in documents.items()}
