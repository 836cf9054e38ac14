"""Two servers behind nginx with the documented configuration; either may get a request."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import trustme

from scratchbus import McpIdentity, McpTokens, new_id
from tests.edges.conftest import ROOT
from tests.edges.http.event_servers import CLIENT, Listener, Served, ServedBus, open_bus
from tests.faults.servers import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.slow

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
NEW = {"type": "observation", "content": "seen"}
SCOPES = ("read", "publish", "act", "admin", "memory")
AT = "x-served-by"
"""The header with the address of the server that answered, which nginx adds here."""


class Proxied(NamedTuple):
    """Two servers of a bus behind a proxy, and a client of the proxy with all scopes."""

    buses: ServedBus
    servers: dict[str, Served]
    url: str
    tokens: McpTokens
    client: Served

    def served_by(self, answer: httpx2.Response) -> str:
        """Return the address of the server that answered."""
        found: str = answer.headers[AT]
        assert found in self.servers
        return found


def _documented() -> str:
    found = re.search(r"```nginx\n(.*?)```", (ROOT / "docs" / "http.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def _substitute(text: str, **words: str) -> str:
    """Return a configuration with words replaced, each of which it must contain."""
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def _configure(directory: Path, port: int, servers: list[str]) -> Path:
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(directory / "bus.pem")
    site = _substitute(
        _documented(),
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "bus.example.com": "127.0.0.1",
            "/etc/ssl/bus.pem": f"{directory}/bus.pem",
            "/etc/ssl/bus.key": f"{directory}/bus.pem",
            "127.0.0.1:8765": servers[0],
            "127.0.0.1:8766": servers[1],
        },
    )
    folders = "".join(
        f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.getuid() == 0 else ""  # so that the workers can read the directory
    file = directory / "nginx.conf"
    file.write_text(
        f"{user} daemon off; worker_processes 1; pid {directory}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; add_header X-Served-By $upstream_addr always;\n{folders}{site}}}\n"
    )
    return file


@contextmanager
def behind_proxy(engine: str, directory: Path) -> Iterator[Proxied]:
    """Run a proxy and two servers of a new bus until the block ends."""
    if NGINX is None:
        pytest.skip("nginx is not installed; on Debian: apt-get install nginx-light")
    port = free_port()
    tokens = McpTokens(directory / "tokens.yaml")
    token = tokens.add("stranger", McpIdentity.of("stranger", kind="subagent"), scopes=SCOPES)
    options = ("--tokens", str(tokens.path), "--host", f"127.0.0.1:{port}")
    with open_bus(engine) as buses, buses.serve(*options) as one, buses.serve(*options) as two:
        servers = {each.api.split("/")[2]: each for each in (one, two)}
        command = [NGINX, "-e", "stderr", "-p", str(directory), "-c", str(_configure(directory, port, [*servers]))]
        with subprocess.Popen(command, text=True) as process:
            try:
                url = f"https://127.0.0.1:{port}"
                client = Served(f"{url}/api/v1", process, {"Authorization": f"Bearer {token}"})
                eventually(lambda: _answers(f"{url}/healthz"), "nginx answers")
                yield Proxied(buses, servers, url, tokens, client)
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def proxied(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with behind_proxy(embedded_url, tmp_path_factory.mktemp("proxy")) as found:
        yield found


def _answers(url: str) -> bool:
    try:
        return CLIENT.get(url).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture
def page() -> str:
    """The name of a page of the test's own."""
    return f"proxied-{new_id()}"


def test_one_server_reads_and_changes_writes_of_the_other(proxied: Proxied, page):
    served, client = set(), proxied.client
    for number in range(6):
        added = client.post(f"/pages/{page}/observations", {**NEW, "content": f"{number}"})
        path = f"/pages/{page}/observations/{added.json()['id']}"
        read = client.get(path)
        changed = client.request("PATCH", path, {"confidence": 0.5}, if_match=read.headers["etag"])
        late = client.request("PATCH", path, {"confidence": 0.7}, if_match=read.headers["etag"])
        assert [each.status_code for each in (added, read, changed, late)] == [201, 200, 200, 412]
        assert read.json()["content"] == f"{number}"
        served |= {(proxied.served_by(added), proxied.served_by(read))}
    assert all(writer != reader for writer, reader in served)


def test_a_retry_at_the_other_server_writes_nothing(proxied: Proxied, page):
    key = new_id()
    answers = [proxied.client.request("POST", f"/pages/{page}/observations", NEW, idempotency_key=key) for _ in "ab"]
    assert len({proxied.served_by(each) for each in answers}) == 2
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert len(proxied.client.get(f"/pages/{page}/observations").json()["items"]) == 1


def test_a_list_continues_at_the_other_server(proxied: Proxied, page):
    for number in range(5):
        proxied.client.post(f"/pages/{page}/observations", {**NEW, "content": f"{number}"})
    found, served, path = [], set(), f"/pages/{page}/observations?limit=2"
    while path:
        answer = proxied.client.get(path)
        served.add(proxied.served_by(answer))
        found += [each["content"] for each in answer.json()["items"]]
        path = answer.links.get("next", {}).get("url", "").removeprefix("/api/v1")
    assert (found, len(served)) == (["4", "3", "2", "1", "0"], 2)


