"""No password is shown by commands, daemons or the list of processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from daemons.demo_crew import Crew
from scratchbus import Bus
from scratchbus.cli import main
from scratchbus.daemon.exit_codes import ENGINE, INVALID_INPUT, OK
from scratchbus.errors import ScratchbusError
from tests import launcher
from tests.faults.servers import Server, embedded_binary
from tests.waiting import eventually

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
SECRET, WRONG = "s3cr3t/:@?#%&=", "wr0ng/:@?#%&="
WORDS = ("s3cr3t", "wr0ng")


@pytest.fixture(scope="module")
def password_server() -> Iterator[Server]:
    server = Server(embedded_binary(), tcp=True, requirepass=SECRET)
    yield server.start()
    server.close()


def urls(server: Server, password: str) -> list[str]:
    word = quote(password, safe="")
    return [
        f"redis://:{word}@127.0.0.1:{server.port}",
        f"redis://default:{word}@127.0.0.1:{server.port}/0",
        f"redis://127.0.0.1:{server.port}?username=default&password={word}",
        f"unix://default:{word}@{server.socket}",
    ]


def assert_not_shown(text: str) -> None:
    assert [word for word in WORDS if word in text] == []


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["active"], ["add", "observation", "x", "--json"]]
)
def test_a_command_shows_no_password(
    password_server: Server,
    way: int,
    command: list[str],
    debug: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCRATCHBUS_DEBUG", debug)
    for password, code in ((SECRET, OK), (WRONG, ENGINE)):
        url = urls(password_server, password)[way]
        monkeypatch.setenv("SCRATCHBUS_URL", url)
        assert main(["--source", "me", *command]) == code
        monkeypatch.delenv("SCRATCHBUS_URL")
        assert main(["--source", "me", "--url", url, *command]) == code
    assert_not_shown("".join(capsys.readouterr()))


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr3t@127.0.0.1:1",
        "redis://user:s3cr3t@127.0.0.1:1/0",
        "redis://127.0.0.1:1?password=s3cr3t",
        "redis://127.0.0.1:1?username=user&password=s3cr3t&db=1",
        "rediss://:s3cr3t@127.0.0.1:1",
        "unix://:s3cr3t@/nowhere/s.sock",
        "unix:///nowhere/s.sock?password=s3cr3t",
        "redis://:s3cr3t@127.0.0.1:port",
        "redis://:s3cr3t/more@127.0.0.1",
        "redis://:more/s3cr3t@127.0.0.1",
        "redis://:more?s3cr3t@127.0.0.1",
        "redis://:more#s3cr3t@127.0.0.1",
        "redis://:s3cr3t@[127.0.0.1",
        "http://:s3cr3t@127.0.0.1",
        "redis://user:s3cr3t@more@127.0.0.1:1",
        "redis+cluster://user:s3cr3t@127.0.0.1:1,127.0.0.1:2",
        "redis+cluster://user:s3cr3t@127.0.0.1:1,user:s3cr3t@127.0.0.1:2/0",
        "redis+sentinel://user:s3cr3t@127.0.0.1:1,127.0.0.1:2/master?db=0",
        "redis+sentinel://127.0.0.1:1,127.0.0.1:2/master?password=s3cr3t&sentinel_password=s3cr3t",
        "redis://127.0.0.1:1?ssl_password=s3cr3t",
        "redis://user:s3cr3t@one:port",
        "redis:/user:s3cr3t@one",
        "redis:user:s3cr3t@one",
        "user:s3cr3t@one:6379",
    ],
)
def test_a_refused_url_does_not_show_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ScratchbusError) as caught:
        Bus.connect(url, connect_timeout="100ms")
    error: BaseException | None = caught.value
    while error is not None:
        assert_not_shown(f"{error} {error!r} {error.args}")
        error = error.__cause__
    monkeypatch.setenv("SCRATCHBUS_URL", url)
    assert main(["active"]) in (ENGINE, INVALID_INPUT)
    assert_not_shown("".join(capsys.readouterr()))


@pytest.mark.parametrize("name", ["projector", "expirer", "logwatch", "router", "executor", "evaluator"])
def test_a_refused_daemon_shows_no_password(password_server: Server, name: str, tmp_path: Path) -> None:
    (tmp_path / "watched.log").touch()
    more = ["--log", str(tmp_path / "watched.log"), "--state", str(tmp_path / "state")] if name == "logwatch" else []
    done = subprocess.run(
        launcher.command(ROOT / f"daemons/{name}.py", "--log-level", "debug", *more),
        env={**os.environ, "SCRATCHBUS_URL": urls(password_server, WRONG)[1]},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == ENGINE, done.stderr
    assert "refuses the user name or password" in done.stderr.splitlines()[-1]
    assert_not_shown(done.stdout + done.stderr)


def test_a_demo_daemon_shows_no_password_in_ps_or_its_log(tmp_path: Path) -> None:
    ps = shutil.which("ps") or pytest.skip("ps is not installed")
    server = Server(embedded_binary(), requirepass=SECRET)
    try:
        variables = {"SCRATCHBUS_URL": f"unix://:{quote(SECRET, safe='')}@{server.start().socket}"}
        with Crew(tmp_path, variables, threading.Event()) as crew:
            process = crew.start("projector", "projector")
            eventually(crew.have_started)
            listed = subprocess.run(
                [ps, "-ww", "-o", "args=", "-p", str(process)], capture_output=True, text=True, check=True
            ).stdout
            assert "run projector" in listed
            assert_not_shown(listed)
            server.kill()
            log = tmp_path / "projector.log"
            eventually(lambda: '"waiting"' in log.read_text())
            assert_not_shown(log.read_text())
    finally:
        server.close()
