"""Events over HTTP: lists, CloudEvents, the histogram, and streams without gaps or duplicates."""

import asyncio
import json
import random
import re
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvloop
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from scratchbus import McpIdentity, McpTokens
from scratchbus.http.client_connections import ClientConnection
from tests.edges.http.event_servers import CLIENT, Listener, open_bus
from tests.waiting import PATIENCE, eventually


@pytest.fixture(scope="module")
def served(embedded_url):
    """A bus and a server of it, which the tests of this module share."""
    with open_bus(embedded_url) as buses, buses.serve() as server:
        yield buses, server


@pytest.fixture
def bus(served):
    return served[0].bus


@pytest.fixture
def server(served):
    return served[1]


def fill(bus, count, pages=6, **more):
    return [bus.page(f"p{n % pages}").add("observation", f"{n}", **more) for n in range(count)]


def positions(events):
    return [str(event.position) for event in events]


# -- lists ------------------------------------------------------------------------------------------------------------


def test_the_pages_of_a_list_show_every_event_once(bus, server):
    start = str(bus.position())
    fill(bus, 25)
    seen, after = list[str](), start
    while after:
        answer = server.get(f"/events?after={quote(after)}&limit=7")
        page = answer.json()
        seen += [each["position"] for each in page["items"]]
        after = page["next"]
        assert ("link" in answer.headers) == (after is not None)
    assert seen == positions(bus.events(start))
    assert page["position"] == str(bus.position())


def test_the_newest_events_are_paged_backwards(bus, server):
    start = str(bus.position())
    fill(bus, 20)
    expected = positions(bus.events(start))
    seen, before = list[str](), ""
    while len(seen) < 20:
        page = server.get(f"/events?last=6{before}").json()
        seen = [each["position"] for each in page["items"]] + seen
        before = f"&before={quote(page['previous'] or '')}"  # None before the first event of the bus
    assert seen[-20:] == expected


def test_filters_select_events(bus, server):
    start = str(bus.position())
    fill(bus, 6)
    alert = bus.page("p1").add("risk_alert", "look")
    query = f"/events?after={quote(start)}"
    assert [each["subject"] for each in server.get(f"{query}&type=risk_alert").json()["items"]] == [alert.id]
    assert [each["subject"] for each in server.get(f"{query}&subject={alert.id}").json()["items"]] == [alert.id]
    assert len(server.get(f"{query}&page=p1&page=p2").json()["items"]) == 3
    assert server.get(f"{query}&kind=erased").json()["items"] == []


def test_the_official_sdk_reads_the_cloud_events(bus, server):
    added = bus.page("p1").add("risk_alert", "look")
    answer = server.get("/events?last=1", accept="application/cloudevents-batch+json")
    assert answer.headers["content-type"] == "application/cloudevents-batch+json"
    (found,) = (JSONFormat().read(CloudEvent, json.dumps(each)) for each in answer.json())
    data: Any = found.get_data()
    assert (found.get_type(), found.get_subject(), found.get_specversion()) == ("scratchbus.added", added.id, "1.0")
    assert (found.get_time(), found.get_extension("page")) == (added.position.at, "p1")
    assert data["content"] == "look"


