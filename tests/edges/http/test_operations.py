"""Status, archive, verification, rebuilding and metrics over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.daemon import counts
from scratchbus.engine.steps import ask
from scratchbus.http.progress import _events
from tests.edges.http.conftest import serving
from tests.edges.http.tokens import serving_holders
from tests.inspection import archive, project
from tests.waiting import PATIENCE, eventually

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def holders(embedded_url, tmp_path_factory):
    with serving_holders(embedded_url, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture
def own_bus() -> str:
    """The name of a bus of the test's own."""
    return f"bus-{token_hex(4)}"


def events_of(text: str) -> list[tuple[str, Any]]:
    found = re.findall(r"event: (\S+)\r?\ndata: (.*?)\r?\n", text)
    return [(kind, json.loads(data)) for kind, data in found]


def test_the_status_equals_that_of_python(http, bus: Bus):
    found = http.get("/status").json()
    own = bus.status().model_dump(mode="json")
    assert found.keys() == own.keys()
    assert (found["bus"], found["types"], found["persistence"]) == (own["bus"], own["types"], own["persistence"])


def test_verify_reports_a_sound_bus(http, bus: Bus, page):
    bus.page(page).add("observation", "x")
    found = http.post("/verify").json()
    assert (found["is_sound"], found["findings"]) == (True, [])
    assert found["events"] == bus.verify().events > 0


@pytest.mark.damages_the_log
def test_verify_reports_findings(embedded_url, own_bus):
    with Bus.connect(embedded_url, bus=own_bus, source="beside") as bus:
        bus.page("main").add("observation", "x")
        bus.converse(ask(0, "DEL", bus.core.log.keys(0).heads("main")))
        with serving(embedded_url, SCRATCHBUS_BUS=own_bus) as served, served.client() as http:
            found = http.post("/verify").json()
    assert found["is_sound"] is False
    assert found["count"] == len(found["findings"]) > 0
    assert {"kind", "where", "what"} == found["findings"][0].keys()


@pytest.mark.parametrize("work", ["verify", "rebuild"])
def test_verify_and_rebuild_stream_their_progress(http, bus: Bus, page, work):
    bus.page(page).add("observation", "x")
    answer = http.post(f"/{work}", headers=STREAM)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *progress, (kind, result) = events_of(answer.text)
    assert (kind, result["events"] > 0) == ("result", True)
    kind, last = progress[-1]
    assert (kind, last["done"] == last["total"] >= result["events"]) == ("progress", True)  # erased ones are passed too


def test_rebuild_keeps_the_state(http, bus: Bus, page):
    seen = bus.page(page).add("observation", "x")
    rebuilt = http.post("/rebuild").json()
    assert (rebuilt["events"] > 0, rebuilt["seconds"] > 0) == (True, True)
    assert bus.page(page).get(seen.id) == seen
    assert bus.verify().is_sound


@pytest.mark.damages_the_log
def test_rebuild_over_a_gap_needs_an_option(embedded_url, own_bus):
    with Bus.connect(embedded_url, bus=own_bus, source="beside") as bus:
        page = bus.page("main")
        first, lost, last = (page.add("observation", content) for content in ("first", "lost", "last"))
        project(bus)
        bus.converse(ask(0, "XDEL", bus.core.log.keys(0).log, lost.position.stream_id))
        with serving(embedded_url, SCRATCHBUS_BUS=own_bus) as served, served.client() as http:
            refused = http.post("/rebuild")
            assert (refused.status_code, refused.json()["type"]) == (410, "urn:scratchbus:problem:log-gap")
            assert page.get(lost.id) == lost
            assert http.post("/rebuild", params={"over_gaps": True}).status_code == 200
        assert page.list() == [last, first]


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/status", "read"),
        ("GET", "/archive", "read"),
        ("GET", "/pages", "read"),
        ("GET", "/pages/main", "read"),
        ("GET", "/types", "read"),
        ("POST", "/types/check", "read"),
        ("PUT", "/types", "admin"),
        ("GET", "/relations", "memory"),
        ("PUT", "/relations", "admin"),
        ("POST", "/verify", "admin"),
        ("POST", "/rebuild", "admin"),
    ],
)
def test_operations_need_their_scopes(holders, method, path, scope):
    others = [each for each in ("read", "publish", "act", "admin", "memory") if each != scope]
    with holders.client(f"other-{token_hex(4)}", *others) as other:
        refused = other.request(method, path)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:scratchbus:problem:insufficient-scope")
        assert f"needs the scope {scope}" in refused.json()["detail"]


