"""A write that too few replicas confirm says how to do it again, and that does what is left, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.commands.claim import Picked
from scratchbus.engine.steps import Call
from scratchbus.errors import NotReplicated
from scratchbus.work import agenda
from tests.clock import renew_a_minute_at_each_check
from tests.faults.interposing import Around, Send, interposed
from tests.faults.operations import SUBJECT, are_of_kinds
from tests.faults.servers import Server
from tests.faults.writing import WRITES
from tests.waiting import eventually

pytestmark = pytest.mark.real


@pytest.fixture
def direct(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    """Another client, which waits for no replicas."""
    with Bus.connect(shared_server.url, source="other", bus=bus_name, max_observations=10_000) as bus:
        yield bus


@pytest.fixture
def bus(shared_server: Server, direct: Bus, tmp_path: Path) -> Iterator[Bus]:
    """A client that waits 10 ms for a replica; there is none."""
    settings: dict[str, Any] = {**SUBJECT, "ack": "replica", "max_observations": 10_000, "home": tmp_path}
    with Bus.connect(shared_server.url, bus=direct.core.log.bus, **settings) as bus:
        bus.core.log.replica_ms = 10
        yield bus


@pytest.mark.parametrize("name", WRITES)
def test_a_retry_with_the_event_id_of_an_unconfirmed_write_writes_once(name: str, bus: Bus, direct: Bus) -> None:
    writing = WRITES[name]
    arguments, before = writing.prepare(direct), direct.position()
    with pytest.raises(NotReplicated) as caught:
        writing.act(bus, *arguments, event_id=None)
    first = next(event for event in direct.events(after=before) if event.by == "subject")
    assert caught.value.event_id == first.id
    assert f"retry it with event_id={first.id!r}" in str(caught.value)
    with pytest.raises(NotReplicated) as again:
        writing.act(bus, *arguments, event_id=first.id)
    assert again.value.event_id == first.id
    with Bus.connect(bus.core.settings.url, **SUBJECT, bus=direct.core.log.bus, max_observations=10_000) as confirmed:
        writing.act(confirmed, *arguments, event_id=first.id)
    kinds = [event.kind for event in direct.events(after=before) if event.by == "subject"]
    assert are_of_kinds(kinds, writing.kinds), kinds


def sweep_items(bus: Bus, directory: Path) -> Callable[[Bus], object]:
    bus.items().put(("a",), "k", {}, ttl=1)
    eventually(lambda: bus.items().read().get(("a",), "k") is None)
    return lambda bus: bus.items().sweep()


def sync_preferences(bus: Bus, directory: Path) -> Callable[[Bus], object]:
    file = directory / "AGENTS.md"
    bus.preferences("ada").remember("quotes", "double")
    bus.preferences("ada").sync(file)
    file.write_text(file.read_text("utf-8").replace("double", "single"), "utf-8")
    return lambda bus: bus.preferences("ada").sync(file)


def sync_files(bus: Bus, directory: Path) -> Callable[[Bus], object]:
    (bus.files("s").path() / "a").write_text("a")
    return lambda bus: bus.files("s").sync()


def evict_files(bus: Bus, directory: Path) -> Callable[[Bus], object]:
    bus.files("s").write("a", b"a")

    def evict(bus: Bus) -> object:
        bus.core.settings = bus.core.settings.model_copy(update={"keep_files": "1ms"})
        return bus.evict_files()

    return evict


@pytest.mark.parametrize("prepare", [sweep_items, sync_preferences, sync_files, evict_files])
def test_an_unconfirmed_operation_without_an_event_id_waits_again_when_it_is_called_again(
    prepare: Callable[[Bus, Path], Callable[[Bus], object]], shared_server: Server, bus: Bus, tmp_path: Path
) -> None:
    name = bus.core.log.bus
    with Bus.connect(shared_server.url, bus=name, home=tmp_path) as other:
        act = prepare(other, tmp_path)
        before = other.position()
        for _ in range(2):
            with pytest.raises(NotReplicated, match="to wait again, repeat the call") as caught:
                act(bus)
            assert caught.value.event_id is None
        assert len(list(other.events(after=before))) == 1
        asked: list[Call] = []

        def confirm(call: Call, send: Send) -> list[Any]:
            *replies, last = send()
            if call.commands[-1][0] == "WAIT":
                asked.append(call)
                last = 1
            return [*replies, last]

        with interposed(bus, confirm):
            act(bus)
        assert asked
        assert len(list(other.events(after=before))) == 1


def confirming(*which: int) -> Around:
    """Let a replica confirm these requests that wait for one, counted from 1, and no others."""
    waits = count(1)

    def around(call: Call, send: Send) -> list[Any]:
        *replies, last = send()
        return [*replies, int(next(waits) in which) if call.commands[-1][0] == "WAIT" else last]

    return around


def test_a_worker_that_waits_for_replicas_holds_no_job(bus: Bus, direct: Bus) -> None:
    ids = [direct.page().add("observation", f"{number}").id for number in range(2)]
    with interposed(bus, confirming(3, 4)), bus.work("repairs") as jobs:  # the second check for replicas, and a pick
        job = next(jobs)
        assert (job.id, job.attempt) == (ids[1], 1)
    assert [event.kind for event in direct.events() if event.by == "subject"] == ["claimed", "released"] * 2


def test_another_worker_gets_the_job_for_which_replicas_are_missing(bus: Bus, direct: Bus) -> None:
    direct.page().add("observation", "x")
    stop = threading.Event()
    with ThreadPoolExecutor() as pool, bus.work("repairs", stop=stop) as jobs:
        waiting = pool.submit(list, jobs)
        eventually(lambda: [event.kind for event in direct.events()] == ["added", "claimed", "released"])
        job = direct.page().claim_next()
        stop.set()
        assert waiting.result() == []
    assert job is not None
    assert job.attempt == 1


class StoppedClock:
    """A monotonic clock that stands still unless a test advances it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_worker_pauses_for_twice_the_wait_for_replicas_before_each_check(
    bus: Bus, direct: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waits, are_there = StoppedClock(), list[int](), False
    monkeypatch.setattr(agenda, "time", clock)
    direct.page().add("observation", "x")

    def around(call: Call, send: Send) -> list[Any]:
        *replies, last = send()
        if call.commands[-1][0] != "WAIT":
            return [*replies, last]
        waits.append(call.commands[-1][2])
        return [*replies, int(are_there)]

    with interposed(bus, around), bus.work("repairs") as jobs:
        search = jobs._agenda
        assert bus.converse(search.seek()) == 0.0
        assert len(waits) == 1, "the claim is put back, without another wait"
        assert bus.converse(search.seek()) == pytest.approx(0.02)
        clock.now = 0.019
        assert bus.converse(search.seek()) == pytest.approx(0.001)
        assert len(waits) == 1
        clock.now = 0.02
        assert bus.converse(search.seek()) == pytest.approx(0.02)
        assert len(waits) == 2
        are_there, clock.now = True, 0.041
        assert isinstance(bus.converse(search.seek()), Picked)


def test_a_worker_whose_ttl_is_too_short_for_its_replicas_says_so(
    bus: Bus, direct: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    direct.page().add("observation", "x")
    with bus.work("repairs") as jobs:
        bus.converse(jobs._agenda.seek())
    assert "confirm a claim within 0.01 s; check that they are up'" in capsys.readouterr().err
    bus.core.log.replica_ms = 60_000
    with bus.work("repairs", ttl="20ms") as jobs:
        bus.converse(jobs._agenda.seek())
    reason = "within 0.015 s; check that they are up, or use a longer ttl: a claim waits for three quarters of it"
    assert reason in capsys.readouterr().err


def test_a_pick_waits_for_replicas_for_three_quarters_of_its_ttl_at_most(bus: Bus, direct: Bus) -> None:
    direct.page().add("observation", "x")
    bus.core.log.replica_ms = 60_000
    stop, waits = threading.Event(), list[int]()

    def around(call: Call, send: Send) -> list[Any]:
        if call.commands[-1][0] == "WAIT":
            waits.append(call.commands[-1][2])
            stop.set()
        return send()

    with interposed(bus, around), bus.work("repairs", ttl="20ms", stop=stop) as jobs:
        assert list(jobs) == []
    assert waits == [15]


def test_a_worker_goes_on_with_shards_whose_replicas_are_there(shared_server: Server, bus_name: str) -> None:
    name, shards = f"{bus_name}-shards", 4
    with (
        Bus.connect(shared_server.url, source="other", bus=name, shards=shards) as direct,
        Bus.connect(shared_server.url, **SUBJECT, bus=name, shards=shards, ack="replica") as bus,
    ):
        bus.core.log.replica_ms = 10
        page_of = {bus.core.log.shard(page): page for page in map(str, range(100))}
        first, second, *others = page_of
        sick = {first, second}

        def around(call: Call, send: Send) -> list[Any]:
            *replies, last = send()
            return [*replies, int(call.shard not in sick) if call.commands[-1][0] == "WAIT" else last]

        for shard, kind in ((first, "risk_alert"), (second, "reminder"), *((shard, "observation") for shard in others)):
            direct.page(page_of[shard]).add(kind, "x")
        with interposed(bus, around), bus.work("repairs") as jobs:
            for _ in others:
                job = next(jobs)
                assert bus.core.log.shard(job.page) in others
                job.resolve()
            for shard in (first, second):
                kinds = [event.kind for event in direct.events(pages=[page_of[shard]])]
                assert kinds == ["added", "claimed", "released"]
            sick.remove(second)
            job = next(jobs)
            assert (job.page, job.attempt) == (page_of[second], 1)


def test_a_claim_renewed_without_replicas_is_renewed(bus: Bus, direct: Bus) -> None:
    direct.page().add("observation", "x")
    with interposed(bus, confirming(1)), bus.work("repairs") as jobs:
        job = next(jobs)
        job._renewed_at -= 15
        assert job.is_due(time.monotonic())
        bus.converse(job.keep())
        assert not job.is_due(time.monotonic())


def test_a_renewal_of_a_claim_waits_for_no_replicas(bus: Bus, direct: Bus) -> None:
    sent, confirm = list[Call](), confirming(1)

    def around(call: Call, send: Send) -> list[Any]:
        sent.append(call)
        return confirm(call, send)

    direct.page().add("observation", "x")
    with interposed(bus, around), bus.work("repairs") as jobs:
        job = next(jobs)
        picked = job.claim

        def lasts_longer() -> bool:
            bus.converse(job.keep())
            return job.claim.until > picked.until

        sent.clear()
        eventually(lasts_longer)
        assert "WAIT" not in [command[0] for call in sent for command in call.commands]
        assert job.claim == direct.page().get(job.id).claim


def test_a_claim_is_renewed_while_a_write_of_its_handler_waits_for_replicas(
    bus: Bus, direct: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew_a_minute_at_each_check(monkeypatch)
    direct.page().add("observation", "x")
    waits = count(1)

    def claims() -> int:
        return len(list(direct.events(kinds=["claimed"])))

    def around(call: Call, send: Send) -> list[Any]:
        *replies, last = send()
        if call.commands[-1][0] != "WAIT":
            return [*replies, last]
        if next(waits) == 2:  # that of the link
            before = claims()
            eventually(lambda: claims() > before)
        return [*replies, 1]

    with interposed(bus, around), bus.work("repairs", ttl="1m") as jobs:
        job = next(jobs)
        job.link("ticket-1")
        assert not job.is_lost


def test_an_unconfirmed_erasure_waits_again_when_it_is_called_again(bus: Bus, direct: Bus) -> None:
    seen = direct.page().add("observation", "x")
    for _ in range(2):
        with pytest.raises(NotReplicated):
            bus.page().erase(seen.id, reason="asked for")
    assert [event.kind for event in direct.events()] == ["erased"]


@pytest.mark.parametrize("request_number", [1, 2])  # later ones find the lease of the first
def test_an_erasure_waits_for_replicas_of_a_tombstone_that_another_process_appends_meanwhile(
    bus: Bus, direct: Bus, request_number: int
) -> None:
    seen, requests = direct.page().add("observation", "x"), count(1)

    def erase_before(call: Call, send: Send) -> list[Any]:
        if next(requests) == request_number:
            direct.page().erase(seen.id, reason="asked for before")
        return send()

    with interposed(bus, erase_before), pytest.raises(NotReplicated):
        bus.page().erase(seen.id, reason="asked for")


def test_a_search_for_work_that_finds_none_needs_no_replicas(bus: Bus) -> None:
    assert bus.page().claim_next() is None


def test_a_retry_of_an_unconfirmed_deletion_of_an_unlisted_file_deletes_it(
    shared_server: Server, bus: Bus, tmp_path: Path
) -> None:
    (bus.files("s").path() / "a").write_text("a")
    with pytest.raises(NotReplicated) as caught:
        bus.files("s").delete("a", event_id="e1")
    assert caught.value.event_id == "e1"
    assert "event_id='e1'" in str(caught.value)
    with Bus.connect(shared_server.url, **SUBJECT, bus=bus.core.log.bus, home=tmp_path) as confirmed:
        for _ in range(2):
            confirmed.files("s").delete("a", event_id="e1")
        assert [event.kind for event in confirmed.events()] == ["file_written", "file_removed"]


def test_missing_replicas_leave_no_session_unevicted(shared_server: Server, bus: Bus, tmp_path: Path) -> None:
    with Bus.connect(shared_server.url, bus=bus.core.log.bus, home=tmp_path) as other:
        files = [other.files(f"s{number}").path("a") for number in range(3)]
        for number in range(3):
            other.files(f"s{number}").write("a", b"a")
        bus.core.settings = bus.core.settings.model_copy(update={"keep_files": "1ms"})
        with pytest.raises(NotReplicated, match="repeat the call"):
            bus.evict_files()
        assert [file for file in files if file.exists()] == []