def test_a_large_body_passes_the_proxy(proxied: Proxied, page):
    batch = [{**NEW, "content": "x" * 60_000} for _ in range(40)]
    assert len(json.dumps(batch)) > 2_400_000
    answer = proxied.client.post(f"/pages/{page}/observations/batch", {"observations": batch})
    assert (answer.status_code, len(answer.json()["items"])) == (201, 40)


def test_a_login_at_one_server_is_valid_at_the_other(proxied: Proxied):
    secret = proxied.client.headers["Authorization"].removeprefix("Bearer ")
    with httpx2.Client(base_url=f"{proxied.url}/api/v1", verify=False, headers={"Origin": proxied.url}) as browser:
        entered = browser.post("/login", json={"token": secret})
        assert entered.status_code == 204
        assert "__Host-" in entered.headers["set-cookie"]
        assert "Secure" in entered.headers["set-cookie"]
        asked = [browser.get("/me") for _ in range(4)]
        assert [each.status_code for each in asked] == [200] * 4
        assert len({proxied.served_by(each) for each in asked}) == 2
        assert browser.post("/logout").status_code == 204
        assert browser.get("/me").status_code == 401


def test_events_are_pulled_at_one_server_and_acked_at_the_other(proxied: Proxied, page):
    client, path = proxied.client, f"/subscriptions/{page}"
    assert client.request("PUT", path, {"pages": [page]}).status_code == 201
    for number in range(6):
        client.post(f"/pages/{page}/observations", {**NEW, "content": f"{number}"})
    found, served = [], []
    for _ in range(3):
        pulled = client.post(f"{path}/pull", {"max": 2, "lease": "1m"})
        batch = pulled.json()
        positions = [each["position"] for each in batch["deliveries"]]
        acked = client.post(f"{path}/ack", {"token": batch["token"], "positions": positions})
        assert (pulled.status_code, acked.status_code) == (200, 204)
        found += [(each["event"]["content"], each["attempt"]) for each in batch["deliveries"]]
        served.append(proxied.served_by(pulled) != proxied.served_by(acked))
    assert found == [(f"{number}", 1) for number in range(6)]
    assert served == [True] * 3
    assert client.post(f"{path}/pull").json()["deliveries"] == []


def test_a_stream_resumes_at_the_other_server_without_a_gap(proxied: Proxied, page):
    def write(count: int) -> list[str]:
        added = (proxied.client.post(f"/pages/{page}/observations", NEW) for _ in range(count))
        return [each.json()["position"] for each in added]

    written: list[str] = []
    seen: list[str] = []
    served, last_id = [], None
    for _ in range(4):
        listener = Listener(proxied.client, f"?page={page}", last_id)
        written += write(2)
        eventually(lambda: listener.positions == written[len(seen) :], "the stream has the events")  # noqa: B023
        served.append(listener.response_header(AT))
        listener.leave()
        seen += listener.positions
        last_id = listener.last_id
        written += write(2)  # while nobody listens; after five requests the next stream is at the other server
    assert seen == written[:-2]
    assert served == [served[0], served[1]] * 2
    assert set(served) == set(proxied.servers)


@pytest.fixture
def mcp(proxied: Proxied) -> Callable[..., httpx2.Response]:
    def ask(token: str, method: str, session: str | None = None, **params: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        headers |= {} if session is None else {"Mcp-Session-Id": session}
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        numbered = body if method.startswith("notifications/") else {**body, "id": 1}
        return CLIENT.post(f"{proxied.url}/mcp", json=numbered, headers=headers)

    return ask


def test_an_mcp_session_stays_at_its_server(proxied: Proxied, mcp):
    served = set()
    for number in range(12):
        token = proxied.tokens.add(f"agent-{number}", McpIdentity.of("analyst", page="mcp"))
        who = {"name": "test", "version": "1"}
        begun = mcp(token, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=who)
        assert begun.status_code == 200, begun.text
        session = begun.headers["mcp-session-id"]
        assert mcp(token, "notifications/initialized", session).status_code == 202
        listed = mcp(token, "tools/list", session)
        assert listed.status_code == 200, listed.text
        assert json.loads(listed.text.partition("data: ")[2] or listed.text)["result"]["tools"]
        assert proxied.served_by(listed) == proxied.served_by(begun)
        served.add(proxied.served_by(begun))
    assert served == set(proxied.servers)


def test_the_other_server_takes_over_when_one_dies(embedded_url, tmp_path, page):
    with behind_proxy(embedded_url, tmp_path) as proxied:
        _kill_one(proxied, page)


def _kill_one(proxied: Proxied, page: str) -> None:
    address, doomed = next(iter(proxied.servers.items()))
    listeners = [Listener(proxied.client, f"?page={page}") for _ in range(2)]
    [cut] = [each for each in listeners if each.response_header(AT) == address]
    doomed.kill()
    eventually(lambda: cut.is_over, "the stream ends with its server")
    added = [proxied.client.post(f"/pages/{page}/observations", NEW) for _ in range(4)]
    assert [each.status_code for each in added] == [201] * 4
    resumed = Listener(proxied.client, f"?page={page}", cut.last_id)
    eventually(lambda: len(resumed.events) == 4, "the stream continues at the other server")
    assert resumed.positions == [each.json()["position"] for each in added]
    for each in {*listeners, resumed} - {cut}:
        each.leave()
