"""Events of older versions fold to the same state forever, and events of newer versions stop every reader."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from scratchbus import Bus
from scratchbus.domain.events import ENVELOPE, EVENTS, SCHEMA, Linked
from scratchbus.domain.upcasters import UPCASTERS, upcast
from scratchbus.errors import CodeTooOld
from scratchbus.eventlog.codec import Poison, decode_entry
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields
from scratchbus.readmodel.projector import run_projector
from scratchbus.scheduling.expiry import run_expirer, sweep
from tests import golden
from tests.engines import ONE
from tests.inspection import keys_of, project, raw_append, send

VERSIONS = range(1, SCHEMA + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_events_of_each_version_fold_to_their_golden_state(version: int):
    kept = [json.loads(line) for line in golden.state_file(version).read_text().splitlines()]
    assert golden.fold(version) == kept


def test_the_current_golden_file_has_every_field_of_every_kind():
    """After a release, a new field or kind needs a higher SCHEMA, and golden files of that version."""
    assert _in_json(golden.read(SCHEMA)) == _in_json(golden.current_entries())
    there = {
        (fields[b"kind"].decode(), name)
        for fields in map(entry_fields, golden.read(SCHEMA))
        for name in json.loads(fields[b"event"])
    }
    wanted = {(kind, name) for kind, cls in EVENTS.items() for name in {*cls.model_fields, "v"} - ENVELOPE}
    assert there == wanted


def _in_json(entries: Iterable[RawEntry]) -> list[tuple[bytes, dict[bytes, bytes], object]]:
    """Return entries with parsed bodies, since the order of an event's fields does not matter."""
    rows = [(id, dict(zip(flat[::2], flat[1::2], strict=True))) for id, flat in entries]
    return [(id, fields, json.loads(fields.pop(b"event"))) for id, fields in rows]


OLD = [b"5-7", [b"id", b"e", b"subject", b"A", b"page", b"main", b"kind", b"linked", b"type", b"t", b"batch", b"1/1",
                b"prev", b"", b"event", b'{"v":0,"who":"x","goal":"g"}']]  # fmt: skip


def test_an_older_body_is_upcast(monkeypatch):
    def rename(kind: str, body: dict[str, str]) -> dict[str, str]:
        assert kind == "linked"
        return {"by": body["who"], "action": body["goal"]}

    monkeypatch.setitem(UPCASTERS, 0, rename)
    event = decode_entry(OLD, 0)
    assert isinstance(event, Linked)
    assert (event.by, event.action, str(event.position)) == ("x", "g", "5-7")
    monkeypatch.setitem(UPCASTERS, -1, lambda _, body: body | {"a": 1})
    monkeypatch.setitem(UPCASTERS, 0, lambda _, body: body | {"b": body["a"] + 1})
    assert upcast("added", {}, -1) == {"a": 1, "b": 2}


def test_unknown_versions_and_failing_upcasters_are_poison(monkeypatch):
    with pytest.raises(Poison, match="version 0: schema version 0 was never written"):
        decode_entry(OLD, 0)
    monkeypatch.setitem(UPCASTERS, 0, lambda _, body: {"action": body["goal2"]})
    with pytest.raises(Poison, match="version 0: 'goal2'"):
        decode_entry(OLD, 0)


NEWER = '{"v":3,"by":"x","content":"y","mood":"new"}'


@pytest.fixture
def checkpoint(bus: Bus):
    """Append an event of a newer version after the checkpoint; check that the checkpoint does not move."""
    page = bus.page()
    page.add("observation", "known", ttl="1h", remind_at=datetime.now(UTC))
    project(bus)
    key = keys_of(bus).live
    before = send(bus, "GET", key)
    raw_append(bus, subject="01M7YS0X7YM47HSFZZZJC2DZ9D", kind="added", type="observation", event=NEWER)
    yield
    assert send(bus, "GET", key) == before


def subscribe(bus: Bus) -> None:
    with bus.subscribe("late") as deliveries:
        for delivery in deliveries:
            delivery.ack()


def view(bus: Bus) -> None:
    with bus.view() as view:
        view.active()


def follow(bus: Bus) -> None:
    list(bus.events())


READERS = {
    "a projector": lambda bus: run_projector(bus, threading.Event()),
    "a list": lambda bus: bus.page().list(),
    "a get": lambda bus: bus.page().get("01M7YS0X7YM47HSFZZZJC2DZ9D"),
    "a follower": follow,
    "a view": view,
    "a subscription": subscribe,
    "a sweep": lambda bus: bus.converse(sweep(bus.core)),
    "an expirer": lambda bus: run_expirer(bus, threading.Event()),
    "a rebuild": lambda bus: bus.rebuild(),
}


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
@pytest.mark.parametrize("reader", READERS)
def test_a_newer_event_stops_every_reader(bus: Bus, checkpoint: None, reader: str):
    for _ in range(2):  # it stays before the event
        with pytest.raises(CodeTooOld, match="upgrade scratchbus"):
            READERS[reader](bus)
