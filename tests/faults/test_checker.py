"""The checker finds what is planted, and nothing else."""

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
    """A small bus in which much has happened, all folded; and a way to tamper with it."""

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
        """Add an entry to the log behind everyone's back: the last one with other fields."""
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
    "an event is gone": (drop_an_event, "gap"),
    "an event is there twice": (repeat_the_last_event, "duplicated"),
    "the count goes back": (turn_back_seq, "non-monotonic"),
    "a batch is torn": (leave_a_batch_open, "torn batch"),
    "an event names another before it": (repeat_the_last_event, "broken chain"),
    "the tail is another": (lambda s: s.send("SET", s.keys.tail, "1-1|x"), "tail"),
    "the origin is gone": (lambda s: s.send("DEL", s.keys.origin), "tail"),
    "a document is gone": (lambda s: s.send("HDEL", s.docs, s.open.id), "state != fold"),
    "a document is a ghost": (
        lambda s: s.send("HSET", s.docs, "GHOST", s.bus.converse(ask(0, "HGET", s.docs, s.open.id))),
        "state != fold",
    ),
    "a document is old": (
        lambda s: s.send("HSET", s.docs, s.open.id, s.bus.converse(ask(0, "HGET", s.docs, s.done.id))),
        "state != fold",
    ),
    "an index has one too few": (
        lambda s: s.send("ZREM", PageKeys(s.keys, PAGE).index("tag", "a"), s.open.id),
        "index drift",
    ),
    "the history index has one too many": (
        lambda s: s.send("APPEND", PageKeys(s.keys, PAGE).positions, bytes(16)),
        "index drift",
    ),
    "a page that nobody knows": (lambda s: s.send("HDEL", s.keys.pages, PAGE), "index drift"),
    "a sound event was set aside": (
        lambda s: s.send("XADD", PageKeys(s.keys, "").rejected, s.last_entry()[0], "reason", "none"),
        "rejected",
    ),
    "a head's version is off": (lambda s: s.edit_head(s.open, "3|", "4|"), "heads != fold"),
    "a head's status is off": (lambda s: s.edit_head(s.open, "active", "pending_review"), "heads != fold"),
    "a head's claim is off": (lambda s: s.edit_head(s.open, "somebody", "nobody"), "heads != fold"),
    "a head is gone": (lambda s: s.send("HDEL", s.keys.heads(PAGE), s.done.id), "heads != fold"),
    "room for one that is closed": (lambda s: s.send("ZADD", s.keys.open(PAGE), 1, s.done.id), "room drift"),
    "no room for one that is open": (lambda s: s.send("ZREM", s.keys.open(PAGE), s.open.id), "room drift"),
    "a key of nobody": (lambda s: s.send("HSET", s.keys.dedupe(PAGE), "free", s.done.id), "keys drift"),
    "an open one without its key": (lambda s: s.send("HDEL", s.keys.dedupe(PAGE), "k"), "keys drift"),
    "a moment that will never be seen": (
        lambda s: s.send("ZREM", PageKeys(s.keys, PAGE).due, f"{s.open.id}@{PAGE}"),
        "due drift",
    ),
    "a moment of nothing": (lambda s: s.send("ZADD", PageKeys(s.keys, PAGE).due, 5, f"GHOST@{PAGE}"), "due drift"),
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