def test_the_histogram_equals_that_of_python(bus, server):
    fill(bus, 5)
    found = server.get("/events/histogram?buckets=9").json()
    expected = bus.histogram(buckets=9).model_dump(mode="json")
    assert found == expected
    one = server.get("/events/histogram?buckets=3&page=p1").json()
    assert sum(each["count"] for each in one["buckets"]) == len(list(bus.events(pages=["p1"])))


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?after=yesterday", 422),
        ("?kind=exploded", 422),
        ("?last=0", 422),
        ("?before=9-9&after=1-1", 409),
        ("?colour=red", 422),
        ("?page=", 422),
        ("?after=9999999999999-999", 410),
        ("/histogram?since=soon", 422),
        ("/histogram?buckets=1001", 422),
    ],
)
def test_an_invalid_query_is_a_problem(server, query, status):
    answer = server.get(f"/events{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_other_media_types_are_not_acceptable(server):
    assert server.get("/events", accept="text/html").status_code == 406


# -- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_sends_events_as_they_happen(bus, server):
    listener = Listener(server)
    added = fill(bus, 3)
    eventually(lambda: sum(kind == "added" for _, kind, _ in listener.events) == 3)  # besides displacements
    listener.leave()
    added_by_page = {data["page"]: data["subject"] for _, kind, data in listener.events if kind == "added"}
    assert added_by_page == {each.page: each.id for each in added}  # there is no order between shards
    eventually(lambda: listener.last_id == str(bus.position()))


def test_a_stream_sends_only_events_that_match_its_filters(bus, server):
    listener = Listener(server, "?type=risk_alert&page=p1")
    fill(bus, 6)
    bus.page("p2").add("risk_alert", "elsewhere")
    alert = bus.page("p1").add("risk_alert", "look")
    eventually(lambda: listener.events)
    listener.leave()
    assert [data["subject"] for _, _, data in listener.events] == [alert.id]


def test_a_stream_sends_cloud_events_on_request(bus, server):
    listener = Listener(server, accept="text/event-stream, application/cloudevents+json")
    fill(bus, 1)
    eventually(lambda: listener.events)
    listener.leave()
    assert listener.events[0][2]["type"] == "scratchbus.added"


def test_resuming_during_writes_has_no_gaps_or_duplicates(bus, server):
    start = str(bus.position())
    writing = threading.Thread(target=lambda: [fill(bus, 10) for _ in range(40)])
    writing.start()
    seen, last, chance = list[str](), start, random.Random(7)
    try:
        while writing.is_alive() or last != str(bus.position()):
            listener = Listener(server, last_id=last)
            wanted = chance.randrange(1, 90)
            eventually(lambda: len(listener.events) >= wanted or listener.last_id == str(bus.position()))  # noqa: B023
            listener.leave()
            seen += listener.positions
            last = listener.last_id or last
    finally:
        writing.join()
    assert_each_once_in_order(seen, bus, start)


@pytest.mark.slow
def test_a_client_of_a_killed_server_resumes_at_another(served, bus):
    buses, _ = served
    start = str(bus.position())
    with buses.serve() as first, buses.serve() as second:
        listener = Listener(first, last_id=start)
        fill(bus, 20)
        eventually(lambda: len(listener.events) >= 10)
        first.kill()
        eventually(lambda: listener.is_over)
        fill(bus, 20)
        again = Listener(second, last_id=listener.last_id)
        eventually(lambda: len(listener.events) + len(again.events) >= 40)
        again.leave()
    assert_each_once_in_order(listener.positions + again.positions, bus, start)


def assert_each_once_in_order(seen, bus, start):
    """Assert that every event since a position was seen once, and those of each shard in order."""
    assert sorted(seen) == sorted(positions(bus.events(start)))
    by_shard: dict[str, list[int]] = {}
    for position in seen:
        shard, _, id = position.rpartition("/")
        by_shard.setdefault(shard, []).append(int(id.partition("-")[2]))
    assert all(seqs == sorted(seqs) for seqs in by_shard.values())


def test_a_position_beyond_the_log_is_reported_as_rewound(bus, server):
    end = [f"9999999999999-{n + 900}" for n in range(4)]
    listener = Listener(server, last_id=",".join(end))
    eventually(lambda: listener.events)
    assert listener.events[0][1] == "rewound"
    assert listener.last_id == str(bus.position())
    fill(bus, 1)
    eventually(lambda: len(listener.events) >= 2 and listener.events[-1][1] == "added")
    listener.leave()
    assert [kind for _, kind, _ in listener.events if kind != "status_changed"] == ["rewound", "added"]  # of full pages


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(bus, server):
    host, port = server.api.removeprefix("http://").partition("/")[0].split(":")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect((host, int(port)))
        silent.sendall(
            f"GET /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        listener = Listener(server)
        eventually(lambda: open_streams(server) >= 2)
        memory, streams = resident_memory(server), open_streams(server)
        for n in range(100):
            bus.page("big").add("observation", f"{n} " + "x" * 60_000, ttl="1m")
        eventually(lambda: sum(data["page"] == "big" for _, _, data in listener.events) >= 100)
        assert resident_memory(server) - memory < 30_000  # kB: the frames of all streams, and garbage
        eventually(lambda: open_streams(server) == streams - 1, "the end of one stream", within=60)
        assert not listener.is_over
        listener.leave()


def open_streams(server):
    text = CLIENT.get(server.api.removesuffix("/api/v1") + "/metrics", headers=server.headers).text
    return float(re.search(r"^scratchbus_http_open_streams (\S+)$", text, re.M)[1])


def resident_memory(server):
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def test_an_invalid_last_event_id_is_a_problem(server):
    problems = {
        "yesterday": (422, "invalid-request"),
        "1-1,1-2": (404, "invalid-position"),
    }  # the last is of another bus
    for wrong, problem in problems.items():
        answer = server.get("/events", accept="text/event-stream", last_event_id=wrong)
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == problem


@pytest.mark.slow
@pytest.mark.alone
def test_a_stream_ends_soon_after_its_token_is_revoked(served, bus, tmp_path):
    buses, _ = served
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secret = tokens.add("watcher", McpIdentity.of("watcher"), scopes=["read"])
    kept = tokens.add("keeper", McpIdentity.of("keeper"), scopes=["read", "publish"])
    with buses.serve("--tokens", str(tmp_path / "tokens.yaml")) as server:
        server.headers = {"Authorization": f"Bearer {kept}"}
        staying = Listener(server)
        server.headers = {"Authorization": f"Bearer {secret}"}
        listener = Listener(server)
        tokens.revoke("watcher")
        eventually(lambda: listener.is_over, within=5)
        fill(bus, 1)
        eventually(lambda: staying.events)
        staying.leave()
        assert (listener.events, server.get("/events").status_code) == ([], 401)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_limiting_the_buffers_of_a_closed_connection_is_no_error(new_loop):
    async def leave(own: socket.socket) -> None:
        transport, _ = await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, sock=own)
        connection = ClientConnection(transport)
        connection.limit_buffers(1024)
        transport.abort()
        async with asyncio.timeout(PATIENCE):
            while own.fileno() != -1:  # noqa: ASYNC110  # until the loop has closed it
                await asyncio.sleep(0)
        connection.limit_buffers(1024)

    own, other = socket.socketpair()
    with other, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(leave(own))
