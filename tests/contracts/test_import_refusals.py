"""An import accepts only what the live bus would have accepted, and writes a whole file or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from scratchbus import Bus, ObservationPatch
from scratchbus.errors import InvalidExport
from tests.cases import case
from tests.contracts.test_export import export
from tests.contracts.test_verify import live
from tests.engines import ALL
from tests.inspection import send

pytestmark = pytest.mark.engines(*ALL)

Line = dict[str, object]

REFUSED: dict[str, tuple[int, Callable[[Line], object]]] = {
    "a time from 2**64 on": (3, lambda line: line.update(ms=2**64)),
    "a time from 2**53 on": (3, lambda line: line.update(ms=2**53)),
    "a time beyond the calendar": (3, lambda line: line.update(ms=10**14 * 9)),
    "a time below zero": (1, lambda line: line.update(ms=-1)),
    "a time as text": (3, lambda line: line.update(ms=str(line["ms"]))),
    "a sequence number far ahead": (3, lambda line: line.update(seq=10**12)),
    "a sequence number of 2**46": (3, lambda line: line.update(seq=2**46)),
    "true as sequence number": (1, lambda line: line.update(seq=True)),
    "0 as sequence number": (1, lambda line: line.update(seq=0)),
    "a shard below zero": (1, lambda line: line.update(shard=-1)),
    "a negative priority": (1, lambda line: _body(line).update(priority=-1)),
    "a priority above 100": (1, lambda line: _body(line).update(priority=101)),
    "no type": (1, lambda line: line.update(type="")),
    "a bar in the type": (1, lambda line: line.update(type="a|b")),
    "a bar in the status": (1, lambda line: _body(line).update(status="a|b")),
    "a reserved status": (1, lambda line: _body(line).update(status="cleared")),
    "an unknown status class": (1, lambda line: _body(line).update(status_class="ajar")),
    "a bar in the holder": (2, lambda line: _body(line).update(holder="a|b")),
    "an owner token in the holder": (2, lambda line: _body(line).update(holder="worker#0123456789abcdef")),
    "an endless claim": (2, lambda line: _body(line).update(ttl=10**300)),
    "an unknown fence": (2, lambda line: _body(line).update(fence=7)),
    "huge times": (1, lambda line: _body(line).update(times=6 * 10**4299)),
    "times with a huge sum": (3, lambda line: _body(line).update(times=10**15)),
    "a negative ttl": (1, lambda line: _body(line).update(ttl=-5)),
    "no content": (1, lambda line: _body(line).update(content=" ")),
    "too much content": (1, lambda line: _body(line).update(content="x" * 70_000)),
    "a bad recurrence": (1, lambda line: _body(line).update(every="now and then")),
    "a bad confidence": (1, lambda line: _body(line).update(confidence=7)),
    "a bad tag": (1, lambda line: _body(line).update(tags=["\x1b[31m"])),
    "a bad owner": (1, lambda line: _body(line).update(owner="")),
    "a bad key": (1, lambda line: _body(line).update(dedupe_key="k" * 600)),
    "the key of an open observation": (4, lambda line: _body(line).update(dedupe_key="k")),
    "evidence that is not an id": (1, lambda line: _body(line).update(evidence=["yours"])),
    "a bad author": (1, lambda line: _body(line).update(by="a b")),
    "a bad cause": (1, lambda line: _body(line).update(cause="because")),
    "a bad trace": (1, lambda line: _body(line).update(traceparent="00")),
    "a bad event id": (1, lambda line: line.update(id="a b")),
    "a bad subject": (1, lambda line: line.update(subject="mine")),
    "a bad page": (1, lambda line: line.update(page="no page")),
    "a bad batch": (1, lambda line: line.update(batch="1/x")),
    "a huge batch": (1, lambda line: line.update(batch=f"1/{10**9}")),
    "an unknown kind": (1, lambda line: line.update(kind="sold")),
    "an unknown field": (1, lambda line: _body(line).update(colour="red")),
    "an observation added twice": (3, lambda line: line.update(kind="added", event=_body(line) | {"content": "again"})),
}


def _body(line: Line) -> dict[str, object]:
    body = line["event"]
    assert isinstance(body, dict)
    return body


@pytest.fixture
def copy(connect: Callable[..., Bus], bus_name: str) -> Bus:
    return connect(bus=f"{bus_name}-copy")


def assert_untouched(bus: Bus) -> None:
    """Assert that the bus has no keys except `:meta`, which opening it writes."""
    left = [key.decode() for key in send(bus, "KEYS", f"{{{bus.core.log.bus}:*")]
    assert [key for key in left if not key.endswith(":meta")] == []


def test_import_refuses_lines_the_live_bus_would_refuse(bus: Bus, copy: Bus) -> None:
    page = bus.page()
    first = page.add("risk_alert", "first", owner="me", tags=["t"], dedupe_key="k", times=10**9)
    page.claim(first.id, by="worker", ttl="1h")
    page.add("risk_alert", "again", dedupe_key="k", times=2)
    page.add("observation", "last")
    exported = export(bus)
    for what, (number, change) in REFUSED.items():
        line = json.loads(exported[number - 1])
        change(line)
        lines = [*exported[: number - 1], json.dumps(line), *exported[number:]]
        with case(what):
            with pytest.raises(InvalidExport, match=rf"^line {number}: ") as caught:
                copy.import_events(lines)
            assert len(str(caught.value)) < 600
            assert "\n" not in str(caught.value)
            assert_untouched(copy)


@pytest.mark.parametrize("change", [{"content": "y"}, {"status": "pending_review"}], ids=str)
@pytest.mark.parametrize("ms", [253_402_300_800_000, 2**53, 2**63])
def test_event_time_beyond_the_calendar_is_refused(bus: Bus, copy: Bus, change: ObservationPatch, ms: int) -> None:
    page = bus.page()
    page.update(page.add("observation", "x").id, **change)
    first, last = export(bus)
    with pytest.raises(InvalidExport, match=r"^line 2: ms"):
        copy.import_events([first, json.dumps(json.loads(last) | {"ms": ms})])
    assert_untouched(copy)


@pytest.mark.parametrize(("line", "shown"), [("null", "None"), ("5", "5"), ("[]", "[]")])
def test_line_that_is_no_json_object_is_refused(copy: Bus, line: str, shown: str) -> None:
    with pytest.raises(InvalidExport, match=f"^line 1: {re.escape(shown)} is not a JSON object; import the complete"):
        copy.import_events([line])
    assert_untouched(copy)


def test_update_that_adds_a_recurrence_is_refused(bus: Bus, copy: Bus) -> None:
    page = bus.page()
    page.update(page.add("observation", "x").id, content="y")
    first, last = export(bus)
    line = json.loads(last)
    _body(line)["changes"] = {"every": "1h"}
    with pytest.raises(InvalidExport, match=r"^line 2: .*makes an observation recur that did not"):
        copy.import_events([first, json.dumps(line)])
    assert_untouched(copy)


def test_bad_last_line_writes_nothing(bus: Bus, copy: Bus) -> None:
    live(bus)
    lines = export(bus)
    with pytest.raises(InvalidExport, match=rf"^line {len(lines) + 1}: "):
        copy.import_events([*lines, "{"])
    assert_untouched(copy)


def test_unreadable_file_writes_nothing(bus: Bus, copy: Bus) -> None:
    live(bus)

    def cut():
        yield from export(bus)[:-1]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        copy.import_events(cut())
    assert_untouched(copy)


def test_unexplained_gap_is_refused(bus: Bus, copy: Bus) -> None:
    for number in range(5):
        bus.page().add("observation", f"{number}")
    lines = [line for line in export(bus) if json.loads(line)["seq"] != 3]
    assert len(lines) == 4
    with pytest.raises(InvalidExport, match=r"^line \d: .*missing"):
        copy.import_events(lines)
    assert_untouched(copy)


def test_large_notepad_deletion_can_be_imported(connect: Callable[..., Bus], bus_name: str) -> None:
    notepad = connect(max_notepad=1_000_000).notepad("s1")
    notepad.write("x" * 600_000 + "y")
    notepad.update("delete", content="x" * 600_000)
    copy = connect(bus=f"{bus_name}-copy")
    copy.import_events(export(connect()))
    assert copy.notepad("s1").read() == "y"


def test_edit_of_a_text_that_does_not_exist_is_refused(bus: Bus, copy: Bus) -> None:
    texts = bus.texts("project")
    texts.create("a", "one")
    texts.replace("a", "one", "two")
    created, edited = map(json.loads, export(bus))
    other = edited | {"subject": f"text_{'0' * 20}", "prev": ""}
    with pytest.raises(InvalidExport, match=r"^line 2: .*text_edited of a text that does not exist"):
        copy.import_events(map(json.dumps, [created, other]))
    assert_untouched(copy)
