"""The real daemons on an engine that is killed, hangs, refuses writes, or has a foreign entry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest
from redis import Redis

from daemons import NAMES
from scratchbus import Bus
from scratchbus.engine.embedded.server import ensure_running, stop
from scratchbus.errors import EngineError
from tests import launcher
from tests.faults.checker import Acknowledged, check
from tests.faults.servers import DURABLE, Server
from tests.inspection import keys_of, project
from tests.waiting import eventually

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
DAEMONS = ROOT / "daemons"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a daemon and waits until it works; all are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(name: str, url: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "SCRATCHBUS_URL": url, "SCRATCHBUS_SWEEP_INTERVAL": "50ms",
            "SCRATCHBUS_ARCHIVE_URL": str(tmp_path / "archive"),
        }  # fmt: skip
        program = ["-m", "scratchbus.cli", "up"] if name == "up" else [DAEMONS / f"{name}.py"]
        said = tmp_path / f"{name}-{len(started)}.err"
        with said.open("wb") as file:
            started.append(
                subprocess.Popen(
                    launcher.command(*program, *arguments),
                    env=environment, stdout=subprocess.DEVNULL, stderr=file, cwd=tmp_path,
                )
            )  # fmt: skip
        eventually(lambda: b'"started"' in said.read_bytes())
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.wait()


class Writer:
    """Retries writes until the engine acknowledges them."""

    def __init__(self, connect: Callable[[], Bus]) -> None:
        self._connect = connect
        self.said = Acknowledged()

    def persist(self, write: Callable[[Bus, str, str], object]) -> None:
        event_id, mark = token_hex(8), token_hex(8)
        eventually(lambda: self._tries(write, event_id, mark))
        self.said.event_ids.append(event_id)
        self.said.marks.append(mark)

    def _tries(self, write: Callable[[Bus, str, str], object], event_id: str, mark: str) -> bool:
        with suppress(EngineError), self._connect() as bus:
            write(bus, event_id, mark)
            return True
        return False


def add_brief(bus: Bus, event_id: str, mark: str) -> None:
    bus.page().add("reminder", mark, ttl="100ms", event_id=event_id)


def is_idle(bus: Bus) -> bool:
    """Return whether all events are folded and nothing is open: the daemons have done their work."""
    with suppress(EngineError):
        status = bus.status()
        return status.shards[0].lag == 0 and all(page.open == 0 for page in status.pages)
    return False


def stop_all(daemons: list[subprocess.Popen[bytes]]) -> None:
    """Stop daemons, and check that they exit with 0 soon."""
    for daemon in daemons:
        daemon.send_signal(signal.SIGTERM)
    assert [daemon.wait(30) for daemon in daemons] == [0] * len(daemons)


def assert_all_ended_once(bus: Bus, said: Acknowledged) -> None:
    ends = Counter(event.subject for event in bus.events(kinds={"status_changed"}))
    assert len(ends) == len(said.marks)
    assert set(ends.values()) == {1}
    assert check(bus, said) == []


@pytest.mark.slow
def test_daemons_survive_repeated_engine_kills(new_server: Callable[..., Server], start: Start) -> None:
    server = new_server(**DURABLE)
    daemons = [start(name, server.url) for name in ("projector", "expirer", "projector", "expirer")]
    writer = Writer(lambda: Bus.connect(server.url, source="writer", ack="fsync"))
    for _ in range(4):
        for _ in range(10):
            writer.persist(add_brief)
        server.kill()
        server.start()
    with Bus.connect(server.url) as bus:
        eventually(lambda: is_idle(bus))
        stop_all(daemons)
        assert_all_ended_once(bus, writer.said)


def test_daemons_survive_a_hanging_engine(new_server: Callable[..., Server], start: Start) -> None:
    server = new_server(**DURABLE)
    daemons = [start(name, server.url) for name in ("projector", "expirer")]
    with Bus.connect(server.url, source="writer") as bus:
        writer = Writer(lambda: Bus.connect(server.url, source="writer"))
        writer.persist(add_brief)
        eventually(lambda: is_idle(bus))
        server.pause()
        with pytest.raises(EngineError):
            Bus.connect(server.url, socket_timeout="100ms")
        server.go_on()
        writer.persist(add_brief)
        eventually(lambda: is_idle(bus))
        stop_all(daemons)
        assert_all_ended_once(bus, writer.said)


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "bad", "good"), [("maxmemory", "1mb", "0"), ("min-replicas-to-write", "1", "0")])
def test_daemons_survive_an_engine_that_refuses_writes(
    new_server: Callable[..., Server], start: Start, tmp_path: Path, setting: str, bad: str, good: str
) -> None:
    server = new_server(**DURABLE)
    with Bus.connect(server.url, source="writer") as bus, server.client() as client:
        bus.page().add("reminder", "ends while nobody can write", ttl="100ms")
        client.config_set(setting, bad)
        daemons = [start(name, server.url) for name in ("projector", "expirer")]
        logs = [tmp_path / "projector-0.err", tmp_path / "expirer-1.err"]
        eventually(lambda: all(b'"waiting"' in log.read_bytes() for log in logs))
        client.config_set(setting, good)
        eventually(lambda: is_idle(bus))
        eventually(lambda: all(b'"going on"' in log.read_bytes() for log in logs))
        stop_all(daemons)
        for log in logs:
            said = [json.loads(line)["event"] for line in log.read_text().splitlines()]
            assert [said.count(word) for word in ("started", "waiting", "going on", "stopped")] == [1, 1, 1, 1]
        assert check(bus) == []


def test_daemons_wait_for_the_repair_of_a_foreign_entry(
    new_server: Callable[..., Server], start: Start, tmp_path: Path
) -> None:
    server = new_server(**DURABLE)
    with Bus.connect(server.url, source="writer") as bus, server.client() as client:
        bus.page().add("reminder", "ends while nobody can write", ttl="100ms")
        client.xadd(keys_of(bus).log, {"by": "hand"}, id="9999999999999-1")
        daemons = [start(name, server.url) for name in ("up", "expirer")]
        logs = [tmp_path / "up-0.err", tmp_path / "expirer-1.err"]
        eventually(lambda: all(b'"waiting"' in log.read_bytes() and b"repair" in log.read_bytes() for log in logs))
        assert [entry.stream_id for entry in bus.repair()] == ["9999999999999-1"]
        eventually(lambda: is_idle(bus))
        stop_all(daemons)
        assert check(bus) == []


@pytest.mark.slow
@pytest.mark.alone
def test_daemons_stop_within_seconds_while_the_engine_hangs(
    new_server: Callable[..., Server], start: Start, tmp_path: Path
) -> None:
    server = new_server(**DURABLE)
    (tmp_path / "auth.log").touch()
    names = ["up", *NAMES]
    options = {"logwatch": ("--log", "auth.log", "--follow")}
    daemons = {name: start(name, server.url, *options.get(name, ())) for name in names}
    server.pause()
    for daemon in daemons.values():
        daemon.send_signal(signal.SIGTERM)
    within = 10.0  # the time after which Docker would kill them
    eventually(lambda: all(daemon.poll() is not None for daemon in daemons.values()), "the end of all daemons", within)
    assert {name: daemon.returncode for name, daemon in daemons.items()} == dict.fromkeys(names, 0)
    for said in tmp_path.glob("*.err"):
        lines = [json.loads(line)["event"] for line in said.read_text().splitlines()]
        assert (lines[0], lines[-1]) == ("started", "stopped")


def test_a_forbidden_expirer_exits_with_one_line_and_its_code(
    new_server: Callable[..., Server], start: Start, tmp_path: Path
) -> None:
    server = new_server(tcp=True, **DURABLE)
    with Bus.connect(server.url, source="writer") as bus, server.client() as client:
        bus.page().add("reminder", "nobody may sweep it", ttl="1ms")
        client.acl_setuser("weak", enabled=True, passwords=["+w"], keys="*", commands=["+@all", "-eval", "-evalsha"])
    expirer = start("expirer", f"redis://weak:w@127.0.0.1:{server.port}")
    assert expirer.wait(30) == 6
    *logged, last = (tmp_path / "expirer-0.err").read_text().splitlines()
    assert last.startswith("expirer: ")
    assert "use a user with the right role" in last
    assert [json.loads(line)["event"] for line in logged] == ["started"]


@pytest.mark.parametrize("name", ["router", "executor", "evaluator"])
@pytest.mark.parametrize("change", [["resetpass", ">new"], ["-xread"]], ids=["a new password", "a lost right"])
def test_a_running_daemon_that_is_refused_exits_with_one_line_and_its_code(
    new_server: Callable[..., Server], start: Start, tmp_path: Path, name: str, change: list[str]
) -> None:
    server = new_server(tcp=True, **DURABLE)
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">old", "~*", "&*", "+@all")
        process = start(name, f"redis://worker:old@127.0.0.1:{server.port}")
        eventually(lambda: is_reading(client), "the daemon waits for events", within=90.0)
        client.execute_command("ACL", "SETUSER", "worker", *change)
        client.client_kill_filter(_type="normal", skipme=True)
    assert process.wait(30) == 6
    *_, last = (tmp_path / f"{name}-0.err").read_text().splitlines()
    assert last.startswith(f"{name}: ")
    assert "worker:***@" in last


def is_reading(client: Redis) -> bool:
    """Return whether a client waits for new events."""
    return any(each["cmd"] == "xread" for each in client.client_list())


def test_daemons_restart_a_killed_embedded_engine(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "e"
    url = f"embedded:{directory}"
    try:
        with Bus.connect(url, source="writer", ack="fsync", appendfsync="always") as bus:
            bus.page().add("reminder", "ends after the engine was killed", ttl="100ms")
        daemons = [start(name, url) for name in ("projector", "expirer")]
        engine = ensure_running(directory)
        os.kill(engine.pid, signal.SIGKILL)
        eventually(lambda: ensure_running(directory).pid != engine.pid)
        with Bus.connect(url, source="writer") as bus:
            eventually(lambda: is_idle(bus))
            stop_all(daemons)
            project(bus)
            assert [event.kind for event in bus.events()] == ["added", "status_changed"]
            assert check(bus) == []
    finally:
        stop(directory)
