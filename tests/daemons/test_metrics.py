"""Metrics of daemons and of the bus, also while the engine does not answer."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scratchbus import Bus
from scratchbus.daemon.exporter import Exporter
from scratchbus.daemon.metrics import HELP
from scratchbus.errors import SettingsError
from scratchbus.telemetry.counters import BOUNDS, Durations
from tests import launcher
from tests.inspection import keys_of, send
from tests.waiting import eventually

pytestmark = pytest.mark.real

DOCUMENT = Path(__file__).parents[2] / "docs/metrics.md"


@pytest.fixture
def bus(engine):
    with Bus.connect(engine.url, source="tester") as bus:
        yield bus


def address(daemon):
    """Return the URL that a daemon logs for its metrics."""
    eventually(lambda: daemon.has_logged("metrics"), "it logs the URL of its metrics")
    return next(line["url"] for line in daemon.log_lines if line["event"] == "metrics")


def scrape(url):
    """Return the families of metrics by name, and the samples by name and labels."""
    with urlopen(url, timeout=10) as reply:  # noqa: S310  # http, on loopback
        families = {family.name: family for family in text_string_to_metric_families(reply.read().decode())}
    samples = {
        (each.name, *each.labels.values()): each.value for family in families.values() for each in family.samples
    }
    return families, samples


def test_only_one_scrape_fails_when_no_thread_can_be_started(bus, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("can't start new thread")

    exporter = Exporter("127.0.0.1", 0)
    exporter.watching(lambda: bus)()
    with monkeypatch.context() as patched:
        patched.setattr("scratchbus.daemon.exporter.threading.Thread", fail)
        with pytest.raises(RuntimeError):
            exporter._status()
    assert exporter._status() is not None


def test_a_client_that_sends_nothing_is_disconnected(monkeypatch, capfd):
    monkeypatch.setattr("scratchbus.daemon.exporter._SilentHandler.timeout", 0.05)
    exporter = Exporter("127.0.0.1", 0)
    port = int(exporter.url.rsplit(":", 1)[1].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        assert client.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_a_projector_serves_its_counts_and_every_lag(bus, start, page):
    ids = [page.add("observation", f"{number}").id for number in range(3)]
    page.claim(ids[0], by="worker", ttl="1h")
    page.resolve(ids[1])
    with bus.subscribe("router", max_attempts=1) as deliveries:
        next(deliveries).fail("no")
        url = address(start("projector", "--metrics-port", "0"))
        assert url.startswith("http://127.0.0.1:")
        eventually(lambda: scrape(url)[1].get(("scratchbus_events_folded_total",)) == 5, "it has folded all")
        send(bus, "XADD", keys_of(bus).log, "9999999999999-0", "colour", "red")
        families, samples = scrape(url)
    assert samples["scratchbus_up",] == 1
    assert samples["scratchbus_commits_total", "done"] >= 1
    assert samples["scratchbus_log_events", "0"] == 5
    assert samples["scratchbus_projection_lag_events", "scratch_page", "0"] == 0
    assert samples["scratchbus_rejected_events", "scratch_page", "0"] == 0
    assert samples["scratchbus_subscription_lag_events", "router"] == 4
    assert samples["scratchbus_subscription_held", "router"] == 1
    assert samples["scratchbus_dead_letters", "router"] == 1
    assert (samples["scratchbus_pages",], samples["scratchbus_open_observations",]) == (1, 2)
    assert samples["scratchbus_page_open_observations", "main"] == 2
    assert samples["scratchbus_page_live_claims", "main"] == 1
    assert samples["scratchbus_engine_memory_bytes",] > 0
    assert samples["process_resident_memory_bytes",] > 0
    assert samples["scratchbus_foreign_entries", "0"] == 1
    kinds = {name: families[f"scratchbus_{name}"].type for name in ("events_folded", "append_seconds", "up")}
    assert kinds == {"events_folded": "counter", "append_seconds": "histogram", "up": "gauge"}


def test_an_expirer_serves_its_counts(start, page):
    url = address(start("expirer", "--metrics-port", "0"))
    page.add("observation", "a short life", ttl="50ms")
    eventually(lambda: scrape(url)[1].get(("scratchbus_fallen_due_total", "expired")) == 1, "it has counted the expiry")
    _, samples = scrape(url)
    assert samples["scratchbus_sweeps_total",] >= 1
    assert samples["scratchbus_events_appended_total", "status_changed"] == 1
    assert samples["scratchbus_append_seconds_count",] == 1
    assert 0 < samples["scratchbus_append_seconds_sum",] < 10


@pytest.mark.slow
@pytest.mark.alone
def test_a_scrape_is_quick_while_the_engine_hangs_or_is_gone(start, engine, page):
    projector = start("projector", "--metrics-port", "0")
    url = address(projector)
    eventually(lambda: scrape(url)[1]["scratchbus_up",] == 1, "the engine answers")
    os.kill(engine.process.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        _, samples = scrape(url)
        assert time.monotonic() - begun < 4
    finally:
        os.kill(engine.process.pid, signal.SIGCONT)
    assert samples["scratchbus_up",] == 0
    assert ("scratchbus_log_events", "0") not in samples
    assert "scratchbus_events_folded_total" in {name for name, *_ in samples}
    engine.kill()
    eventually(lambda: scrape(url)[1]["scratchbus_up",] == 0, "it reports the engine as down")
    eventually(lambda: projector.has_logged("waiting"), "it waits")
    assert scrape(url)[1]["scratchbus_engine_errors_total", "EngineUnreachable"] >= 1
    engine.start()
    eventually(lambda: scrape(url)[1]["scratchbus_up",] == 1, "the engine is back")


def test_metrics_are_served_before_the_engine_exists(start, tmp_path):
    url = address(start("projector", "--metrics-port", "0", "--url", f"unix://{tmp_path}/none.sock"))
    assert scrape(url)[1]["scratchbus_up",] == 0


def test_a_port_in_use_ends_a_daemon_with_one_line(start):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        daemon = start("projector", "--metrics-port", port)
        assert daemon.process.wait(30) == 5
    (line,) = daemon.err.splitlines()
    assert line == (
        f"projector: metrics on 127.0.0.1:{port}: Address already in use;"
        " choose another port, 0 for a free one, or another host"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--metrics-port", "70000"], 2, "not in the range"),
        (["--metrics-port", "0", "--metrics-host", "192.0.2.1"], 5, "metrics on 192.0.2.1:0: Cannot assign"),
    ],
)
def test_metrics_that_cannot_be_served_end_a_daemon_with_one_line(start, arguments, code, says):
    daemon = start("expirer", *arguments)
    assert daemon.process.wait(30) == code
    (line,) = daemon.err.splitlines()
    assert says in line


def test_without_a_port_prometheus_is_not_imported(engine):
    code = f"""
