"""Opening, sharing and closing a bus."""

import threading

import pytest
from redis import Redis

from scratchbus import Bus, NewObservation
from scratchbus.domain.position import START
from scratchbus.errors import BusClosed, InvalidSource, ShardsMismatch
from tests.inspection import keys_of, log_length
from tests.waiting import eventually

WORD = "AZaz09_.@/-"


def test_next_connection_reads_earlier_writes(connect):
    first = connect()
    added = first.page().add("observation", "x")
    first.close()
    assert connect("other").page().get(added.id) == added


def test_number_of_shards_is_fixed(connect, engine):
    connect().page().add("observation", "x")
    with pytest.raises(ShardsMismatch, match="drop the `shards` setting or set it to") as refused:
        connect(shards=engine.shards + 1)
    assert (refused.value.expected, refused.value.actual) == (engine.shards + 1, engine.shards)
    assert connect(shards=None).core.log.shards == engine.shards


def test_each_page_is_on_one_shard(connect, engine):
    bus = connect()
    for n in range(20):
        bus.page(f"page-{n}").add("observation", f"{n}")
    assert [bus.page(f"page-{n}").list()[0].content for n in range(20)] == [f"{n}" for n in range(20)]
    shards = [shard.events for shard in bus.status().shards]
    assert sum(shards) == 20
    assert len(shards) == engine.shards
    assert all(shards)
    assert len(list(bus.events())) == 20
    assert sorted(page.page for page in bus.status().pages) == sorted(f"page-{n}" for n in range(20))


def test_bus_position_covers_all_shards(connect):
    bus = connect()
    for n in range(10):
        bus.page(f"page-{n}").add("observation", f"{n}")
    place = bus.position()
    for n in range(10):
        bus.page(f"page-{n}").add("observation", "later")
    assert [event.content for event in bus.events(str(place))] == ["later"] * 10


def test_buses_on_one_engine_are_isolated(connect, bus_name):
    one, other = connect(), connect(bus=f"{bus_name}.b")
    one.page().add("observation", "x")
    assert other.page().list() == []
    assert log_length(other) == 0


def test_names_accept_every_legal_character(connect, bus_name):
    bus = connect(bus=f"{bus_name}{WORD}")
    for name in (WORD + ":", "x" * 128, ":", "-"):
        added = bus.page(name).add("observation", name, ttl="1h")
        assert bus.page(name).list() == [added]


def test_bus_without_a_source_needs_one_per_observation(connect):
    page = connect(source=None).page()
    with pytest.raises(InvalidSource, match="pass source="):
        page.add("observation", "x")
    assert page.add("observation", "x", source="tool-1").source == "tool-1"
    (event,) = page.history(page.list()[0].id)
    assert event.by == "tool-1"
    page.resolve(page.list()[0].id)
    assert page.history(page.list()[0].id)[-1].by == "anonymous"


def test_status_reports_shards_types_and_engine(bus, page, engine):
    page.add("observation", "x")
    status = bus.status()
    assert status.bus == bus.core.log.bus
    assert [one.end for one in status.shards if one.events] == [str(bus.position().shards[keys_of(bus).shard])]
    assert ("risk_alert" in status.types, status.registry_version) == (True, 0)
    if engine.is_real:
        assert status.engine in ("Redis", "Valkey")
        assert status.memory_bytes > 0


def test_bus_can_be_closed_twice(connect):
    with connect() as bus:
        bus.page().add("observation", "x")
    bus.close()


def test_a_bus_serves_many_threads(connect):
    from concurrent.futures import ThreadPoolExecutor

    bus = connect(max_observations=1000)
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda n: bus.page().add("observation", f"{n}"), range(100)))
    assert len({one.id for one in added}) == 100
    assert [one.position.seq for one in reversed(bus.page().list())] == list(range(1, 101))


def test_bad_settings_are_refused(engine_url):
    from scratchbus.errors import SettingsError

    for wrong in ({"shards": 0}, {"max_observations": 0}, {"on_full": "explode"}, {"colour": "red"}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Bus.connect(engine_url, **wrong)


def test_bad_source_is_refused_at_connect(engine_url):
    with pytest.raises(InvalidSource, match="'bad src' is not a valid source"):
        Bus.connect(engine_url, source="bad src")


def test_closed_bus_refuses_every_operation(connect):
    bus = connect()
    page, id = bus.page(), bus.page().add("observation", "x").id
    following = bus.events(follow=True)
    next(following)
    bus.close()
    for operation in (
        lambda: page.add("observation", "y"),
        lambda: page.add_many([NewObservation(type="observation", content="y")]),
        lambda: page.get(id), page.list, page.active, lambda: page.update(id, content="y"),
        lambda: page.resolve(id), lambda: page.history(id), bus.position,
        bus.status, bus.refresh_types, lambda: list(bus.events()), lambda: next(following),
        lambda: bus.wait_for_events({0: START}),
    ):  # fmt: skip
        with pytest.raises(BusClosed, match="connect again"):
            operation()
    assert [one.content for one in connect().page().list()] == ["x"]


def test_subscribing_on_a_closed_bus_leaves_no_keeper_thread(connect):
    bus = connect()
    bus.close()
    late = bus.subscribe("mailer")
    with pytest.raises(BusClosed):
        next(late)
    eventually(lambda: not any(thread.name == "keeper" for thread in threading.enumerate()))


def test_keeper_survives_a_failing_lease(connect):
    class Lease:
        max_pause = check_seconds = 0.1
        shard = 0

        def __init__(self, fault: Exception | None) -> None:
            self.fault, self.times = fault, 0

        def is_due(self, now: float) -> bool:
            return True

        def keep(self):
            self.times += 1
            if self.fault:
                raise self.fault
            yield from ()

    bus, broken, sound = connect(), Lease(RuntimeError("unforeseen")), Lease(None)
    bus.keeper.add(broken)
    bus.keeper.add(sound)
    eventually(lambda: broken.times > 2 and sound.times > 2)


@pytest.mark.real
def test_engine_settings_that_risk_events_are_warned_about(embedded_url, system_url, bus_name, capsys):
    with Bus.connect(embedded_url, bus=bus_name) as kept:
        assert kept.status().risks == []
    assert capsys.readouterr().err == ""
    with Redis(unix_socket_path=system_url.removeprefix("unix://")) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", "1gb")
        try:
            with Bus.connect(system_url, bus=bus_name) as risky:
                risks = risky.status().risks
                risky.page().list()
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")
    stderr = capsys.readouterr().err
    for setting, risk in zip(("maxmemory-policy noeviction", "appendonly yes"), risks, strict=True):
        assert setting in risk
        assert stderr.count(risk) == 1


def test_a_timeout_of_months_is_as_good_as_a_long_one(connect):
    bus = connect(socket_timeout="90d", connect_timeout="90d")
    added = bus.page().add("observation", "x")
    assert bus.page().get(added.id) == added


def test_a_short_socket_timeout_bounds_the_wait_for_replicas():
    with Bus.connect("memory://short", socket_timeout="1ms") as bus:
        assert bus.core.log.replica_ms == 1
