"""Subscriptions over HTTP, at either of two servers."""

import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scratchbus import McpIdentity, McpTokens
from tests.edges.http.event_servers import open_bus
from tests.inspection import send
from tests.waiting import eventually


@pytest.fixture(scope="module")
def served(embedded_url):
    """A bus and two servers of it, which the tests of this module share."""
    with open_bus(embedded_url) as buses, buses.serve() as one, buses.serve() as other_server:
        yield buses, one, other_server


@pytest.fixture
def bus(served):
    return served[0].bus


@pytest.fixture
def server(served):
    return served[1]


@pytest.fixture
def other_server(served):
    return served[2]


@pytest.fixture
def name(server, request):
    """The name of a new subscription, which begins now."""
    name = request.node.name[5:60]
    assert server.request("PUT", f"/subscriptions/{name}", {"after": end_of(server), "retry_delay": 0}).is_success
    yield name
    server.request("DELETE", f"/subscriptions/{name}")


def end_of(server):
    return server.get("/events?last=1").json()["position"]


def fill(bus, count):
    return [bus.page("p1").add("observation", f"{n}") for n in range(count)]


def pull(server, name, **body):
    answer = server.post(f"/subscriptions/{name}/pull", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def contents(batch):
    return [each["event"]["content"] for each in batch["deliveries"]]


def ack(server, name, batch):
    positions = [each["position"] for each in batch["deliveries"]]
    return server.post(f"/subscriptions/{name}/ack", {"token": batch["token"], "positions": positions})


def is_pulled(bus, name):
    """Return whether a client has pulled from a subscription since it was declared."""
    return send(bus, "HEXISTS", bus.core.log.keys(0).subscription(name), "who")


@contextmanager
def waiting_pull(bus, server, name):
    """Pull from a new subscription without events, and yield the connection while the pull waits; then close it."""
    host, port = server.api.split("/")[2].split(":")
    content = b'{"wait": "30s", "lease": "10m"}'
    head = f"POST /api/v1/subscriptions/{name}/pull HTTP/1.1\r\nHost: {host}:{port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(head.encode() + content)
        eventually(lambda: is_pulled(bus, name), "the pull has found no event")
        yield client


def is_open(client, server):
    """Return whether the server still has its end of a connection between these ports."""
    ends = f":{server:04X}", f":{client:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((fields[1][-5:], fields[2][-5:]) == ends for fields in lines)


def test_a_subscription_is_declared_shown_replaced_and_deleted(server):
    path = "/subscriptions/team%2Frouter"
    made = server.request("PUT", path, {"types": ["risk_alert"], "max_attempts": 3})
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/subscriptions/team%2Frouter")
    assert server.request("PUT", path, {"types": ["risk_alert"], "max_attempts": 4}).status_code == 200
    shown = server.get(path).json()
    assert (shown["name"], shown["filters"], shown["max_attempts"]) == ("team/router", {"types": ["risk_alert"]}, 4)
    assert "team/router" in [each["name"] for each in server.get("/subscriptions").json()["items"]]
    assert server.request("DELETE", path).status_code == 204
    assert server.get(path).status_code == 404
    assert server.request("DELETE", path).status_code == 404


def test_events_are_pulled_and_acked_at_different_servers(bus, server, other_server, name):
    fill(bus, 5)
    first = pull(server, name, max=3, lease="1m")
    assert contents(first) == ["0", "1", "2"]
    assert pull(other_server, name)["deliveries"] == []
    assert ack(other_server, name, first).status_code == 204
    assert ack(server, name, first).status_code == 204
    rest = pull(other_server, name)
    assert contents(rest) == ["3", "4"]
    ack(server, name, rest)
    assert pull(server, name) == {"token": None, "until": None, "deliveries": []}


@pytest.mark.slow
def test_a_killed_server_loses_no_event(served, bus, server, name):
    buses, *_ = served
    fill(bus, 4)
    with buses.serve() as doomed:
        batch = pull(doomed, name, max=2, lease="2s")
        doomed.kill()
    assert contents(batch) == ["0", "1"]
    seen: list[tuple[str, int]] = []
    deadline = time.monotonic() + 30
    while len(seen) < 4 and time.monotonic() < deadline:
        batch = pull(server, name, wait="1s")
        seen += [(each["event"]["content"], each["attempt"]) for each in batch["deliveries"]]
        if batch["deliveries"]:
            ack(server, name, batch)
    assert seen == [("0", 2), ("1", 1), ("2", 1), ("3", 1)]


def test_a_pull_waits_for_an_event(bus, server, name):
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(pull(server, name, wait="30s")))
    thread.start()
    eventually(lambda: is_pulled(bus, name), "the pull has found no event")
    fill(bus, 1)
    thread.join(20)
    assert [contents(batch) for batch in found] == [["0"]]


