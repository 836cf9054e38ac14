"""A replica without the last events takes over: nothing read from the old master may get into the new one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import pytest

from scratchbus import Bus
from scratchbus.engine.steps import Call
from scratchbus.errors import EngineError, EngineReadOnly, LogRewound, NotReplicated
from scratchbus.eventlog.checkpoint import Outcome
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.readmodel.commits import FoldStep
from scratchbus.readmodel.projector import run_projector
from tests.clock import Clock, hand_over
from tests.faults.checker import check
from tests.faults.proxy import Proxy
from tests.faults.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.real


class Pair(NamedTuple):
    """A master and its replica, each with a bus on it."""

    master: Server
    replica: Server
    old: Bus
    new: Bus

    def fold_to_the_end(self) -> None:
        while not self.old.converse(fold_once(self.old.core.log, 0))[0].is_all:
            pass

    def promote_replica(self) -> None:
        """Let the replica catch up, then promote it."""
        eventually(lambda: self.replica.has_caught_up(self.master))
        self.replica.promote()


@pytest.fixture
def pair(new_server: Callable[..., Server]) -> Iterator[Pair]:
    master, replica = new_server(tcp=True), new_server(tcp=True)
    with Bus.connect(master.url, source="old") as old:
        page = old.page()
        for word in ("one", "two", "three"):
            page.add("observation", word, tags=["before"])
        replica.follow(master)
        eventually(lambda: replica.has_caught_up(master))
        with Bus.connect(replica.url, source="new") as new:
            yield Pair(master, replica, old, new)


def fold_across(pair: Pair, between: Callable[[], object] = lambda: None) -> Outcome:
    """Read from the old master as a projector does, and commit to the new one.

    `between` runs after the events are read and before the documents are.
    """
    conversation = fold_once(pair.old.core.log, 0)
    request = next(conversation)
    while True:
        assert isinstance(request, Call)
        if any(command[0] == "HMGET" for command in request.commands):
            between()
        engine = (pair.new if request.is_write else pair.old)._engine
        try:
            request = conversation.send(engine.execute(request))
        except StopIteration as done:
            folded: FoldStep = done.value[0]
            return folded.outcome


def test_a_commit_of_events_the_new_master_lacks_is_refused(pair: Pair) -> None:
    pair.promote_replica()
    ghost = pair.old.page().add("observation", "only the old master knows of it", tags=["ghost"])
    pair.new.page().add("observation", "what the new master got instead")
    assert fold_across(pair) is Outcome.REWOUND
    assert check(pair.new) == []
    assert pair.new.page().get(ghost.id) is None
    assert pair.new.page().list(tags="ghost") == []


def test_a_commit_to_a_shared_document_is_refused_after_a_failover(pair: Pair) -> None:
    pair.fold_to_the_end()
    pair.promote_replica()
    known = pair.old.page().list()[0]
    pair.old.page().update(known.id, content="said to the old master")
    pair.new.page().update(known.id, content="said to the new master")
    assert fold_across(pair) is Outcome.REWOUND
    assert check(pair.new) == []
    assert pair.new.page().get(known.id).content == "said to the new master"


def test_a_commit_of_events_on_both_masters_is_accepted(pair: Pair) -> None:
    pair.promote_replica()
    pair.new.page().add("observation", "what the new master got since")
    assert fold_across(pair) is Outcome.DONE
    assert check(pair.new) == []


def test_documents_newer_than_the_checkpoint_are_not_built_upon(pair: Pair) -> None:
    """A projector reads events, another commits them, then the first reads documents; the replica lacks that commit."""
    pair.fold_to_the_end()
    page = pair.old.page()
    changed, gone = page.list()[:2]
    page.update(changed.id, content="changed")
    page.resolve(gone.id)
    page.clear_resolved([gone.id])
    pair.promote_replica()
    assert fold_across(pair, pair.fold_to_the_end) is not Outcome.DONE
    assert check(pair.new) == []
    assert pair.new.page().get(changed.id).content == "changed"


@pytest.mark.slow
def test_a_projector_that_fails_over_leaves_no_ghosts(pair: Pair) -> None:
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url, source="projector") as bus:
        stop = threading.Event()
        projector = threading.Thread(target=project_on, args=(bus, stop))
        projector.start()
        try:
            for number in range(200):
                pair.old.page(f"page-{number % 3}").add("observation", "before")
            pair.replica.promote()
            for number in range(200):
                pair.old.page(f"page-{number % 3}").add("observation", "only the old master knows of it")
                if number == 100:
                    proxy.fail_over(pair.replica)
                pair.new.page(f"page-{number % 3}").add("observation", "what the new master got instead")
            eventually(lambda: pair.new.status().shards[0].lag == 0)
        finally:
            stop.set()
            projector.join(30)
    assert check(pair.new) == []
    assert check(pair.old) == []


def project_on(bus: Bus, stop: threading.Event) -> None:
    """Run a projector, and restart it when the engine fails."""
    while not stop.is_set():
        try:
            run_projector(bus, stop)
        except (EngineError, LogRewound):
            stop.wait(0.01)


def test_a_reader_notices_other_events_on_the_new_master(pair: Pair) -> None:
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url) as bus:
        stop = threading.Event()
        events = bus.events(follow=True, stop=stop)
        for _ in range(3):
            next(events)
        pair.promote_replica()
        pair.old.page().add("observation", "only the old master knows of it")
        assert next(events).position.seq == 4
        pair.new.page().add("observation", "what the new master got instead")
        pair.new.page().add("observation", "and more")
        proxy.fail_over(pair.replica)
        with pytest.raises(LogRewound):
            next(events)
        stop.set()


def test_a_reader_notices_fewer_events_on_the_new_master(pair: Pair) -> None:
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url) as bus:
        stop = threading.Event()
        events = bus.events(follow=True, stop=stop)
        pair.promote_replica()
        pair.old.page().add("observation", "only the old master knows of it")
        for _ in range(4):
            next(events)
        proxy.fail_over(pair.replica)
        with pytest.raises(LogRewound):
            next(events)
        stop.set()


@pytest.fixture
def clocks(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Clock, Clock]]:
    """The clocks of the old and the new master, after the replica has caught up and was promoted."""
    eventually(lambda: pair.replica.has_caught_up(pair.master))
    pair.replica.promote()
    hand_over(monkeypatch, pair.old, pair.new)
    with Clock(pair.master.url) as old, Clock(pair.replica.url) as new:
        yield old, new


def test_a_reader_notices_other_events_with_matching_seqs(pair: Pair, clocks: tuple[Clock, Clock]) -> None:
    old, new = clocks
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url) as bus:
        stop = threading.Event()
        events = bus.events(follow=True, stop=stop)
        old.advance("1m")
        pair.old.page().add("observation", "only the old master knows of it")
        for _ in range(4):
            next(events)
        pair.new.page().add("observation", "the new master's fourth")
        new.advance("2m")
        pair.new.page().add("observation", "the new master's fifth, which could follow the other fourth")
        proxy.fail_over(pair.replica)
        with pytest.raises(LogRewound):
            next(events)
        stop.set()


def test_a_retry_finds_its_event_on_a_master_with_a_slow_clock(pair: Pair, clocks: tuple[Clock, Clock]) -> None:
    old, _ = clocks
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url, source="writer") as bus:
        old.advance("1h")
        bus.page().add("observation", "only the old master knows of it")
        proxy.fail_over(pair.replica)
        pair.new.page().add("observation", "lets the new master know the script", dedupe_key="j")
        bus.position()
        proxy.arm("reply", 1)
        bus.page().add("observation", "once", dedupe_key="k")
        assert proxy.cuts == 1
    assert [event.kind for event in pair.new.events()] == ["added"] * 5
    assert check(pair.new) == []


def test_a_retry_finds_its_event_before_a_reused_position(pair: Pair, clocks: tuple[Clock, Clock]) -> None:
    clocks[0].set(clocks[1].ms)
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url, source="writer") as bus:
        for word in ("this", "that"):
            bus.page().add("observation", word + " only the old master knows of")
        proxy.fail_over(pair.replica)
        pair.new.page().add("observation", "lets the new master know the script")
        bus.position()
        proxy.arm("reply", 1, meanwhile=lambda: pair.new.page().add("observation", "takes the place of the other"))
        bus.page().add("observation", "once")
        assert proxy.cuts == 1
    assert [event.kind for event in pair.new.events()] == ["added"] * 6
    assert check(pair.new) == []


def test_a_commit_is_refused_for_another_event_at_its_position(pair: Pair, clocks: tuple[Clock, Clock]) -> None:
    clocks[0].set(clocks[1].ms)
    ghost = pair.old.page().add("observation", "only the old master knows of it", tags=["ghost"])
    other = pair.new.page().add("observation", "what the new master got instead")
    assert ghost.position == other.position
    assert fold_across(pair) is Outcome.REWOUND
    assert check(pair.new) == []


def test_a_reader_notices_another_event_at_its_position(pair: Pair, clocks: tuple[Clock, Clock]) -> None:
    clocks[0].set(clocks[1].ms)
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url) as bus:
        stop = threading.Event()
        events = bus.events(follow=True, stop=stop)
        ghost = pair.old.page().add("observation", "only the old master knows of it")
        other = pair.new.page().add("observation", "what the new master got instead")
        pair.new.page().add("observation", "and more")
        assert [next(events).position for _ in range(4)][-1] == ghost.position == other.position
        proxy.fail_over(pair.replica)
        with pytest.raises(LogRewound):
            next(events)
        stop.set()


def test_acks_of_lost_events_hide_no_event_of_the_new_master(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url, source="consumer") as bus:
        with bus.subscribe("router") as deliveries:
            for delivery in islice(deliveries, 3):
                delivery.ack()
            eventually(lambda: pair.old.status().subscriptions[0].lag == 0)
            pair.promote_replica()
            hand_over(monkeypatch, pair.old, pair.new)
            with Clock(pair.master.url) as old, Clock(pair.replica.url) as new:
                old.set(new.ms)
                ghost = pair.old.page().add("observation", "only the old master knows of it")
                other = pair.new.page().add("observation", "what the new master got instead")
                assert ghost.position == other.position
                next(deliveries).ack()
                proxy.fail_over(pair.replica)
        assert pair.new.status().subscriptions[0].lag == 0, "the ack reached the new master"
        with pytest.raises(LogRewound), bus.subscribe("router") as deliveries:
            next(deliveries)


def test_a_reader_notices_a_new_log_with_the_same_first_events(
    new_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, stop = new_server(), threading.Event()
    with Clock(server.url) as clock, Bus.connect(server.url, source="writer") as bus, server.client() as client:
        hand_over(monkeypatch)
        events = bus.events(follow=True, stop=stop)
        first = bus.page().add("observation", "the same again", event_id="same")
        assert next(events).position == first.position
        client.flushall()
        clock.set(clock.ms)
        with Bus.connect(server.url, source="writer") as another:
            assert another.page().add("observation", "the same again", event_id="same").position == first.position
            another.page().add("observation", "and more")
        with pytest.raises(LogRewound):
            next(events)
        stop.set()


def test_a_writer_reconnects_when_its_master_became_a_replica(pair: Pair) -> None:
    with Proxy(pair.master) as proxy, Bus.connect(proxy.url, source="writer") as bus:
        bus.page().add("observation", "while the old master was one")
        pair.promote_replica()
        pair.master.follow(pair.replica)
        proxy.lead_to(pair.replica)
        with pytest.raises(EngineReadOnly):
            bus.page().add("observation", "on the connection that there is")
        bus.page().add("observation", "on a new one")
    assert len(list(pair.new.events())) == 5
    assert check(pair.new) == []


def test_ack_replica_counts_copies_when_the_script_is_reloaded(pair: Pair) -> None:
    timeout = "500ms"  # the wait for the replica must end before that
    with (
        Bus.connect(pair.master.url, source="writer", ack="replica") as bus,
        Bus.connect(pair.master.url, source="writer", ack="replica", socket_timeout=timeout) as hasty,
        pair.master.client() as client,
    ):
        client.script_flush()
        bus.page().add("observation", "on two engines")
        pair.replica.pause()
        client.script_flush()
        with pytest.raises(NotReplicated, match="0 of 1 replicas"):
            hasty.page().add("observation", "on one engine", event_id="e")
        pair.replica.go_on()
        again = bus.page().add("observation", "on one engine", event_id="e")
        assert pair.new.page().get(again.id) == again
    assert check(pair.old) == []
