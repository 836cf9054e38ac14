"""The choice of the server program, and the errors when none is usable."""

import shutil
from pathlib import Path

import pytest

from scratchbus.engine.embedded import binary
from scratchbus.engine.embedded import directory as engine_directory
from scratchbus.engine.embedded.directory import Origin
from scratchbus.engine.embedded.server import ensure_running, stop
from scratchbus.errors import EngineMissing, EngineNotStarted, ForeignData
from tests.log.engine_processes import client, edit_record, kill


def fake_server(path: Path, says: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(mode)
    return path


def test_without_a_server_program_the_error_says_what_to_install(directory, without_engines):
    with pytest.raises(EngineMissing, match=r"pip install 'scratchbus\[embedded\]'.* redis-server 7.0 or newer"):
        ensure_running(directory)


def test_an_outdated_server_program_is_named(directory, without_engines):
    fake_server(without_engines / "redis-server", "Redis server v=6.2.14 sha=0")
    with pytest.raises(EngineMissing, match=r"redis-server is redis 6\.2\.14, older than 7\.0"):
        ensure_running(directory)


def test_a_program_that_is_not_an_engine_is_named(directory, without_engines):
    fake_server(without_engines / "valkey-server", "hello")
    with pytest.raises(EngineMissing, match="valkey-server does not say that it is Valkey or Redis"):
        ensure_running(directory)


def test_a_program_that_does_not_run_is_named(directory, without_engines):
    (without_engines / "valkey-server").write_bytes(b"\x7fELF of another machine")
    (without_engines / "valkey-server").chmod(0o755)
    with pytest.raises(EngineMissing, match=r"valkey-server does not run: .*Exec format error"):
        ensure_running(directory)


def test_the_data_decides_between_two_server_programs(tmp_path, without_engines):
    fake_server(without_engines / "valkey-server", "Valkey server v=9.1.2 sha=0")
    fake_server(without_engines / "redis-server", "Redis server v=7.4.0 sha=0")
    assert binary.find_binary(None, tmp_path).origin == Origin("valkey", "9.1.2")
    assert binary.find_binary(Origin("redis", "7.0.15"), tmp_path).origin == Origin("redis", "7.4.0")


def test_a_lost_executable_bit_is_restored(tmp_path, without_engines, monkeypatch):
    bundled = fake_server(tmp_path / "valkey-server", "Valkey server v=9.1.2 sha=0", mode=0o644)
    monkeypatch.setattr(binary, "_bundled", lambda: iter([bundled]))
    assert binary.find_binary(None, tmp_path).path == bundled


def test_a_failed_start_shows_the_reason_of_the_server(directory):
    engine = ensure_running(directory)
    with client(engine) as redis:
        redis.set("key", "value")
    stop(directory)
    (log,) = (directory / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"nonsense" + log.read_bytes())
    edit_record(directory, version="8.0.0")
    with pytest.raises(
        EngineNotStarted, match=r"did not start: .*Bad file format reading the append only file"
    ) as error:
        ensure_running(directory)
    assert "\n" not in str(error.value)
    record = engine_directory.read_record(directory)
    assert record is not None
    assert record.version == "8.0.0"


def test_a_refused_configuration_is_shown(directory, without_engines):
    server = without_engines / "redis-server"
    server.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Redis server v=7.4.0 sha=0"; exit 0; fi\n'
        'echo "*** FATAL CONFIG FILE ERROR ***" >&2; exit 1\n'
    )
    server.chmod(0o755)
    with pytest.raises(EngineNotStarted, match=r"did not start: \*\*\* FATAL CONFIG FILE ERROR .* \(see .*log"):
        ensure_running(directory)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_the_installed_redis_can_be_the_engine(directory, monkeypatch):
    monkeypatch.setattr(binary, "_bundled", lambda: iter(()))
    monkeypatch.setattr(shutil, "which", lambda name, which=shutil.which: which(name) if "redis" in name else None)
    engine = ensure_running(directory, appendfsync="always")
    assert (engine.engine, engine.appendfsync) == ("redis", "always")
    with client(engine) as redis:
        redis.set("key", "value")
    kill(engine)
    with client(ensure_running(directory)) as redis:
        assert redis.get("key") == "value"
    stop(directory)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(ForeignData, match=r"which valkey .* cannot be trusted to read"):
        ensure_running(directory)
