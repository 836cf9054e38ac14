"""The Compose file, tested without Docker: the files it names exist, and the commands it runs work."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from scratchbus.cli import main
from scratchbus.engine.embedded.binary import find_binary
from tests import launcher
from tests.optional_tools import find_tool
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DAEMONS = {name: service for name, service in SERVICES.items() if "build" in service}
GRACE = 10.0
"""Seconds that Docker gives a container to stop before it kills it."""


def _mounts(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the source and target of each mount of a service, with variables replaced by their defaults."""
    for mount in service.get("volumes", ()):
        source, target = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", mount).split(":")[:2]
        yield source, target


@pytest.fixture
def engine() -> Iterator[redis.Redis]:
    """Start a server with the configuration of the Compose file, on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="compose-") as name:
        directory = Path(name)
        path = directory / "engine.sock"
        log = directory / "engine.log"
        server = find_binary(None, directory).path
        command: list[str | Path] = [server, ROOT / "config/redis.conf", "--port", "0", "--unixsocket", path]
        with open(log, "wb") as output, subprocess.Popen(command, cwd=directory, stdout=output) as process:
            try:
                eventually(lambda: path.exists() or process.poll() is not None, "the engine's socket")
                assert process.poll() is None, log.read_text()
                with closing(redis.Redis(unix_socket_path=str(path), protocol=3)) as client:
                    yield client
            finally:
                process.kill()


def _runnable(command: str, service: dict[str, Any], host: Path) -> list[str]:
    """Adapt a command to this machine: this Python, directories of the test, a free port on loopback."""
    for source, target in _mounts(service):
        if not source.startswith("."):  # a volume or a directory of the host, not a file of the project
            command = command.replace(target, str(host))
    for port in service["expose"]:
        command = command.replace(f"--metrics-port {port} --metrics-host 0.0.0.0", "--metrics-port 0")
    command = re.sub(r" 0\.0\.0\.0:\d+", " 127.0.0.1:0", command)
    return launcher.command("-m", "scratchbus.cli", *shlex.split(command))


def _health(service: dict[str, Any], said: str) -> list[str]:
    """Adapt the health check of a service to this machine: this Python, the address that it printed."""
    kind, program, *arguments = service["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    at = re.search(r"http://127\.0\.0\.1:(\d+)(?:/metrics|\s)", said)
    assert at, said
    checked = [re.sub(r"http://(127\.0\.0\.1|localhost):\d+", f"http://127.0.0.1:{at[1]}", each) for each in arguments]
    return [sys.executable, *checked]


def test_the_server_configuration_leaves_users_and_files_to_its_operator():
    """A server may rewrite the file it was started with, and what it writes there overrides `requirepass`."""
    lines = [line for line in (ROOT / "config/redis.conf").read_text().splitlines() if line and line[0] != "#"]
    assert {"port 6379", "bind * -::*", "appendonly yes"} < set(lines)
    assert {line.split()[0] for line in lines}.isdisjoint({"user", "requirepass", "dir", "logfile"})


def test_compose_starts_one_engine_and_spare_daemons():
    replicas = {name: service.get("deploy", {}).get("replicas", 1) for name, service in SERVICES.items()}
    assert replicas == {
        "redis": 1, "projector": 2, "expirer": 2, "archiver": 1, "logwatch": 1, "router": 1, "executor": 1,
        "evaluator": 1, "serve": 1, "mcp": 1,
    }  # fmt: skip
    assert SERVICES["redis"]["image"] == "redis:8"


def test_the_compose_file_matches_its_schema():
    tool = find_tool("check-jsonschema", "make docs")
    done = subprocess.run(
        [tool, "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_mounted_files_exist(name: str):
    declared = COMPOSE["volumes"]
    missing = [
        source
        for source, _ in _mounts(SERVICES[name])
        if not (source in declared or Path(source).is_absolute() or (ROOT / source).exists())
    ]
    assert missing == []


@pytest.mark.parametrize("name", DAEMONS)
def test_every_service_reads_the_archive(name: str):
    service = DAEMONS[name]
    assert ("archive", service["environment"]["SCRATCHBUS_ARCHIVE_URL"]) in _mounts(service)


def test_the_engine_uses_the_mounted_configuration():
    mounted = {target: source for source, target in _mounts(SERVICES["redis"])}
    _, configuration, *limit = shlex.split(SERVICES["redis"]["command"])
    assert limit == ["--maxmemory", "1gb"]  # an engine that evicts nothing must refuse writes in time
    assert (ROOT / mounted[configuration]).samefile(ROOT / "config/redis.conf")


@pytest.mark.real
def test_the_engine_persists_and_never_evicts(engine: redis.Redis):
    settings = {name: engine.config_get(name)[name] for name in ("appendonly", "appendfsync", "maxmemory-policy")}
    assert settings == {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_waits_for_a_healthy_engine(name: str):
    daemon = DAEMONS[name]
    assert daemon["environment"]["SCRATCHBUS_URL"] == "redis://redis:6379"
    assert daemon["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert "healthcheck" in SERVICES["redis"]


@pytest.mark.parametrize("name", DAEMONS)
def test_a_container_is_confined_and_has_a_health_check(name: str):
    service = DAEMONS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"]["test"][-1].count("/healthz") == 1
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_memory_limit(name: str):
    assert re.fullmatch(r"\d+[MG]", SERVICES[name]["deploy"]["resources"]["limits"]["memory"])


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_starts_is_healthy_and_stops_on_sigterm(name: str, engine: redis.Redis, tmp_path: Path):
    (tmp_path / "auth.log").touch()
    assert main(["mcp", "token", "add", "me", "--agent", "me", "--tokens", str(tmp_path / "tokens.yaml")]) == 0
    url = f"unix://{engine.connection_pool.connection_kwargs['path']}"
    command = _runnable(DAEMONS[name]["command"], DAEMONS[name], tmp_path)
    said = tmp_path / "said"
    ours = {client["id"] for client in engine.client_list()}

    def is_connected() -> bool:
        assert daemon.poll() is None, said.read_text()
        return any(client["id"] not in ours for client in engine.client_list())

    with (
        open(said, "wb") as output,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "SCRATCHBUS_URL": url, "SCRATCHBUS_ARCHIVE_URL": str(tmp_path / "archive")},
            stdout=output,
            stderr=output,
        ) as daemon,
    ):
        try:
            eventually(is_connected, "the daemon's connection")
            eventually(lambda: "http://127.0.0.1:" in said.read_text(), "the address of the daemon's health check")
            subprocess.run(_health(DAEMONS[name], said.read_text()), check=True, timeout=GRACE)
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(GRACE) == 0, said.read_text()
        finally:
            daemon.kill()
