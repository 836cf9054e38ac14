"""The index of a segment."""

from __future__ import annotations

from scratchbus.archive.segment import Index, SegmentBuilder
from scratchbus.eventlog.layouts import ENTRY


def entry(seq, page, subject):
    values = dict.fromkeys(ENTRY, "") | {"page": page, "subject": subject, "event": "{}"}
    return [b"1-%d" % seq, [part.encode() for pair in values.items() for part in pair]]


def index_of(*parts):
    builder = SegmentBuilder()
    for part in parts:
        builder.add(part)
    return builder.finish("bus", 0, "origin", None).event_index


def test_index_has_events_and_last_event_of_each_subject_by_page():
    first = [entry(1, "main", "x"), entry(2, "müde", "x"), entry(3, "müde", 'y"'), entry(4, "main", "z")]
    index = index_of(first, [entry(5, "main", "x"), entry(6, "müde", 'y"')])

    assert index.pages == {"main": [1, 4, 5], "müde": [2, 3, 6]}
    assert index.subjects == {"main": {"x": 5, "z": 4}, "müde": {"x": 2, 'y"': 6}}
    assert Index.parse(index.encode()) == index


def test_index_leaves_out_erased_events():
    index = index_of([entry(1, "main", "x"), [b"1-2", []], entry(3, "main", "y")])

    assert index == Index({"main": [1, 3]}, {"main": {"x": 1, "y": 3}})