def test_a_client_that_leaves_a_waiting_pull_takes_no_event(bus, server, other_server, name):
    with waiting_pull(bus, server, name) as client:
        ports = client.getsockname()[1], client.getpeername()[1]
    eventually(lambda: not is_open(*ports), "the server has closed the connection")
    fill(bus, 1)
    assert contents(pull(other_server, name, wait="30s")) == ["0"]


def test_failed_events_become_dead_letters_that_are_retried_or_dropped(bus, server, other_server, name):
    server.request("PUT", f"/subscriptions/{name}", {"max_attempts": 1})
    fill(bus, 2)
    batch = pull(server, name)
    for each in batch["deliveries"]:
        body = {"token": batch["token"], "position": each["position"], "reason": "no disk"}
        assert other_server.post(f"/subscriptions/{name}/nack", body).status_code == 204
    found = server.get(f"/dead-letters?subscription={name}").json()["items"]
    assert [(each["reason"], each["attempts"]) for each in found] == [("no disk", 1)] * 2
    path = f"/subscriptions/{name}/dead-letters"
    assert server.post(f"{path}/retry", {"positions": [found[0]["position"]]}).json() == {"count": 1}
    assert server.post(f"{path}/drop").json() == {"count": 1}
    again = pull(server, name)
    assert contents(again) == ["0"]
    ack(server, name, again)
    assert server.get("/dead-letters").json()["items"] == []


def test_a_failed_event_that_cannot_succeed_is_set_aside_before_the_last_attempt(bus, server, other_server, name):
    fill(bus, 2)
    batch = pull(server, name)
    for each, limit in zip(batch["deliveries"], ({"max_attempts": 1}, {"max_attempts": 2}), strict=True):
        body = {"token": batch["token"], "position": each["position"], "reason": "never", **limit}
        assert other_server.post(f"/subscriptions/{name}/nack", body).status_code == 204
    found = server.get(f"/dead-letters?subscription={name}").json()["items"]
    assert [(each["position"], each["attempts"]) for each in found] == [(batch["deliveries"][0]["position"], 1)]
    again = pull(server, name)
    assert contents(again) == ["1"]
    ack(server, name, again)
    assert server.post(f"/subscriptions/{name}/dead-letters/drop").json() == {"count": 1}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("pull", {"max": 0}, 422),
        ("pull", {"max": "many"}, 422),
        ("pull", {"wait": "2m"}, 422),
        ("pull", {"wait": "never"}, 422),
        ("pull", {"lease": None}, 422),
        ("pull", {"speed": 1}, 422),
        ("ack", {"token": "x"}, 422),
        ("ack", {"token": "x", "positions": 7}, 422),
        ("ack", {"token": "x", "positions": [7]}, 422),
        ("ack", {"token": 7, "positions": ["1-1"]}, 422),
        ("ack", {"token": "x", "positions": ["1-1"]}, 409),
        ("nack", {"token": "x", "position": "1-1", "reason": 7}, 422),
        ("nack", {"token": "x", "position": "1-1", "reason": "no"}, 409),
        ("nack", {"token": "x", "position": "1-1", "reason": "no", "max_attempts": 0}, 422),
        ("dead-letters/retry", {"positions": ["1-1"]}, 404),
        ("dead-letters/drop", {"positions": 7}, 422),
    ],
)
def test_an_invalid_request_is_a_problem(server, path, body, status):
    server.request("PUT", "/subscriptions/checked", {"after": "0-0"})
    answer = server.post(f"/subscriptions/checked/{path}", body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize(
    "body",
    [
        {"pages": 7},
        {"kinds": ["exploded"]},
        {"types": []},
        {"tags": [7]},
        {"after": 7},
        {"reset": "yes"},
        {"max_attempts": 0},
        {"retry_delay": "never"},
        {"url": "nowhere"},
        {"url": 7},
        {"url": "https://example.com", "secret": "short"},
        {"colour": "red"},
    ],
)
def test_an_invalid_definition_is_a_problem_and_stores_nothing(server, body):
    answer = server.request("PUT", "/subscriptions/bad", body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert server.get("/subscriptions/bad").status_code == 404


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]:80/",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "http://localhost./",
        "http://db.localhost/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0251.0376.0251.0376/",
        "http://a..example/",
        f"http://{'a' * 64}.example/",
    ],
)
def test_a_webhook_to_a_private_or_impossible_host_is_refused(server, url):
    """It is a conflict, since the URLs match the documented schema."""
    answer = server.request("PUT", "/subscriptions/bad", {"url": url})
    assert (answer.status_code, answer.json()["detail"][:4]) == (409, "url:")
    assert server.get("/subscriptions/bad").status_code == 404


