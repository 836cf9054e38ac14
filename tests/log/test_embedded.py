"""The embedded engine, with real processes and real servers."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from scratchbus import Bus
from scratchbus.engine.embedded import directory as engine_directory
from scratchbus.engine.embedded.server import default_directory, ensure_running, find_running, stop
from scratchbus.errors import EngineMisconfigured, EngineReadOnly, EngineUnreachable, SettingsError
from tests.log.engine_processes import client, edit_record, is_alive, kill
from tests.waiting import eventually

STARTER = """\
import sys
from pathlib import Path
from scratchbus.engine.embedded.server import ensure_running
print("here", flush=True)
sys.stdin.readline()
print(ensure_running(Path(sys.argv[1])).pid, flush=True)
"""

LOCK_HOLDER = """\
import sys
from pathlib import Path
from scratchbus.engine.embedded import directory as engine_directory
engine_directory.try_lock(Path(sys.argv[1]) / engine_directory.START_LOCK)
print("here", flush=True)
sys.stdin.readline()
"""


def run_python(code: str, directory: Path) -> subprocess.Popen[str]:
    """Start a Python process; return it once it has printed `here` and waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


def pids_of_starters(directory: Path, count: int) -> set[int]:
    """Let `count` processes ask for the engine at once; return the pids of the engines they got."""
    starters = [run_python(STARTER, directory) for _ in range(count)]
    try:
        for starter in starters:
            assert starter.stdin is not None
            starter.stdin.write("go\n")
            starter.stdin.flush()
        return {int(starter.communicate(timeout=60)[0]) for starter in starters}
    finally:
        for starter in starters:
            starter.kill()
            starter.communicate()


# -- starting ------------------------------------------------------------------------------------------------------


