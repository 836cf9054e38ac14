"""Clients with read access alone see every acknowledged write, folded or not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scratchbus import Bus, NewObservation, Page
from scratchbus.engine.embedded import server
from scratchbus.errors import EngineForbidden
from scratchbus.readmodel.catch_up import load_documents
from scratchbus.readmodel.page_query import IN_MEMORY
from tests.engines import ONE, Connect, Engine
from tests.faults.interposing import interposed
from tests.inspection import keys_of, project, send

READER = ("-@all", "+@read", "+eval", "+evalsha", "+eval_ro", "+evalsha_ro", "+@connection", "+info", "+time")

pytestmark = pytest.mark.engines("embedded-4-shards", "system")  # Valkey and Redis; the fake one has no access lists


@pytest.fixture
def bus(connect: Connect) -> Bus:
    return connect(max_observations=10_000)


@pytest.fixture
def reading(engine: Engine, bus: Bus, bus_name: str) -> Iterator[Bus]:
    """The same bus, for a user whose access list allows only reads."""
    scheme, _, place = engine.url.partition(":")
    socket = server.ensure_running(Path(place)).socket if scheme == "embedded" else place.removeprefix("//")
    send(bus, "ACL", "SETUSER", bus_name, "on", ">pw", "resetkeys", f"~{{{bus_name}:*", *READER)
    try:
        with Bus.connect(f"unix://{bus_name}:pw@{socket}", bus=bus_name) as other:
            yield other
    finally:
        send(bus, "ACL", "DELUSER", bus_name)


@pytest.fixture
def reader(reading: Bus) -> Page:
    return reading.page()


def batch(name: str, count: int, **more: object) -> list[NewObservation]:
    return [NewObservation(type="observation", content=f"{name} {n}", **more) for n in range(count)]


def checkpoint(bus: Bus) -> object:
    return send(bus, "GET", keys_of(bus).live)


def assert_reads_the_same(bus: Bus, page: Page, reader: Page) -> None:
    """Compare the reader's answers, which commit no fold, with those after a projector's commit."""
    before = checkpoint(bus)
    seen = reader.list(limit=None), reader.list(limit=7), reader.list(tags="t", limit=None), reader.active()
    first, newest = reader.active(limit=3), reader.list(text="new 1", limit=None)
    assert checkpoint(bus) == before
    project(bus)
    assert seen == (page.list(limit=None), page.list(limit=7), page.list(tags="t", limit=None), page.active())
    assert (first, newest) == (page.active(limit=3), page.list(text="new 1", limit=None))


@pytest.mark.engines(*ONE)
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_read_only_client_sees_a_long_unfolded_log(monkeypatch, bus, page, reader, is_begun):
    monkeypatch.setattr("scratchbus.readmodel.local_fold.CHUNK", 100)
    old = page.add_many(batch("old", IN_MEMORY // 3, tags=["t"]))
    if is_begun:
        project(bus)
    begun = checkpoint(bus)
    for one in old[::9]:
        page.update(one.id, tags=["u"])
        page.resolve(one.id)
    page.clear_resolved([old[0].id, old[9].id])
    page.add_many(batch("new", 3 * IN_MEMORY))
    bus.page("other").add_many(batch("elsewhere", 99))
    assert checkpoint(bus) == begun
    assert reader.get(old[0].id) is None
    assert reader.get(old[18].id).status == "resolved"
    assert_reads_the_same(bus, page, reader)


def test_a_read_only_client_reads_on_when_a_projector_overtakes(monkeypatch, bus, page, reader):
    added = page.add_many(batch("new", 2 * IN_MEMORY))
    times: list[int] = []

    def overtaken(*given):
        if not times:
            project(bus)
        times.append(1)
        return (yield from load_documents(*given))

    monkeypatch.setattr("scratchbus.readmodel.local_fold.load_documents", overtaken)
    assert reader.get(added[0].id) == added[0]
    assert len(times) == 1
    assert len(reader.list(limit=None)) == 2 * IN_MEMORY


def test_a_read_only_client_cannot_write(page, reader):
    with pytest.raises(EngineForbidden):
        reader.add("observation", "not mine to say", source="reader")
    assert page.list() == []


def test_a_read_only_client_reads_at_most_1000_events_at_once(page, reading, reader):
    for _ in range(3):
        page.add_many(batch("new", 900))
    maximum = [0]

    def weighing(_: object, send: Callable[[], list[object]]) -> list[object]:
        replies = send()
        maximum.append(_bodies(replies))
        return replies

    with interposed(reading, weighing):
        assert len(reader.active()) == len(page.active()) == 2700
    assert 0 < max(maximum) <= 1000


def _bodies(reply: object) -> int:
    """Count the bodies of events in a reply."""
    if isinstance(reply, list):
        return sum(map(_bodies, reply))
    return isinstance(reply, bytes) and reply.startswith(b'{"v":')