@pytest.mark.slow
def test_each_route_needs_its_scope(served, tmp_path):
    buses, *_ = served
    tokens = McpTokens(tmp_path / "tokens.yaml")
    may = {
        scope: tokens.add(scope, McpIdentity.of(scope), scopes=[scope]) for scope in ("read", "publish", "act", "admin")
    }
    wanted = {
        ("GET", "/subscriptions"): "read",
        ("GET", "/dead-letters"): "read",
        ("GET", "/events"): "read",
        ("GET", "/events/histogram"): "read",
        ("POST", "/subscriptions/s/dead-letters/retry"): "admin",
        ("POST", "/subscriptions/s/dead-letters/drop"): "admin",
        ("DELETE", "/subscriptions/s"): "act",
    }
    with buses.serve("--tokens", str(tmp_path / "tokens.yaml")) as server:
        for (method, path), needed in wanted.items():
            body: Any = None if method in ("GET", "DELETE") else {}
            for scope, secret in sorted(may.items(), key=lambda item: item[0] == needed):
                status = server.request(method, path, body, authorization=f"Bearer {secret}").status_code
                assert (status == 403) == (scope != needed), (method, path, scope, status)
            assert server.request(method, path).status_code == 401


@pytest.mark.slow
def test_pulling_also_needs_read_and_webhooks_also_need_admin(served, tmp_path):
    buses, *_ = served
    tokens = McpTokens(tmp_path / "tokens.yaml")
    scopes = (["act"], ["read"], ["act", "read"], ["act", "read", "admin"], ["act", "admin"])
    may = {"+".join(held): tokens.add("-".join(held), McpIdentity.of("x"), scopes=held) for held in scopes}
    hook = {"url": "https://example.com/"}

    with buses.serve("--tokens", str(tmp_path / "tokens.yaml")) as other:

        def refused(method, path, body):
            statuses = {
                held: other.request(method, path, body, authorization=f"Bearer {secret}").status_code
                for held, secret in may.items()
            }
            return {held for held, status in statuses.items() if status == 403}

        too_few = {"act", "read", "act+admin"}
        assert refused("PUT", "/subscriptions/t", {}) == too_few
        assert refused("POST", "/subscriptions/t/pull", {}) == too_few
        assert refused("PUT", "/subscriptions/t", hook) == {*too_few, "act+read"}
        other.request("PUT", "/subscriptions/t", {}, authorization=f"Bearer {may['act+read']}")  # ends its deliveries
        eventually(lambda: _status(other, "DELETE", "/subscriptions/t", may["act"]) == 204)


def _status(server, method, path, secret):
    return server.request(method, path, authorization=f"Bearer {secret}").status_code


@pytest.mark.slow
def test_a_pull_with_a_revoked_token_gets_no_event(served, bus, name, tmp_path):
    buses, _, other_server = served
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secret = tokens.add("go-daemon", McpIdentity.of("router"), scopes=["act", "read"])
    found: list[Any] = []
    with buses.serve("--tokens", str(tmp_path / "tokens.yaml")) as other:
        other.headers = {"Authorization": f"Bearer {secret}"}
        body = {"wait": "40s", "lease": "10m"}
        thread = threading.Thread(target=lambda: found.append(other.post(f"/subscriptions/{name}/pull", body)))
        thread.start()
        key = bus.core.log.keys(0).subscription(name)
        eventually(lambda: send(bus, "HGET", key, "who") == b"go-daemon")
        begun = time.monotonic()
        tokens.revoke("go-daemon")
        thread.join(30)
    assert [answer.status_code for answer in found] == [401]
    assert time.monotonic() - begun < 20
    fill(bus, 1)
    assert contents(pull(other_server, name, wait="30s")) == ["0"]


@pytest.mark.slow
def test_clients_that_leave_at_an_event_do_not_block_others(bus, server, other_server, name):
    """They close their connections shortly before it."""
    for n in range(20):
        server.request("DELETE", f"/subscriptions/{name}")  # so that nothing shows an earlier pull
        server.request("PUT", f"/subscriptions/{name}", {"after": end_of(server), "retry_delay": 0})
        with waiting_pull(bus, server, name):
            pass
        time.sleep(0.0002 * n)  # the event comes at another moment each time
        fill(bus, 1)
        answers = pull(other_server, name, wait="30s")
        assert contents(answers) == ["0"], n
        assert [each["attempt"] for each in answers["deliveries"]] == [1]
        ack(other_server, name, answers)


@pytest.mark.slow
def test_the_holder_of_a_batch_is_the_name_of_its_token(served, bus, name, tmp_path):
    buses, server, _ = served
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secret = tokens.add("go-daemon", McpIdentity.of("router"), scopes=["act", "read"])
    fill(bus, 1)
    with buses.serve("--tokens", str(tmp_path / "tokens.yaml")) as other:
        other.headers = {"Authorization": f"Bearer {secret}"}
        batch = pull(other, name)
        assert server.get(f"/subscriptions/{name}").json()["holder"] == "go-daemon"
        ack(other, name, batch)