import sys, scratchbus.cli.run, scratchbus.daemon.command
from scratchbus import Bus
with Bus.connect({engine.url!r}, source="tester") as bus:
    bus.page("main").add("observation", "x")
    bus.status()
assert not [name for name in sys.modules if name.startswith("prometheus_client")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_up_serves_metrics_of_all_its_daemons(engine, page):
    command = launcher.command("-m", "scratchbus.cli", "up", "--metrics-port", "0", "--url", engine.url, "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as up:
        try:
            url = json.loads(up.stdout.readline())["metrics"]
            page.add("observation", "a short life", ttl="50ms")
            eventually(
                lambda: scrape(url)[1].get(("scratchbus_fallen_due_total", "expired")) == 1, "the expirer counts"
            )
            eventually(lambda: scrape(url)[1]["scratchbus_events_folded_total",] == 2, "the projector counts")
        finally:
            up.terminate()
    assert up.returncode == 0


def test_the_document_names_every_metric_and_no_other(bus, start, page):
    page.add("observation", "x")
    with bus.subscribe("router"):
        url = address(start("projector", "--metrics-port", "0"))
        eventually(lambda: scrape(url)[1]["scratchbus_up",] == 1, "the engine answers")
        families, _ = scrape(url)
    exposed = {name + "_total" * (each.type == "counter") for name, each in families.items()}
    served = {name for name in exposed if name.startswith("scratchbus_")} | {"scratchbus_engine_memory_limit_bytes"}
    assert set(re.findall(r"^\| `(scratchbus_\w+)`", DOCUMENT.read_text(), re.MULTILINE)) == served


def test_durations_are_counted_in_the_right_bucket():
    took = Durations()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.1, BOUNDS[-1], BOUNDS[-1] + 1):
        took.add(seconds)
    assert (took.counts[0], took.counts[1], took.counts[-2], took.counts[-1]) == (2, 1, 1, 1)


def test_a_daemon_serves_its_liveness_and_readiness(start, engine, page, tmp_path):
    base = address(start("projector", "--metrics-port", "0")).removesuffix("/metrics")
    eventually(lambda: get_json(f"{base}/readyz")[0] == 200, "the projector is ready")
    engine.kill()
    eventually(lambda: get_json(f"{base}/readyz")[0] == 503, "the projector is no longer ready")
    assert get_json(f"{base}/readyz")[1] == {"status": "waiting", "reason": "the engine did not answer within 1 s"}
    code, health = get_json(f"{base}/healthz")
    assert (code, health["status"]) == (200, "ok")
    assert health["uptime_seconds"] > 0
    engine.start()
    eventually(lambda: get_json(f"{base}/readyz")[0] == 200, "the projector is ready again")
    assert get_json(f"{base}/elsewhere")[0] == 404
    lonely = address(start("expirer", "--metrics-port", "0", "--url", f"unix://{tmp_path}/none.sock"))
    assert get_json(lonely.replace("/metrics", "/readyz"))[1]["reason"].startswith("this process has not connected")


def test_readiness_says_why_the_engine_refuses(bus, engine):
    exporter = Exporter("127.0.0.1", 0)
    exporter.watching(lambda: bus)()
    send(bus, "ACL", "SETUSER", "default", "-@all", "+ping")
    code, answer = get_json(exporter.url.replace("/metrics", "/readyz"))
    assert (code, answer["status"]) == (503, "waiting")
    assert "denies permission" in answer["reason"]


def get_json(url):
    """Return the status and the JSON of a response."""
    try:
        with urlopen(url, timeout=10) as reply:  # noqa: S310  # http, on loopback
            return reply.status, json.load(reply)
    except HTTPError as problem:
        with problem:
            return problem.code, json.load(problem)


@pytest.mark.parametrize("name", HELP)
def test_a_help_text_is_one_self_contained_sentence(name):
    text = HELP[name]
    assert re.fullmatch(r"[A-Z][^\n]{15,110}\.", text), text
    assert not re.match(r"(It|Its|They|Them|Those|These|The oldest|From|Until)\b", text), text
    assert len(text.split()) >= 4, text


def test_a_host_that_cannot_be_one_is_refused():
    with pytest.raises(
        SettingsError, match=r"^metrics on a\.\.b:0: .*; choose another port, 0 for a free one, or another"
    ):
        Exporter("a..b", 0)
