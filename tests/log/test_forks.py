"""A forked child has no threads of its parent: claims are renewed, and views follow the log, all the same."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.archive.archive_reader import Archive
from scratchbus.errors import ViewClosed
from tests.clock import renew_a_minute_at_each_check
from tests.faults.servers import Server, embedded_binary
from tests.inspection import archive
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of threads


@pytest.fixture
def bus() -> Iterator[Bus]:
    server = Server(embedded_binary()).start()
    try:
        with Bus.connect(server.url, source="t") as bus:
            yield bus
    finally:
        server.close()


def run_in_child(check: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        signal.alarm(round(2 * PATIENCE))
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def wait_for_renewals(bus: Bus, id: str) -> None:
    """Wait until a claimed observation was claimed twice more by its renewals."""
    eventually(lambda: sum(event.kind == "claimed" for event in bus.page().history(id)) >= 3)


@pytest.mark.slow
def test_a_forked_child_renews_its_claims(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    renew_a_minute_at_each_check(monkeypatch)
    for number in range(2):
        bus.page().add("observation", f"{number}")

    def resolve_late() -> None:
        with bus.work("children", ttl="1m") as jobs:
            job = next(iter(jobs))
            wait_for_renewals(bus, job.id)
            job.resolve(reason="late, but renewed")

    with bus.work("parents", ttl="1m") as jobs:
        held = next(iter(jobs))
        run_in_child(resolve_late)
        wait_for_renewals(bus, held.id)
        held.resolve(reason="renewed by the parent")


def test_a_view_in_a_forked_child_follows_the_log(bus: Bus) -> None:
    page = bus.page()
    page.add("observation", "before")

    def see_the_next() -> None:
        with pytest.raises(ViewClosed):
            view.active()
        with bus.view("main") as own:
            own.wait_for(page.add("observation", "after"), timeout=PATIENCE)
            assert len(own.active()) == 2

    with bus.view("main") as view:
        assert len(view.active()) == 1
        run_in_child(see_the_next)
        view.wait_for(bus.position(), timeout=PATIENCE)
        assert len(view.active()) == 2


def test_a_view_of_the_parent_closed_in_a_forked_child_closes_none_of_the_child(bus: Bus) -> None:
    page = bus.page()

    def close_the_inherited() -> None:
        with bus.view("main") as own:
            view.close()
            own.wait_for(page.add("observation", "after"), timeout=PATIENCE)
            assert len(own.active()) == 1

    with bus.view("main") as view:
        run_in_child(close_the_inherited)
        view.wait_for(bus.position(), timeout=PATIENCE)
        assert len(view.active()) == 1


def test_a_forked_child_reads_the_archive_and_memories_while_the_parent_does(bus: Bus, tmp_path: Path) -> None:
    with Bus.connect(
        bus.settings.url, source="t", archive_url=str(tmp_path), retain="1ms", retain_events=1
    ) as archived:
        added = [archived.page().add("observation", f"{number}") for number in range(5)]
        notes = archived.page("session:s")
        archive(archived)
        cache, past = archived.core.notebooks, archived.core.log.archive
        assert isinstance(past, Archive)

        def read() -> None:
            assert [event.kind for event in archived.page().history(added[0].id)] == ["added"]
            assert archived.converse(cache.fresh(archived.core.log, notes.name)).memory.size >= 0

        with past._lock, cache._lock:
            run_in_child(read)
        read()


@pytest.mark.slow
def test_a_forked_child_recalls_while_threads_of_its_parent_do(bus: Bus) -> None:
    notes, may_end = bus.notes("s1"), threading.Event()
    for number in range(100):
        notes.add(f"automobile {number}")

    def recall() -> None:
        assert len(bus.recall("automobile", sessions=["s1"], limit=5)) == 5

    def recall_until_the_end() -> None:
        while not may_end.is_set():
            recall()

    recall()
    thread = threading.Thread(target=recall_until_the_end)
    thread.start()
    try:
        for _ in range(10):
            run_in_child(recall)
    finally:
        may_end.set()
        thread.join()