def test_without_an_archive_there_are_no_segments(http):
    assert http.get("/archive").json() == {"where": None, "is_sound": True, "segments": [], "logs": []}


def test_the_archive_is_listed_and_its_chain_checked(embedded_url, own_bus, tmp_path):
    terms: dict[str, Any] = {"archive_url": str(tmp_path), "archive_segment": 5, "retain": "1ms", "retain_events": 5}
    with Bus.connect(embedded_url, bus=own_bus, source="beside", **terms) as bus:
        for number in range(20):
            bus.page("main").add("observation", str(number))
        archive(bus)
    of_another_bus = tmp_path / "0" / "0000" / f"{1:016d}.manifest.json"
    of_another_bus.parent.mkdir(parents=True)
    of_another_bus.write_text("damaged")
    environment = {"SCRATCHBUS_BUS": own_bus, "SCRATCHBUS_ARCHIVE_URL": str(tmp_path)}
    with serving(embedded_url, **environment) as served, served.client() as http:
        found = http.get("/archive").json()
        (log,) = found["logs"]
        assert str(tmp_path) in found["where"]
        assert sum(each["events"] for each in found["segments"]) == log["events"] == 15
        assert len(found["segments"]) == log["segments"] == 3
        assert (found["is_sound"], log["problems"]) == (True, [])
        of_another_bus.unlink()
        manifests = sorted(each for each in tmp_path.rglob("*.manifest.json") if each.is_file())
        manifests[1].unlink()
        broken = http.get("/archive").json()
    assert (broken["is_sound"], len(broken["segments"])) == (False, 2)
    assert "no segment has events" in str(broken["logs"][0]["problems"])


# -- metrics


def test_requests_are_counted_by_route(http, served, page):
    for _ in range(2):
        http.get(f"/pages/{page}")
    http.get("/pages/no such page")
    http.get("/nowhere")
    text = http.get(f"{served.url}/metrics").text
    assert 'scratchbus_http_requests_total{method="GET",route="/api/v1/pages/{page}",status="200"} 2.0' in text
    assert 'scratchbus_http_requests_total{method="GET",route="/api/v1/pages/{page}",status="422"} 1.0' in text
    assert 'scratchbus_http_request_seconds_count{method="GET",route="/api/v1/pages/{page}"} 3.0' in text
    assert 'route="none",status="404"' in text
    assert page not in re.sub(r"scratchbus_page_.*", "", text)
    assert re.search(r"^scratchbus_up 1.0$", text, re.M)
    assert re.search(r"^scratchbus_http_open_streams 0.0$", text, re.M)


def test_open_streams_are_counted(http, served):
    def opened() -> float:
        found = re.search(r"^scratchbus_http_open_streams (\S+)$", http.get(f"{served.url}/metrics").text, re.M)
        return float(found[1])

    with served.client() as other, other.stream("GET", "/events", headers=STREAM):
        eventually(lambda: opened() == 1)
    eventually(lambda: opened() == 0)


async def test_progress_streams_count_as_open():
    async def work(report: Callable[[int, int], object]) -> dict[str, Any]:
        report(1, 2)
        await asyncio.sleep(PATIENCE)
        return {}

    before = counts.open_streams
    events = _events(work, lambda: None)
    assert (await anext(events)).event == "progress"
    assert counts.open_streams == before + 1
    await events.aclose()
    assert counts.open_streams == before


def test_metrics_need_the_scope_read(holders):
    url = f"{holders.served.url}/metrics"
    with holders.client(f"memory-{token_hex(4)}", "memory") as other:
        assert other.get(url).status_code == 403
    with holders.client(f"reader-{token_hex(4)}", "read") as reader:
        assert reader.get(url).status_code == 200
    with holders.served.client() as nobody:
        assert nobody.get(url).status_code == 401
