"""The shipped access list on a real cluster: each role may do the same as on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.errors import EngineForbidden, ScratchbusError
from scratchbus.readmodel.projector import run_projector
from scratchbus.scheduling.expiry import run_expirer
from tests.faults.checker import check
from tests.faults.clusters import Cluster, Move, ask
from tests.faults.operations import SUBJECT
from tests.faults.roles import READS, TRIES, Try, login, rounds, write_access_list
from tests.inspection import project
from tests.waiting import eventually

pytestmark = pytest.mark.real

SHARDS = 4
"""Four shards cover all masters, and open three times as fast as sixteen, hundreds of times."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    listed = write_access_list(tmp_path_factory.mktemp("access"))
    with Cluster(aclfile=str(listed)) as cluster:
        yield cluster


@pytest.fixture
def bus(cluster: Cluster) -> Iterator[Bus]:
    """An empty bus of a user who may do everything."""
    empty(cluster)
    with Bus.connect(cluster.url, source="owner") as bus:
        yield bus


def empty(cluster: Cluster) -> None:
    for server in cluster.masters:  # nothing fails over here
        ask(server, "FLUSHALL")


def url_of(cluster: Cluster, user: str) -> str:
    return cluster.url.replace("://", f"://{login(user)}", 1)


def outcomes(cluster: Cluster, users: list[str], wanted: Try) -> dict[str, str]:
    """Return the outcomes of a try by users one after the other on a new bus."""
    empty(cluster)
    with Bus.connect(cluster.url, source="owner", shards=SHARDS) as owner:
        things = wanted.prepare(owner)
        return {user: outcome(cluster, user, wanted, things) for user in users}


def outcome(cluster: Cluster, user: str, wanted: Try, things: list[Any]) -> str:
    with Bus.connect(url_of(cluster, user), **SUBJECT) as mine:
        try:
            wanted.act(mine, *things)
        except EngineForbidden:
            return "forbidden"
        except ScratchbusError as error:
            return f"{type(error).__name__}: {error}"
    return "done"


def _is_on_one_slot(name: str) -> bool:
    """Return whether a try uses one slot only, as on one server, and is not one of `KEPT`, one for each script."""
    return name.startswith("page: ") and name not in KEPT


KEPT = {
    f"page: {name}"
    for name in (
        "get", "list", "history", "as of", "add", "claim next", "erase",
        "trace", "refute", "evidence", "consequences", "exposure",  # read other pages, so other slots
    )
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.faults] if _is_on_one_slot(name) else []) for name in TRIES]
)
def test_a_role_has_the_same_rights_on_a_cluster(cluster: Cluster, name: str) -> None:
    wanted = TRIES[name]
    found: dict[str, str] = {}
    for users in rounds(wanted.roles):
        found |= outcomes(cluster, users, wanted)
    assert found == {user: "done" if user in wanted.roles else "forbidden" for user in READS}


@pytest.mark.slow
def test_daemons_with_the_projector_role_serve_all_shards(cluster: Cluster, bus: Bus) -> None:
    stop = threading.Event()
    with Bus.connect(url_of(cluster, "projector"), source="projector", sweep_interval="20ms") as mine:
        threads = [threading.Thread(target=run, args=(mine, stop)) for run in (run_projector, run_expirer)]
        for thread in threads:
            thread.start()
        try:
            reminders = [bus.page(name).add("reminder", "x", remind_on={"type": "observation"}) for name in "abcdef"]
            for name in "abcdef":
                bus.page(name).add("observation", "brief", ttl="50ms")
            eventually(lambda: all(bus.page(each.page).history(each.id)[-1].kind == "due" for each in reminders))
            eventually(lambda: sum(event.kind == "status_changed" for event in bus.events()) == 6)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
    project(bus)
    assert check(bus) == []


def test_a_publisher_and_a_reader_follow_a_moved_slot(cluster: Cluster, bus: Bus) -> None:
    page = bus.page("moving")
    page.add("observation", "before")
    with (
        Bus.connect(url_of(cluster, "publisher"), source="publisher") as publisher,
        Bus.connect(url_of(cluster, "reader"), source="reader") as reader,
    ):
        assert [one.content for one in reader.page("moving").active()] == ["before"]
        with Move(cluster, cluster.slot_of(bus, "moving")) as move:
            move.keys(lambda key: True)
            assert reader.position() == publisher.position() == bus.position(), "after asking the next master"
        publisher.page("moving").add("observation", "after")
        assert [one.content for one in reader.page("moving").active()] == ["after", "before"]
    assert check(bus) == []
