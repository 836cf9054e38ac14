"""`scratchbus serve`, `up --serve` and `demo --serve` as commands: where they listen, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import anyio
import httpx2
import pytest
import trustme
import uvicorn

from scratchbus import McpTokens
from scratchbus.http import main
from scratchbus.http.routes import console
from tests import launcher
from tests.edges.conftest import ROOT
from tests.edges.http.conftest import Tokens, serving, serving_here
from tests.edges.test_demo import processes_of
from tests.waiting import PATIENCE, eventually


def refused(*arguments: str) -> tuple[int, str]:
    """Run a command that must fail; return its exit code and its error."""
    command = launcher.command("-m", "scratchbus.cli", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr


async def test_an_idle_server_wakes_up_once_a_second_and_stops_at_once(monkeypatch: pytest.MonkeyPatch):
    server, naps, move_on_after = (
        main._NotifyingServer(uvicorn.Config("nothing"), lambda: None),
        [],
        anyio.move_on_after,
    )

    def record(seconds: float) -> anyio.CancelScope:
        naps.append(seconds)
        if len(naps) == 3:
            server.should_exit = True
            server.stopped.set()
        return move_on_after(seconds if server.should_exit else 0)

    monkeypatch.setattr(anyio, "move_on_after", record)
    with anyio.fail_after(PATIENCE):
        await server.main_loop()
    assert naps == [1, 1, 1]


def test_an_address_for_other_machines_needs_tokens():
    code, error = refused("serve", "--listen", "0.0.0.0:0", "--no-open")
    assert code == 5
    assert "'0.0.0.0:0' can be reached from other machines, and so needs tokens: give --tokens FILE" in error


def test_a_tokens_file_without_tokens_is_an_error(tmp_path: Path):
    McpTokens(tmp_path / "t.yaml")
    code, error = refused("serve", "--listen", "0", "--tokens", str(tmp_path / "t.yaml"), "--no-open")
    assert (code, "has no tokens; add one with `scratchbus mcp token add NAME --agent AGENT" in error) == (5, True)


@pytest.mark.parametrize("where", ["nowhere", "99999", "127.0.0.1:x", "no.such.host.invalid:80"])
def test_an_invalid_address_is_an_error(where):
    code, error = refused("serve", "--listen", where, "--no-open")
    assert code == 5
    assert where in error


def test_a_port_in_use_is_an_error(served):
    port = served.url.rpartition(":")[2]
    code, error = refused("serve", "--listen", port, "--no-open")
    assert (code, f"cannot listen on {port}: Address already in use; choose another port" in error) == (5, True)


def test_an_invalid_key_file_is_an_error(tmp_path: Path):
    one, other = trustme.CA().issue_cert("localhost"), trustme.CA().issue_cert("localhost")
    one.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    other.private_key_pem.write_to_path(tmp_path / "key.pem")
    cert = ("serve", "--listen", "0", "--no-open", "--cert", str(tmp_path / "cert.pem"))
    for key in ("key.pem", "missing.pem"):
        code, error = refused(*cert, "--cert-key", str(tmp_path / key))
        assert code == 5
        assert "give PEM files with --cert and --cert-key" in error
        assert "Traceback" not in error


def test_a_server_with_tokens_listens_on_all_addresses(embedded_url, tmp_path: Path):
    tokens = Tokens(tmp_path / "tokens.yaml")
    token = tokens.add("one", "read")
    arguments = ("--tokens", str(tokens.path), "--listen", "0.0.0.0:0")
    with serving(embedded_url, *arguments) as running, running.client(token) as http:
        assert http.get("/me", headers={"Host": "bus.example"}).status_code == 200


def test_only_configured_host_names_are_answered(embedded_url, tmp_path: Path):
    with serving(embedded_url, "--host", "Bus.example") as running, running.client() as http:
        port = running.url.rpartition(":")[2]
        for host, status in (("bus.example", 200), (f"BUS.example:{port}", 200), ("bus.example:1", 421)):
            assert http.get("/me", headers={"Host": host}).status_code == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_with_connected_clients(embedded_url, number):
    with serving(embedded_url) as running, running.client() as http:
        assert http.get("/me").status_code == 200
        running.process.send_signal(number)
        assert running.process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_up_serve_runs_the_server_and_the_expirer(tmp_path: Path):
    with tempfile.TemporaryDirectory(prefix="up-") as home:
        command = launcher.command("-m", "scratchbus.cli", "up", "--serve", "--listen", "0", "--json")
        environment = {**os.environ, "SCRATCHBUS_HOME": home}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                started = json.loads(process.stdout.readline())
                headers = {"Authorization": f"Bearer {started['open'].partition('key=')[2]}"}
                with httpx2.Client(base_url=f"{started['http']}/api/v1", headers=headers, timeout=PATIENCE) as http:
                    new = {"type": "observation", "content": "x", "ttl": "1s"}
                    added = http.post("/pages/main/observations", json=new).json()
                    path = f"/pages/main/observations/{added['id']}/history"
                    eventually(lambda: len(http.get(path).json()["items"]) == 2)  # the expirer runs
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()
                subprocess.run(launcher.command("-m", "scratchbus.cli", "stop"), cwd=ROOT, env=environment, check=False)


def test_server_options_need_serve():
    code, error = refused("up", "--listen", "0")
    assert (code, "the options of a server need --serve" in error) == (2, True)
    code, error = refused("demo", "--serve", "--json")
    assert (code, "leave --json out" in error) == (2, True)


def test_the_console_is_compressed_before_the_first_request(embedded_url):
    directory = Path(console.__file__).parents[1] / "console"
    shown = [path for path in directory.rglob("*") if path.is_file() and path.suffix not in (".md", ".pyc")]
    console._read.cache_clear()
    with serving_here(embedded_url) as running:
        eventually(lambda: console._read.cache_info().currsize == len(shown), "all files of the console are read")
        httpx2.get(f"{running.url}/console/views.js").raise_for_status()
        assert (console._read.cache_info().misses, console._read.cache_info().hits) == (len(shown), 1)


def test_a_licence_of_the_console_is_served(served):
    answer = httpx2.get(f"{served.url}/console/vendor/LICENSE-preact")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert "MIT" in answer.text


@pytest.mark.slow
@pytest.mark.real
def test_the_demo_serves_the_console_until_a_signal():
    code = "import sys, scratchbus; from daemons.demo import run_demo; "
    code += "sys.exit(run_demo(serve=scratchbus.serving_http, pause=0.05))"
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": name, "COLUMNS": "200"}
        command = launcher.command("-c", code)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1) as process:
            try:
                lines = iter(process.stdout.readline, "")
                opened = next(line for line in lines if "Console: " in line).split()[-1]
                url, _, key = opened.partition("/?key=")
                headers = {"Authorization": f"Bearer {key}"}
                with httpx2.Client(base_url=f"{url}/api/v1", headers=headers, timeout=PATIENCE) as http:
                    assert http.get("/me").json()["source"] == "demo"
                    assert next(line for line in lines if "The demo is over" in line)
                    found = http.get("/pages/main/observations", params={"type": "risk_alert"}).json()["items"]
                    assert {each["status"] for each in found} == {"resolved", "active"}
                process.send_signal(signal.SIGINT)
                assert "All daemons ended with exit code 0" in process.stdout.read()
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()
        assert list(Path(name).iterdir()) == []
        assert processes_of(Path(name)) == []


@pytest.mark.parametrize("where", ["a..b:0", f"{'x' * 70}:0", "9" * 5_000])
def test_an_address_that_cannot_be_one_is_refused(where):
    code, error = refused("serve", "--listen", where, "--no-open")
    assert (code, "choose another port or host" in error or "is not an address to listen on" in error) == (5, True)


@pytest.mark.parametrize("option", ["--tokens", "--cert"])
def test_an_empty_path_is_refused(option):
    """As from a variable of the shell that is not set: without a certificate, all would go unencrypted."""
    more = ("--cert-key", "") if option == "--cert" else ()
    code, error = refused("serve", "--listen", "0", "--no-open", option, "", *more)
    assert code == 5, error
    assert error.startswith("scratchbus: .: "), error
