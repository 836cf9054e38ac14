"""Engines that cannot be used: each has its own error, nothing is written, and no password is shown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from scratchbus import AsyncBus, Bus, NewObservation
from scratchbus.engine.connect import target
from scratchbus.engine.steps import ask_all
from scratchbus.errors import (
    EngineAuth,
    EngineError,
    EngineFull,
    EngineLoading,
    EngineMisconfigured,
    EngineReadOnly,
    EngineTooOld,
    EngineUnreachable,
)
from scratchbus.readmodel.page_query import IN_MEMORY
from tests.faults.checker import check
from tests.faults.fake_server import bulk, fake_server
from tests.faults.operations import OPERATIONS, SUBJECT, prepare
from tests.faults.proxy import Proxy
from tests.faults.servers import DURABLE, Server, embedded_binary
from tests.inspection import log_length, project
from tests.waiting import eventually

pytestmark = pytest.mark.real

SECRET = "s3cr3t/:@?#%"


def text_of(error: BaseException) -> str:
    """Return the text of an error and of its causes."""
    said = f"{error} {error!r} {error.args}"
    return said + "".join(text_of(other) for other in (error.__cause__,) if other)


def assert_refused_everywhere(bus: Bus, prepared: dict[str, list[Any]], error: type[EngineError]) -> None:
    """Check that every write operation is refused and nothing is written."""
    before = log_length(bus)
    for name, operation in OPERATIONS.items():
        with pytest.raises(error):
            operation.act(bus.page(), *prepared[name], event_id=None)
    assert log_length(bus) == before


def test_only_an_engine_that_never_answered_is_said_to_require_tls(shared_server: Server, bus_name: str) -> None:
    with Proxy(shared_server) as proxy, Bus.connect(proxy.url, bus=bus_name) as bus:
        proxy.fail_from("request", 1)
        with pytest.raises(EngineUnreachable) as refused:
            bus.position()
        assert "closed by server" in str(refused.value)
        assert "TLS" not in str(refused.value)
        with pytest.raises(EngineUnreachable, match="it may require TLS: rediss://"):
            Bus.connect(proxy.url, bus=bus_name)


# -- read-only, full, loading --------------------------------------------------------------------------------------


def test_a_replica_serves_reads_and_refuses_writes(new_server: Callable[..., Server]) -> None:
    master, replica = new_server(tcp=True), new_server(tcp=True)
    with Bus.connect(master.url, **SUBJECT) as bus:
        prepared = {name: prepare(operation, bus) for name, operation in OPERATIONS.items()}
        replica.follow(master)
        eventually(lambda: replica.has_caught_up(master))
        with Bus.connect(replica.url, **SUBJECT) as reading:
            assert_refused_everywhere(reading, prepared, EngineReadOnly)
            assert len(reading.page().list(limit=None)) == len(bus.page().list(limit=None))
            assert check(reading) == []
        assert check(bus) == []


def test_a_bus_cannot_be_created_on_a_replica(new_server: Callable[..., Server]) -> None:
    master, replica = new_server(tcp=True), new_server(tcp=True)
    replica.follow(master)
    with pytest.raises(EngineReadOnly, match="connect to its primary"):
        Bus.connect(replica.url)


def test_a_full_engine_refuses_writes_and_loses_none(new_server: Callable[..., Server]) -> None:
    server = new_server(**{"maxmemory-policy": "noeviction"})
    with Bus.connect(server.url, **SUBJECT, max_observations=10_000) as bus, server.client() as client:
        prepared = {name: prepare(operation, bus) for name, operation in OPERATIONS.items()}
        seen = bus.page().list(limit=None)
        client.config_set("maxmemory", "1mb")
        assert_refused_everywhere(bus, prepared, EngineFull)
        assert bus.page().list(limit=None) == seen
        with pytest.raises(EngineFull):
            project(bus)
        assert check(bus) == []
        client.config_set("maxmemory", "0")
        project(bus)
        assert check(bus) == []


def test_a_full_engine_serves_reads_of_many_unfolded_events(new_server: Callable[..., Server]) -> None:
    server = new_server(**{"maxmemory-policy": "noeviction"})
    with Bus.connect(server.url, source="owner", max_observations=10_000) as bus, server.client() as client:
        first = bus.page().add("observation", "first")
        bus.notes("s").add("a note")
        bus.page().link(first.id, action="goal-1")
        others = [
            NewObservation(type="observation", content=f"{n}", evidence=[first.id]) for n in range(IN_MEMORY + 50)
        ]
        added = [first, *bus.page().add_many(others)]
        client.config_set("maxmemory", "1mb")
        with Bus.connect(server.url, source="reader") as reader:
            assert {each.id for each in reader.page().list(limit=None)} == {each.id for each in added}
            assert [note.content for note in reader.notes("s").list().notes] == ["a note"]
            assert reader.page().consequences(first.id).actions == ["goal-1"]
            assert [motive.id for motive in reader.page().trace("goal-1").motives] == [first.id]
            with reader.view() as view:
                assert len(view.active()) == len(added)


def test_an_engine_that_fills_up_keeps_acknowledged_writes(new_server: Callable[..., Server]) -> None:
    server = new_server(**{"maxmemory-policy": "noeviction"})
    with Bus.connect(server.url, **SUBJECT, max_observations=100_000) as bus, server.client() as client:
        page, written = bus.page(), 0
        client.config_set("maxmemory", str(client.info("memory")["used_memory"] + 1_000_000))

        def fill() -> None:
            nonlocal written
            while True:
                page.add("observation", "x" * 10_000)
                written += 1

        with pytest.raises(EngineFull, match="raise its maxmemory, then archive old history, which is a write too"):
            fill()
        assert written > 10
        assert log_length(bus) == written
        assert check(bus) == []


def test_an_engine_with_too_few_replicas_refuses_writes(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with Bus.connect(server.url, **SUBJECT) as bus, server.client() as client:
        prepared = {name: prepare(operation, bus) for name, operation in OPERATIONS.items()}
        client.config_set("min-replicas-to-write", 1)
        assert_refused_everywhere(bus, prepared, EngineReadOnly)
        client.config_set("min-replicas-to-write", 0)
        assert check(bus) == []


def test_a_cut_off_replica_without_stale_reads_is_unreachable(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(**{"replica-serve-stale-data": "no"})
    with Bus.connect(server.url, **SUBJECT) as bus, server.client() as client:
        client.replicaof("127.0.0.1", 1)
        for call in (bus.position, bus.page().list, lambda: bus.page().add("observation", "x")):
            with pytest.raises(EngineUnreachable, match="check its primary"):
                call()
        client.replicaof("NO", "ONE")
        assert log_length(bus) == 0


def run_until_killed(client: Redis) -> None:
    with suppress(ResponseError):
        client.eval("while true do end", 0)


def is_busy(client: Redis) -> bool:
    try:
        return not client.ping()
    except ResponseError as error:
        return "BUSY" in str(error)


def test_an_engine_busy_with_a_script_is_unreachable(new_server: Callable[..., Server]) -> None:
    server = new_server(**{"busy-reply-threshold": "10"})
    with Bus.connect(server.url, **SUBJECT) as bus, server.client() as busy, server.client() as client:
        script = threading.Thread(target=run_until_killed, args=(busy,))
        script.start()
        eventually(lambda: is_busy(client))
        with pytest.raises(EngineUnreachable, match="SCRIPT KILL"):
            bus.page().add("observation", "x")
        client.script_kill()
        script.join(30)
        assert log_length(bus) == 0


@pytest.fixture
def loading(new_server: Callable[..., Server]) -> Iterator[tuple[Server, Bus]]:
    """A restarted engine that keeps loading its data until `load` is called, and a bus opened before."""
    server = new_server(**DURABLE)
    with Bus.connect(server.url, source="tester") as bus, server.client() as client:
        bus.page().add("observation", "before")
        client.mset({f"filler-{number}": "x" * 100 for number in range(2_000)})
        client.bgrewriteaof()
        eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        server.kill()
        server.config |= {"key-load-delay": "20000", "loading-process-events-interval-bytes": "1024"}  # microseconds
        server.start(wait=False)
        eventually(server.is_loading)
        yield server, bus


def load(server: Server) -> None:
    """Let an engine finish loading its data."""
    with server.client() as client:
        client.config_set("key-load-delay", "0")


@pytest.mark.slow
def test_a_loading_engine_raises_engine_loading(loading: tuple[Server, Bus]) -> None:
    server, bus = loading
    with pytest.raises(EngineLoading, match="try again in a moment"):
        Bus.connect(server.url)
    with pytest.raises(EngineLoading):
        bus.page().list()
    load(server)
    eventually(lambda: not server.is_loading())
    assert log_length(bus) == 1
    assert check(bus) == []


def test_a_write_waits_for_a_loading_engine(loading: tuple[Server, Bus]) -> None:
    server, bus = loading
    threading.Timer(0.5, load, (server,)).start()
    bus.page().add("observation", "written while the engine loaded", dedupe_key="k")
    assert not server.is_loading()
    assert log_length(bus) == 2


# -- passwords, rights, versions -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def password_server() -> Iterator[Server]:
    server = Server(embedded_binary(), tcp=True, requirepass=SECRET)
    yield server.start()
    server.close()


def urls(server: Server, password: str) -> list[str]:
    """Return URLs with all ways to give a password."""
    word = quote(password, safe="")
    return [
        f"redis://:{word}@127.0.0.1:{server.port}",
        f"redis://default:{word}@127.0.0.1:{server.port}/0",
        f"redis://127.0.0.1:{server.port}?password={word}",
        f"unix://:{word}@{server.socket}",
        f"unix://default:{word}@{server.socket}?db=0",
        f"unix://{server.socket}?password={word}",
    ]


@pytest.mark.parametrize("way", range(6))
def test_the_right_password_is_accepted_and_never_shown(password_server: Server, way: int) -> None:
    url = urls(password_server, SECRET)[way]
    with Bus.connect(url, source="tester") as bus:
        bus.page().add("observation", "behind a password")
        shown = f"{bus.status()} {bus.settings}"
    assert SECRET not in shown
    assert quote(SECRET, safe="") not in shown


@pytest.mark.parametrize("way", range(6))
def test_a_wrong_password_is_refused_and_never_shown(password_server: Server, way: int) -> None:
    with pytest.raises(EngineAuth, match="user name or password") as caught:
        Bus.connect(urls(password_server, "wr0ng/:@?#%")[way])
    assert "wr0ng" not in text_of(caught.value)


async def test_a_wrong_password_is_refused_and_never_shown_under_asyncio(password_server: Server) -> None:
    for url in urls(password_server, "wr0ng"):
        with pytest.raises(EngineAuth) as caught:
            await AsyncBus.connect(url)
        assert "wr0ng" not in text_of(caught.value)


def test_a_missing_password_is_refused(password_server: Server) -> None:
    for url in (password_server.url, password_server.tcp_url):
        with pytest.raises(EngineAuth):
            Bus.connect(url)


def test_ack_fsync_needs_appendfsync_always(new_server: Callable[..., Server]) -> None:
    for config in ({}, {"appendonly": "yes", "appendfsync": "everysec"}):
        with pytest.raises(EngineMisconfigured, match="appendfsync always"):
            Bus.connect(new_server(**config).url, ack="fsync")
    with pytest.raises(EngineMisconfigured, match="set `no-appendfsync-on-rewrite no` on the server"):
        Bus.connect(new_server(**DURABLE, **{"no-appendfsync-on-rewrite": "yes"}).url, ack="fsync")
    Bus.connect(new_server(**DURABLE).url, ack="fsync").close()


@pytest.mark.parametrize("ack", ["fsync", "replica"])
def test_memory_refuses_an_ack_it_cannot_keep(ack: str) -> None:
    with pytest.raises(EngineMisconfigured, match=f"ack={ack}: the memory engine 'm' has no disk and no replicas"):
        Bus.connect("memory://m", ack=ack)


@pytest.mark.parametrize(
    ("info", "named"),
    [
        ("redis_version:6.2.14", "Redis 6.2.14"),
        ("redis_version:5.0.7\r\nredis_mode:standalone", "Redis 5.0.7"),
        ("server_name:odd", "Redis 0"),
    ],
)
def test_an_engine_that_is_too_old_is_refused(info: str, named: str) -> None:
    asked: list[bytes] = []

    def answer(command: list[bytes]) -> bytes:
        asked.append(command[0].upper())
        return bulk(f"# Server\r\n{info}\r\n") if command[0].upper() == b"INFO" else b"+OK\r\n"

    with fake_server(answer) as url, pytest.raises(EngineTooOld, match=f"{named}; scratchbus needs Redis 7.0"):
        Bus.connect(url)
    assert not {b"HSETNX", b"EVALSHA", b"EVAL", b"SET", b"XADD"} & set(asked)


def test_a_server_that_does_not_speak_redis_is_unreachable() -> None:
    with fake_server(lambda command: b"HTTP/1.1 400 Bad Request\r\n\r\n") as url, pytest.raises(EngineUnreachable):
        Bus.connect(url)


def test_an_error_among_replies_does_not_shift_later_ones() -> None:
    """Unread replies must not be taken for those of the next request."""
    busy = [True]

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"INFO":
            return bulk("redis_version:7.2.0\r\n")
        if busy[0] and command[0] != b"CLIENT":
            return b"-LOADING Redis is loading the dataset in memory\r\n"
        return bulk(command[1].decode()) if command[0] == b"GET" else b"+OK\r\n"

    commands: list[tuple[str, ...]] = [("GET", "one"), ("GET", "two"), ("GET", "three")]
    with fake_server(answer) as url:
        driver = target(url, home=None, appendfsync="everysec", socket_timeout=5, connect_timeout=5).engine()
        with pytest.raises(EngineLoading):
            driver.run(ask_all(0, commands))
        busy[0] = False
        assert driver.run(ask_all(0, commands)) == [b"one", b"two", b"three"]
        driver.close()


def test_a_database_that_the_server_lacks_is_refused(new_server: Callable[..., Server]) -> None:
    server = new_server(tcp=True)
    with pytest.raises(EngineMisconfigured, match=r"has no such database .* in the URL, or none"):
        Bus.connect(f"{server.tcp_url}/99")


def test_the_first_read_after_a_restart_succeeds_whatever_connections_there_were(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(**DURABLE)
    with Bus.connect(server.url, source="tester") as bus:
        added = bus.page().add("observation", "before")
        threads = [threading.Thread(target=bus.page().list) for _ in range(8)]
        server.pause()
        for thread in threads:
            thread.start()
        eventually(lambda: len(bus._engine._busy) == len(threads))
        server.go_on()
        for thread in threads:
            thread.join(30)
        server.kill()
        server.start()
        assert bus.page().list() == [added]