def test_the_first_call_starts_a_persistent_server(directory):
    engine = ensure_running(directory)
    assert (engine.directory, engine.engine, engine.appendfsync) == (directory, "valkey", "everysec")
    with client(engine) as redis:
        expected = {"port": "0", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
        expected["maxmemory-policy"] = "noeviction"
        assert redis.config_get(*expected) == expected
        assert redis.info("server")["process_id"] == engine.pid


def test_a_second_call_returns_the_running_server(directory):
    engine = ensure_running(directory)
    assert ensure_running(directory) == engine
    assert find_running(directory) == engine


def test_a_running_server_keeps_its_appendfsync(directory):
    engine = ensure_running(directory, appendfsync="always")
    assert engine.appendfsync == "always"
    assert ensure_running(directory, appendfsync="everysec") == engine


def test_ack_fsync_names_the_setting_of_the_embedded_engine(directory):
    with pytest.raises(EngineMisconfigured, match="scratchbus stop`, and set SCRATCHBUS_APPENDFSYNC=always"):
        Bus.connect(f"embedded:{directory}", ack="fsync")
    assert stop(directory)
    Bus.connect(f"embedded:{directory}", ack="fsync", appendfsync="always").close()


def test_an_unknown_appendfsync_is_refused(directory):
    with pytest.raises(SettingsError, match="use one of: always, everysec, no"):
        ensure_running(directory, appendfsync="sometimes")
    assert not directory.exists()


def test_only_its_user_can_reach_the_engine(directory):
    engine = ensure_running(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert engine.socket.stat().st_mode & 0o777 == 0o700
    assert (directory / "appendonlydir").stat().st_mode & 0o777 == 0o700


def test_ten_processes_that_start_at_once_get_one_server(directory):
    pids = pids_of_starters(directory, 10)
    running = find_running(directory)
    assert running is not None
    assert pids == {running.pid}


@pytest.mark.slow
def test_ten_processes_that_find_a_killed_server_get_one_new_server(directory):
    killed = ensure_running(directory)
    kill(killed)
    pids = pids_of_starters(directory, 10)
    running = find_running(directory)
    assert running is not None
    assert pids == {running.pid} != {killed.pid}


def test_concurrent_starts_and_stops_never_leave_two_servers(directory):
    def start(_: int) -> int:
        return ensure_running(directory).pid

    def end(_: int) -> bool:
        return stop(directory)

    with ThreadPoolExecutor(8) as pool:
        started = [pool.submit(task, n) for n in range(10) for task in (start, end, start)]
        pids = {result.result() for result in started if not isinstance(result.result(), bool)}
    stop(directory)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_killed_starter_releases_its_lock(directory):
    directory.mkdir()
    starter = run_python(LOCK_HOLDER, directory)
    try:
        with pytest.raises(EngineUnreachable, match="another process is still starting or stopping"):
            ensure_running(directory, timeout=0.1)
    finally:
        starter.kill()
        starter.communicate()
    assert is_alive(ensure_running(directory).pid)


def test_the_engine_survives_its_starter(directory):
    starter = run_python(STARTER, directory)
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write("go\n")
    starter.stdin.flush()
    pid = int(starter.stdout.readline())
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()
    running = find_running(directory)
    assert running is not None
    assert running.pid == pid


# -- crashing ------------------------------------------------------------------------------------------------------


def test_acknowledged_writes_survive_kill_9(directory):
    engine = ensure_running(directory, appendfsync="always")
    with client(engine) as redis:
        written = [redis.xadd("log", {"n": n}) for n in range(100)]
    kill(engine)
    assert find_running(directory) is None
    with client(ensure_running(directory, appendfsync="always")) as redis:
        assert [entry for entry, _ in redis.xrange("log")] == written


def test_the_pid_of_another_process_is_not_taken_for_the_engine(directory):
    killed = ensure_running(directory)
    kill(killed)
    edit_record(directory, pid=os.getpid())
    assert find_running(directory) is None
    assert ensure_running(directory).pid not in (killed.pid, os.getpid())


@pytest.mark.parametrize("text", ["", '{"engine": "valk', "[]", '{"engine": "valkey"}', '{"socket": 7}'])
def test_a_damaged_record_does_not_prevent_a_start(directory, text):
    engine = ensure_running(directory)
    with client(engine) as redis:
        redis.set("key", "value")
    (directory / engine_directory.RECORD).write_text(text)
    assert find_running(directory) == engine
    assert stop(directory)
    with client(ensure_running(directory)) as redis:
        assert redis.get("key") == "value"
    assert engine_directory.read_record(directory) is not None


def test_an_unresponsive_server_is_named_in_the_error(directory):
    engine = ensure_running(directory)
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        with pytest.raises(EngineUnreachable, match=f"process {engine.pid} that serves .* does not answer"):
            ensure_running(directory, timeout=0.2)
        with pytest.raises(EngineUnreachable, match=f"process {engine.pid} .* did not stop; kill it"):
            stop(directory, timeout=0.2)
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    eventually(lambda: not is_alive(engine.pid))  # it then receives the SHUTDOWN that was sent


def test_no_second_server_starts_beside_one_without_a_socket(directory):
    engine = ensure_running(directory)
    engine.socket.unlink()
    with pytest.raises(EngineUnreachable, match=f"process {engine.pid} .* does not answer; stop it"):
        ensure_running(directory, timeout=0.2)
    kill(engine)


# -- stopping ------------------------------------------------------------------------------------------------------


def test_stop_returns_when_the_process_is_gone(directory):
    engine = ensure_running(directory)
    assert stop(directory) is True
    assert not is_alive(engine.pid)
    assert find_running(directory) is None
    assert stop(directory) is False


def test_stopping_without_an_engine_creates_nothing(directory):
    assert stop(directory) is False
    assert find_running(directory) is None
    assert not directory.exists()


def test_stop_loses_nothing(directory):
    with client(ensure_running(directory, appendfsync="no")) as redis:
        redis.set("key", "value")
    stop(directory)
    with client(ensure_running(directory)) as redis:
        assert redis.get("key") == "value"


def test_an_engine_that_cannot_write_to_its_disk_is_not_stopped(directory):
    engine = ensure_running(directory)
    (directory / "appendonlydir" / "appendonly.aof.2.incr.aof").symlink_to("/dev/full")
    with Bus.connect(f"embedded:{directory}") as bus, client(engine) as redis:
        assert bus.status().risks == []
        redis.execute_command("BGREWRITEAOF")  # continues in the next file
        eventually(lambda: redis.info("persistence")["aof_rewrite_in_progress"] == 0)
        redis.set("key", "value")
        eventually(lambda: redis.info("persistence")["aof_last_write_status"] == "err")
        with pytest.raises(EngineReadOnly, match=f"process {engine.pid} .* was not stopped.*; free disk space"):
            stop(directory)
        assert redis.get("key") == "value"
        assert find_running(directory) == engine
        (risk,) = bus.status().risks
        assert risk == "its append-only file lacks the last writes, which a crash would lose; free space on its disk"
    kill(engine)


def test_a_start_during_a_stop_gets_a_new_server(directory):
    old = ensure_running(directory)
    stopped = threading.Thread(target=stop, args=(directory,))
    stopped.start()
    eventually(lambda: find_running(directory) is None)
    new = ensure_running(directory)
    stopped.join()
    assert new.pid != old.pid
    assert find_running(directory) == new


def test_the_default_directory_is_the_users_own(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("SCRATCHBUS_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert default_directory() == Path("/home/ann/.local/share/scratchbus")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_directory() == Path("/data/scratchbus")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_directory() == Path("/home/ann/Library/Application Support/scratchbus")
    monkeypatch.setenv("SCRATCHBUS_HOME", "~/bus")
    assert default_directory() == Path("/home/ann/bus")


def test_a_user_without_a_home_directory_is_told_to_name_one(monkeypatch):
    monkeypatch.delenv("SCRATCHBUS_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(SettingsError, match="set SCRATCHBUS_HOME"):
        default_directory()
