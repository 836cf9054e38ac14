"""The checker finds planted faults, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scratchbus import Bus, NewObservation, Observation
from scratchbus.engine.steps import ask
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.readmodel.catch_up import fold_once
from tests.faults.checker import Acknowledged, check

PAGE = "main"


class Scene:
    """A small bus with events of many kinds, all folded, and methods to tamper with it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.keys = ShardKeys(bus.core.log.bus, 0)
        self.docs = PageKeys(self.keys, PAGE).docs
        page = bus.page(PAGE)
        self.open = page.add("risk_alert", "open", tags=["a"], dedupe_key="k", ttl="1h", event_id="first")
        page.add_many([NewObservation(type="reminder", content=word) for word in ("one", "two", "three")])
        self.done = page.resolve(page.add("observation", "done").id, reason="mark-1")
        gone = page.resolve(page.add("observation", "gone").id)
        page.clear_resolved([gone.id])
        page.claim(self.open.id, by="somebody")
        page.link(self.open.id, "goal-1")
        bus.converse(fold_once(bus.core.log, 0))

    def send(self, *command: object) -> None:
        self.bus.converse(ask(0, *command))

    def last_entry(self) -> tuple[str, dict[str, str]]:
        ((id, flat),) = self.bus.converse(ask(0, "XREVRANGE", self.keys.log, "+", "-", "COUNT", 1))
        return id.decode(), {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}

    def append(self, position: str, **changes: str) -> None:
        """Add a copy of the last entry with changed fields to the log."""
        _, fields = self.last_entry()
        self.send("XADD", self.keys.log, position, *(word for pair in (fields | changes).items() for word in pair))

    def edit_head(self, of: Observation, old: str, new: str) -> None:
        row = self.bus.converse(ask(0, "HGET", self.keys.heads(PAGE), of.id)).decode()
        assert old in row
        self.send("HSET", self.keys.heads(PAGE), of.id, row.replace(old, new, 1))


@pytest.fixture
def scene(bus_name: str) -> Iterator[Scene]:
    with Bus.connect(f"memory://{bus_name}", source="tester") as bus:
        yield Scene(bus)


def kinds(scene: Scene, acknowledged: Acknowledged | None = None) -> set[str]:
    return {finding.kind for finding in check(scene.bus, acknowledged)}


def test_a_sound_bus_has_no_findings(scene: Scene) -> None:
    assert check(scene.bus, Acknowledged(["first"], ["mark-1", "goal-1"])) == []


def test_unfolded_events_are_no_finding(scene: Scene) -> None:
    scene.bus.page(PAGE).add("observation", "not folded yet")
    assert check(scene.bus) == []


def drop_an_event(scene: Scene) -> None:
    entries = scene.bus.converse(ask(0, "XRANGE", scene.keys.log, "-", "+"))
    scene.send("XDEL", scene.keys.log, entries[2][0])


def repeat_the_last_event(scene: Scene) -> None:
    ms, _, seq = scene.last_entry()[0].partition("-")
    scene.append(f"{ms}-{int(seq) + 1}")


def turn_back_seq(scene: Scene) -> None:
    ms, _, seq = scene.last_entry()[0].partition("-")
    scene.append(f"{int(ms) + 1}-{int(seq) - 1}", id="another")


def leave_a_batch_open(scene: Scene) -> None:
    ms, _, seq = scene.last_entry()[0].partition("-")
    scene.append(f"{ms}-{int(seq) + 1}", id="another", batch="1/2")


PLANTED: dict[str, tuple[Callable[[Scene], None], str]] = {
    "missing event": (drop_an_event, "gap"),
    "duplicated event": (repeat_the_last_event, "duplicated"),
    "seq goes back": (turn_back_seq, "non-monotonic"),
    "torn batch": (leave_a_batch_open, "torn batch"),
    "wrong previous event": (repeat_the_last_event, "broken chain"),
    "wrong tail": (lambda s: s.send("SET", s.keys.tail, "1-1|x"), "tail"),
    "missing origin": (lambda s: s.send("DEL", s.keys.origin), "tail"),
    "missing document": (lambda s: s.send("HDEL", s.docs, s.open.id), "state != fold"),
    "document without events": (
        lambda s: s.send("HSET", s.docs, "GHOST", s.bus.converse(ask(0, "HGET", s.docs, s.open.id))),
        "state != fold",
    ),
    "document of another observation": (
        lambda s: s.send("HSET", s.docs, s.open.id, s.bus.converse(ask(0, "HGET", s.docs, s.done.id))),
        "state != fold",
    ),
    "missing index entry": (
        lambda s: s.send("ZREM", PageKeys(s.keys, PAGE).index("tag", "a"), s.open.id),
        "index drift",
    ),
    "extra position in the history index": (
        lambda s: s.send("APPEND", PageKeys(s.keys, PAGE).positions, bytes(16)),
        "index drift",
    ),
    "unlisted page": (lambda s: s.send("HDEL", s.keys.pages, PAGE), "index drift"),
    "rejected sound event": (
        lambda s: s.send("XADD", PageKeys(s.keys, "").rejected, s.last_entry()[0], "reason", "none"),
        "rejected",
    ),
    "wrong version in a head": (lambda s: s.edit_head(s.open, "3|", "4|"), "heads != fold"),
    "wrong status in a head": (lambda s: s.edit_head(s.open, "active", "pending_review"), "heads != fold"),
    "wrong claim in a head": (lambda s: s.edit_head(s.open, "somebody", "nobody"), "heads != fold"),
    "missing head": (lambda s: s.send("HDEL", s.keys.heads(PAGE), s.done.id), "heads != fold"),
    "closed observation in the open set": (lambda s: s.send("ZADD", s.keys.open(PAGE), 1, s.done.id), "room drift"),
    "open observation not in the open set": (lambda s: s.send("ZREM", s.keys.open(PAGE), s.open.id), "room drift"),
    "dedupe key of a closed observation": (
        lambda s: s.send("HSET", s.keys.dedupe(PAGE), "free", s.done.id),
        "keys drift",
    ),
    "missing dedupe key": (lambda s: s.send("HDEL", s.keys.dedupe(PAGE), "k"), "keys drift"),
    "missing due entry": (
        lambda s: s.send("ZREM", PageKeys(s.keys, PAGE).due, f"{s.open.id}@{PAGE}"),
        "due drift",
    ),
    "due entry without an observation": (
        lambda s: s.send("ZADD", PageKeys(s.keys, PAGE).due, 5, f"GHOST@{PAGE}"),
        "due drift",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_checker_finds_each_planted_fault(scene: Scene, name: str) -> None:
    plant, kind = PLANTED[name]
    plant(scene)
    assert kind in kinds(scene)


def test_the_checker_finds_a_lost_acknowledged_event(scene: Scene) -> None:
    assert kinds(scene, Acknowledged(event_ids=["never written"])) == {"lost"}
    assert kinds(scene, Acknowledged(marks=["never written"])) == {"lost"}


def test_the_checker_finds_a_write_duplicated_under_two_ids(scene: Scene) -> None:
    scene.bus.page(PAGE).link(scene.open.id, "goal-1")
    assert kinds(scene, Acknowledged(marks=["goal-1"])) == {"duplicated"}
