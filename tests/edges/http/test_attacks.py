"""Attacks on the server: each test fails without its defence."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import subprocess
import time
from asyncio import BaseTransport
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.requests import ClientDisconnect

import scratchbus
from scratchbus import Bus, NewObservation, new_id
from scratchbus.daemon import counts
from scratchbus.http import client_connections, guard, problems
from scratchbus.http.app import declare_app
from scratchbus.http.callers import SCOPES, LocalUser, TokenHolders
from scratchbus.http.client_connections import MAX_MESSAGE, ClientConnection
from scratchbus.http.guard import MAX_BODY, MAX_PUBLIC_BODY, POLICY, needs_caller
from scratchbus.http.peer_users import NOBODY
from scratchbus.http.server import Need, Server
from tests.edges.http.conftest import Served, Tokens, serving, serving_here
from tests.edges.http.raw import head, send
from tests.waiting import PATIENCE, eventually

NEW = {"type": "observation", "content": "x"}
EVIL = "https://evil.example"


def problem(answer: Any) -> tuple[int, str]:
    """Return the status and the slug of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


@pytest.fixture(scope="module")
def guarded(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Tokens]]:
    """A server with tokens."""
    tokens = Tokens(tmp_path_factory.mktemp("tokens") / "tokens.yaml")
    tokens.add("admin", *SCOPES)
    with serving(embedded_url, "--tokens", str(tokens.path)) as running:
        yield running, tokens


@pytest.fixture
def browser(served: Served) -> Iterator[httpx2.Client]:
    """A browser in which the user has opened the printed URL."""
    with served.client() as client:
        opened = client.get(f"{served.url}/", params={"key": served.key}, headers={"Sec-Fetch-Site": "none"})
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        yield client


class TestOtherSites:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": EVIL},
            {"Origin": "null"},
            {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
            {},
        ],
    )
    def test_another_site_cannot_write_with_the_cookie(self, browser, served, bus: Bus, page, headers):
        answer = browser.post(f"/pages/{page}/observations", json=NEW, headers=headers)
        assert problem(answer) == (403, "foreign-origin")
        assert bus.page(page).list() == []
        own = browser.post(f"/pages/{page}/observations", json=NEW, headers={"Origin": served.url})
        assert own.status_code == 201

    @pytest.mark.parametrize("headers", [{"Origin": EVIL}, {"Sec-Fetch-Site": "cross-site"}])
    def test_another_site_cannot_read_with_the_cookie(self, browser, headers):
        assert problem(browser.get("/me", headers=headers)) == (403, "foreign-origin")
        assert browser.get("/me", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [{"Origin": "own"}, {"Sec-Fetch-Site": "none"}, {"Referer": "own"}, {"User-Agent": "Mozilla/5.0 (X11)"}],
    )
    def test_a_browser_needs_the_cookie(self, served, http, headers):
        given = {name: served.url if value == "own" else value for name, value in headers.items()}
        assert problem(http.get("/me", headers=given)) == (401, "no-token")

    def test_fetch_outside_of_browsers_needs_no_key(self, http):
        assert http.get("/me", headers={"Sec-Fetch-Mode": "cors", "User-Agent": "node"}).status_code == 200

    def test_the_cookie_is_hidden_from_scripts_and_other_sites(self, served):
        with served.client() as client:
            cookie = client.get(f"{served.url}/", params={"key": served.key}).headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))

    def test_no_answer_allows_another_origin(self, browser, served):
        preflight = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
        answers = [browser.options("/me", headers=preflight), browser.get("/me", headers={"Origin": served.url})]
        assert [each.status_code for each in answers] == [403, 200]
        assert not any(name.startswith("access-control-") for each in answers for name in each.headers)

    @pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil.example", ""])
    def test_a_rebound_host_name_is_refused(self, served, http, host):
        port = urlsplit(served.url).port
        assert problem(http.get("/me", headers={"Host": host.format(port=port)})) == (421, "unknown-host")

    def test_a_second_or_missing_host_header_is_refused(self, served):
        assert send(served.url, [head(served.url, "GET /api/v1/me HTTP/1.1", "Host: evil.example")]).status == 421
        without = send(served.url, [b"GET /api/v1/me HTTP/1.1\r\nConnection: close\r\n\r\n"])
        assert without.status == 421


def scopes_of(route: RouteContext) -> tuple[str, ...]:
    """Return the scopes that a route needs."""
    dependencies = (each.call for each in getattr(route, "dependant", Dependant()).dependencies)
    return next((each.scopes for each in dependencies if isinstance(each, Need)), ())


def routes() -> list[Any]:
    """Return the routes of the application, one for each method."""
    app = declare_app(Server(LocalUser("user"), {}))
    return [
        (method, each.path, scopes_of(each), each.name)
        for each in iter_route_contexts(app.routes)
        for method in sorted(each.methods or ("POST",))
    ]


ROUTES = routes()
PUBLIC = {"/", "/healthz", "/readyz", "/console/{path:path}", "/api/v1/openapi.json", "/api/v1/login", "/api/v1/logout"}
WHOAMI = {"/whoami", "/whoami/actions", "/whoami/actions/update_scratchpad"}  # the answer depends on the caller
FOR_ANY_CALLER = {"/api/v1/me", "/mcp", "/metrics"} | WHOAMI


def filled(path: str) -> str:
    """Return a path with values for its parameters."""
    for part, value in (("{id:ulid}", new_id()), ("{note:note}", "note_1"), ("{fact:fact}", "fact_1")):
        path = path.replace(part, value)
    return path.replace("{path:path}", "x").replace("{", "").replace("}", "")


class TestCallers:
    def test_every_route_that_is_not_public_needs_a_scope(self):
        assert {path for _, path, _, _ in ROUTES if not needs_caller(path)} <= PUBLIC
        lacking = {path for _, path, scopes, _ in ROUTES if not scopes} - PUBLIC - FOR_ANY_CALLER
        assert lacking == set()

    @pytest.mark.parametrize(
        ("method", "path"), [(method, path) for method, path, _, _ in ROUTES if path not in PUBLIC], ids=str
    )
    def test_every_route_that_is_not_public_needs_a_token(self, guarded, method, path):
        with guarded[0].client() as http:
            answer = http.request(method, guarded[0].url + filled(path))
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        if method != "HEAD":
            assert problem(answer) == (401, "no-token")

    @pytest.mark.parametrize(
        ("method", "path", "scope"),
        [(method, path, scope) for method, path, scopes, _ in ROUTES for scope in scopes],
        ids=str,
    )
    def test_a_token_without_the_scope_of_a_route_is_refused(self, guarded, method, path, scope):
        served, tokens = guarded
        with served.client(tokens.without(scope)) as http:
            answer = http.request(method, served.url + filled(path))
        assert problem(answer) == (403, "insufficient-scope")
        assert f"needs the scope {scope}" in answer.json()["detail"]

    def test_an_unknown_path_is_401_without_a_token(self, guarded):
        with guarded[0].client() as http:
            assert problem(http.get("/no-such-thing")) == (401, "no-token")

    def test_the_scope_memory_does_not_read_observations(self, guarded):
        served, tokens = guarded
        made = tokens.add("rememberer", "memory")
        with served.client(made) as http:
            for path in ("/recall?query=x", "/recall?query=x&session=s&page=main"):
                assert http.get(path).status_code == 403
            assert http.get("/recall?query=x&session=s").status_code == 200
            assert http.post("/context/assemble", json={"session": "s", "page": "main"}).status_code == 403
            assert http.post("/context/assemble", json={"session": "s"}).status_code == 200
            assert http.post("/context/surface", json={"query": "x"}).status_code == 403

    def test_the_scope_memory_does_not_read_the_evidence_of_facts(self, guarded):
        served, tokens = guarded
        with served.client(tokens.add("writer", "publish", "memory")) as http:
            seen = http.post("/pages/secret/observations", json={"type": "observation", "content": "x"}).json()["id"]
            new = {"subject": "api", "relation": "uses", "object": "Node", "evidence": [seen]}
            fact = http.post("/scopes/s/facts", json=new).json()["id"]
            why = http.get(f"/scopes/s/facts/{fact}").json()
            assert (why["evidence"], why["fact"]["evidence"]) == ([], [seen])
        with served.client(tokens.add("reader", "read", "memory")) as http:
            assert [each["id"] for each in http.get(f"/scopes/s/facts/{fact}").json()["evidence"]] == [seen]

    def test_a_revoked_token_is_refused_at_once(self, guarded):
        served, tokens = guarded
        token = tokens.add("leaver", "read")
        with served.client(token) as http:
            assert http.get("/me").status_code == 200
            tokens.file.revoke("leaver")
            assert problem(http.get("/me")) == (401, "wrong-token")

    def test_a_caller_is_invalid_once_its_token_is_revoked(self, tmp_path: Path):
        tokens = Tokens(tmp_path / "tokens.yaml")
        callers = TokenHolders(scratchbus.McpTokens(tokens.path))
        server = Server(callers, {})
        caller = callers.find(tokens.add("reader", "read"))
        assert caller is not None
        assert server.callers.is_valid(caller)
        tokens.file.revoke("reader")
        assert not server.callers.is_valid(caller)
        tokens.add("reader", "read")
        assert not server.callers.is_valid(caller)  # another token of the same name

    @pytest.mark.slow
    def test_an_expired_token_is_refused(self, guarded):
        served, tokens = guarded

        def status(token):
            with served.client(token) as http:
                return http.get("/me").status_code

        def added():
            """Add a token, which a stalled machine may use only after its end."""
            return tokens.add(f"guest-{token_hex(4)}", "read", seconds=3)

        token = next(token for token in (added() for _ in range(10)) if status(token) == 200)
        eventually(lambda: status(token) == 401)

    @pytest.mark.alone
    @pytest.mark.slow
    def test_answers_to_wrong_tokens_are_delayed(self, guarded):
        served, tokens = guarded
        took = []
        with served.client() as http:
            for number in range(6):
                begun = time.monotonic()
                answer = http.get("/me", headers={"Authorization": f"Bearer sbmcp_{number}"})
                assert problem(answer) == (401, "wrong-token")
                took.append(time.monotonic() - begun)
            assert took[-1] >= 1.5
            begun = time.monotonic()
            wrong = http.post("/login", json={"token": "sbmcp_guess"})
            assert (problem(wrong), time.monotonic() - begun >= 2) == ((401, "wrong-token"), True)
            begun = time.monotonic()
            assert http.get("/me", headers={"Authorization": f"Bearer {tokens.held['admin']}"}).status_code == 200
            assert time.monotonic() - begun < 1


class TestForgery:
    @pytest.fixture
    def worker(self, guarded) -> Iterator[httpx2.Client]:
        """A client with all scopes except admin."""
        served, tokens = guarded
        with served.client(tokens.without("admin")) as client:
            yield client

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("observations", {**NEW, "source": "boss"}),
            ("observations/batch", {"observations": [NEW, {**NEW, "source": "boss"}]}),
            ("claim-next", {"by": "boss"}),
            ("observations/{id}/claim", {"by": "boss"}),
            ("observations/{id}/release", {"by": "boss"}),
        ],
    )
    def test_a_caller_cannot_name_another_source(self, worker, bus: Bus, page, path, body):
        there = bus.page(page).add("observation", "there")
        answer = worker.post(f"/pages/{page}/{path.format(id=there.id)}", json=body)
        assert problem(answer) == (403, "forged-source")
        assert [(each.id, each.claim) for each in bus.page(page).list()] == [(there.id, None)]

    def test_a_caller_may_name_its_own_source(self, worker, page):
        added = worker.post(f"/pages/{page}/observations", json={**NEW, "source": "worker"})
        assert (added.status_code, added.json()["source"]) == (201, "worker")

    def test_a_repeated_source_cannot_be_forged(self, worker, bus: Bus, page):
        for given in ('"source":"boss","source":"worker"', '"source":"worker","source":"boss"'):
            body = '{"type":"observation","content":"x",' + given + "}"
            worker.post(f"/pages/{page}/observations", content=body, headers={"Content-Type": "application/json"})
        assert "boss" not in {each.source for each in bus.page(page).list()}

    def test_the_token_determines_the_source(self, worker, page):
        added = worker.post(f"/pages/{page}/observations", json=NEW).json()
        assert added["source"] == worker.get("/me").json()["source"] == "worker"


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can act as another user")
class TestOtherUsers:
    def request_me(self, served: Served, *arguments: str) -> tuple[int, str]:
        """Request /me as another user of the machine."""
        curl = ["curl", "-s", "-w", "\n%{http_code}", *arguments, f"{served.api}/me"]
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *curl]
        body, _, status = subprocess.check_output(command, text=True).rpartition("\n")
        return int(status), json.loads(body)["type"].rpartition(":")[2]

    def test_another_user_of_the_machine_is_refused(self, served):
        assert self.request_me(served) == (401, "no-token")

    def test_another_user_cannot_use_the_key(self, served):
        assert self.request_me(served, "-H", f"Authorization: Bearer {served.key}") == (403, "other-user")
        port = urlsplit(served.url).port
        assert self.request_me(served, "-H", f"Cookie: scratchbus-{port}={served.key}") == (403, "other-user")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_closed_by_its_client_belongs_to_nobody(family):
    listener = socket.create_server(("127.0.0.1" if family == socket.AF_INET else "::1", 0), family=family)
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        accepted, _ = listener.accept()
        with accepted:
            assert ClientConnection(Transport(accepted)).peer_uid() == os.getuid()
            client.close()
            assert ClientConnection(Transport(accepted)).peer_uid() == NOBODY


def test_the_user_of_an_ipv6_socket_on_an_ipv4_address_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_INET6) as client:
        client.connect((f"::ffff:{listener.getsockname()[0]}", listener.getsockname()[1]))
        accepted, _ = listener.accept()
        with accepted:
            assert ClientConnection(Transport(accepted)).peer_uid() == os.getuid()


class Transport(BaseTransport):
    """A transport with a socket."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> socket.socket:
        return self._connection


class TestSizes:
    BODY = 100 * 2**20

    def test_a_declared_body_beyond_the_limit_is_refused_unread(self, served, page):
        path = f"/api/v1/pages/{page}/observations"
        request = head(served.url, f"POST {path} HTTP/1.1", f"Content-Length: {self.BODY}")
        answer = send(served.url, [request])
        assert (answer.status, json.loads(answer.body)["type"]) == (413, "urn:scratchbus:problem:body-too-large")

    def test_a_chunked_body_is_cut_off_at_the_limit(self, served, page):
        path = f"/api/v1/pages/{page}/observations"
        request = head(served.url, f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked")
        sent = 0

        def parts() -> Iterator[bytes]:
            nonlocal sent
            yield request
            while sent < self.BODY:
                sent += 2**16
                yield b"10000\r\n" + b" " * 2**16 + b"\r\n"
            yield b"0\r\n\r\n"

        answer = send(served.url, parts())
        assert answer.status in (0, 413)  # the connection may be reset before the answer is read
        assert sent < self.BODY
        assert MAX_BODY < self.BODY

    def test_a_chunked_login_has_the_limit_of_public_bodies(self, served):
        def parts() -> Iterator[bytes]:
            yield head(served.url, "POST /api/v1/login HTTP/1.1", "Transfer-Encoding: chunked")
            for _ in range(MAX_PUBLIC_BODY // 2**12 + 2):
                yield b"1000\r\n" + b" " * 2**12 + b"\r\n"

        assert send(served.url, parts()).status == 413

    @pytest.mark.parametrize(
        "parts",
        [
            ["GET /api/v1/me?{long} HTTP/1.1\r\nHost: {host}\r\n\r\n"],
            ["GET /api/v1/me HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\n\r\n"],
            ["GET /api/v1/me HTTP/1.1\r\nHost: {host}\r\n", *["X: {medium}\r\n"] * 100],
            ["GET /{long}", "{long}"],
        ],
        ids=["url", "header", "many", "endless"],
    )
    def test_a_long_head_is_refused(self, served, parts):
        host = urlsplit(served.url).netloc
        values = {"host": host, "long": "a" * 80_000, "medium": "a" * 1_000}
        assert send(served.url, [part.format(**values).encode() for part in parts]).status == 431

    def test_trailers_have_a_limit(self, served, page):
        sent = 0

        def parts() -> Iterator[bytes]:
            nonlocal sent
            yield head(served.url, f"POST /api/v1/pages/{page}/observations HTTP/1.1", "Transfer-Encoding: chunked")
            yield b"2\r\n{}\r\n0\r\n"
            while sent < self.BODY:
                sent += 2**16
                yield b"X: " + b"a" * 2**16 + b"\r\n"

        assert send(served.url, parts()).status in (0, 413)  # the connection may be reset before the answer is read
        assert sent < self.BODY
        assert MAX_MESSAGE < self.BODY

    def test_a_client_that_hangs_up_in_a_body_is_no_failure_of_the_server(self, embedded_url, page, monkeypatch, capfd):
        answered: list[tuple[type[Exception], int]] = []
        answer_to = problems.answer_to

        async def noted(request: Request, error: Exception) -> Response:
            answer = await answer_to(request, error)
            answered.append((type(error), answer.status_code))
            return answer

        monkeypatch.setattr(problems, "answer_to", noted)
        with serving_here(embedded_url) as running:
            where = urlsplit(running.url)
            with socket.create_connection((where.hostname, where.port), timeout=PATIENCE) as connection:
                first = f"POST /api/v1/pages/{page}/observations HTTP/1.1"
                connection.sendall(head(running.url, first, "Content-Length: 100", "Expect: 100-continue"))
                assert connection.recv(65536).startswith(b"HTTP/1.1 100 Continue")  # the server reads the body
            eventually(lambda: answered, "the server has noticed")
        assert answered == [(ClientDisconnect, 400)]
        assert "request failed" not in capfd.readouterr().err

    def test_a_client_that_leaves_with_a_request_unanswered_is_no_failure_of_the_server(
        self, embedded_url, page, capfd
    ):
        with serving_here(embedded_url) as running, Bus.connect(running.engine, source="beside") as bus:
            where = urlsplit(running.url)
            with socket.create_connection((where.hostname, where.port), timeout=PATIENCE) as connection:
                stream = head(running.url, f"GET /api/v1/events?page={page} HTTP/1.1", "Accept: text/event-stream")
                connection.sendall(stream.replace(b"close", b"keep-alive"))
                assert b"200" in connection.recv(65536)
                eventually(lambda: counts.open_streams == 1)
                connection.sendall(head(running.url, "GET /healthz HTTP/1.1"))

            def is_noticed() -> bool:
                bus.page(page).add("observation", "x")
                return counts.open_streams == 0

            eventually(is_noticed, "the server has noticed")
        assert "request failed" not in capfd.readouterr().err

    def test_compressed_bodies_are_refused(self, http, page):
        body = gzip.compress(b'{"type":"observation","content":"' + b"x" * 10_000_000 + b'"}')
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        answer = http.post(f"/pages/{page}/observations", content=body, headers=headers)
        assert problem(answer) == (415, "unsupported-media-type")


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/console/../guard.py", 404),
            ("/console/..%2Fguard.py", 404),
            ("/console/%2e%2e/guard.py", 404),
            ("/console/%252e%252e%252fguard.py", 404),
            ("/console/..%5cguard.py", 400),
            ("/console/..\\guard.py", 400),
            ("/console//etc/passwd", 404),
            ("/console/%2Fetc%2Fpasswd", 404),
            ("/console/index.html%00.css", 400),
            ("/console/%00", 400),
            ("/console/%ff%fe", 400),
            ("/console/%c0%ae%c0%ae/guard.py", 400),
            ("/console", 404),
            ("/console/", 404),
            ("/../../etc/passwd", 404),
            ("//etc/passwd", 404),
            ("/static/../console/index.html", 404),
        ],
    )
    def test_no_path_leaves_the_directory_of_the_console(self, served, path, status):
        answer = send(served.url, [head(served.url, f"GET {path} HTTP/1.1")])
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert b"import" not in answer.body
        assert b"root:" not in answer.body

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/api/v1/pages/a%00b/active", 400),
            ("/api/v1/pages/a%0d%0aX:%20y/active", 400),
            ("/api/v1/pages/a%5cb/active", 400),
            ("/api/v1/pages/a%ffb/active", 400),
            ("/api/v1/pages/a%252Fb/active", 422),
            ("/api/v1/pages/a%2525b/active", 422),
            ("/api/v1/pages/%3Cscript%3E/active", 422),
            ("/api/v1//pages/a/active", 404),
            ("/api/v1/pages/a/../b/active", 404),
            ("/api/v1/pages/a/active/", 404),
            ("/console/../api/v1/me", 404),
            ("/API/V1/me", 404),
            ("/api/v1/pages/a%2Fb/active", 200),
        ],
    )
    def test_names_in_paths_are_decoded_once(self, served, path, status):
        answer = send(served.url, [head(served.url, f"GET {path} HTTP/1.1")])
        assert answer.status == status, answer.text

    @pytest.mark.parametrize(
        ("path", "status"),
        [("/console/../api/v1/pages/a/active", 404), ("/%2e/api/v1/me", 401), ("/console/..%2Fapi%2Fv1%2Fme", 404)],
    )
    def test_no_spelling_of_a_path_bypasses_the_token(self, guarded, path, status):
        answer = send(guarded[0].url, [head(guarded[0].url, f"GET {path} HTTP/1.1")])
        assert answer.status == status


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\x1b]0;owned\x07\x9b31m\x7f\u202e\u2028"


class TestTexts:
    def test_hostile_texts_are_inert_in_every_answer(self, served, http, page):
        new = {
            **NEW,
            "content": HOSTILE,
            "tags": ["<b>"],
            "context": {HOSTILE: HOSTILE},
            "metadata": {"a": [HOSTILE]},
        }
        added = http.post(f"/pages/{page}/observations", json=new)
        assert added.status_code == 201, added.text
        id = added.json()["id"]
        answers = [
            added,
            http.get(f"/pages/{page}/observations"),
            http.get(f"/pages/{page}/active"),
            http.get(f"/pages/{page}/observations/{id}/history"),
            http.post(f"/pages/{page}/observations/{id}/link", json={"action": HOSTILE}),
            http.post(f"/pages/{page}/observations/{id}/resolve", json={"reason": HOSTILE}),
            http.post(f"/pages/{page}/observations", json={**NEW, "type": HOSTILE}),
            http.post(f"/pages/{page}/observations", json={**NEW, HOSTILE: 1}),
            http.get(f"/pages/{page}/observations", params={HOSTILE: "x"}),
        ]
        for answer in answers:
            assert answer.headers["content-type"] in ("application/json", "application/problem+json")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert not set(answer.text) & {"\x1b", "\x07", "\x9b", "\x7f"}, answer.text
            assert answer.json()

    def test_the_console_runs_only_its_own_scripts(self, served):
        with served.client() as client:
            policy = client.get(f"{served.url}/").headers["content-security-policy"]
        assert policy == POLICY
        assert "unsafe" not in policy
        assert "script-src 'self';" in policy

    def test_no_header_can_be_split(self, served, http, page):
        odd = f"{page}:a@b/c"
        added = http.post(f"/pages/{odd.replace('/', '%2F')}/observations", json=NEW)
        assert added.headers["location"].startswith(f"/api/v1/pages/{page}%3Aa%40b%2Fc/observations/")
        again = http.get(added.headers["location"].removeprefix("/api/v1"))
        assert again.json()["page"] == odd
        key = "k\u00e9 \"'<>;,".encode()
        headers = {"Idempotency-Key": key, "If-Match": b'"1", "2"'}
        answer = http.post(f"/pages/{page}/observations", json=NEW, headers=headers)
        assert answer.status_code == 422
        assert "2" not in answer.headers.get("etag", "")

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ("[" * 100_000, 400),
            ('{"a":' * 100_000, 400),
            ('{"type":"observation","content":"x","metadata":' + '{"a":' * 5_000 + "1" + "}" * 5_001, 400),
            ('{"type":"observation","content":"x","metadata":{"n":' + "9" * 5_000 + "}}", 400),
            ('{"type":"observation","content":"x","metadata":{"n":' + "9" * 40 + "}}", 201),
            ('{"type":"observation","content":"x","metadata":{"n":-' + "9" * 40 + "}}", 201),
            ('{"type":"observation","content":"x","metadata":{"n":1e999}}', 409),
            ('{"type":"observation","content":"x","confidence":1e999}', 422),
            ('{"type":"observation","content":"x","confidence":NaN}', 400),
            ('{"type":"observation","content":"x","metadata":{"n":Infinity}}', 400),
            ('{"type":"observation","content":"\\ud800"}', 400),
            ('{"type":"observation","content":"x","metadata":{"\\udfff":1}}', 400),
            ('{"type":"observation","content":"\\u0000"}', 201),
            ('{"type":"observation","content":"x","ttl":' + "9" * 400 + "}", 422),
            ('{"type":"observation","content":"x","ttl":1e308}', 422),
            ('{"type":"observation","content":"x"}trailing', 400),
            ('"text"', 422),
            ("", 422),
            ("\xff\xfe", 400),
        ],
        ids=lambda each: str(each)[:60],
    )
    def test_no_json_breaks_the_server(self, http, page, body, status):
        path = f"/pages/{page}/observations"
        sent = body.encode("latin-1")
        answer = http.post(path, content=sent, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
        assert http.get(path).status_code == 200


class TestProtocol:
    @pytest.mark.parametrize(
        "lines",
        [
            ("POST /api/v1/login HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked"),
            ("POST /api/v1/login HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 4"),
            ("POST /api/v1/login HTTP/1.1", "Content-Length: 4", "Content-Length: 5"),
            ("POST /api/v1/login HTTP/1.1", "Content-Length: +4"),
            ("POST /api/v1/login HTTP/1.1", "Content-Length : 4"),
            ("POST /api/v1/login HTTP/1.1", "Transfer-Encoding: chunked, identity"),
            ("POST /api/v1/login HTTP/1.1", "Transfer-Encoding: xchunked"),
            ("GET /healthz HTTP/1.1", " folded: 1"),
            ("GET /healthz HTTP/1.1", "X: a\x00b"),
            ("GET /healthz HTTP/9.9",),
            ("GEX /healthz HTTP/1.1",),
        ],
        ids=str,
    )
    def test_an_ambiguous_request_is_refused(self, served, lines):
        answer = send(served.url, [head(served.url, *lines) + b"0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"])
        assert answer.status == 400
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.text.count(b"content-length: ") == 1  # nothing after it was served

    @pytest.mark.parametrize("is_whole", [True, False])
    @pytest.mark.parametrize("framing", ["Content-Length", "Transfer-Encoding"])
    def test_a_request_that_offers_http_2_is_served_with_its_body(self, served, page, framing, is_whole):
        body = json.dumps(NEW).encode()
        sent = body if framing == "Content-Length" else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        how = f"Content-Length: {len(body)}" if framing == "Content-Length" else "Transfer-Encoding: chunked"
        offer = "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
        lines = f"POST /api/v1/pages/{page}/observations HTTP/1.1\r\nHost: {urlsplit(served.url).netloc}{offer}{how}"
        first = lines.encode() + b"\r\n\r\n"
        last = head(served.url, "GET /api/v1/me HTTP/1.1")
        answer = send(served.url, [first + sent + last] if is_whole else [first, sent[:9], sent[9:] + last])
        assert answer.status == 201, answer.text
        assert b"HTTP/1.1 200 " in answer.body  # the next request on the connection is served too

    def test_method_overrides_are_ignored(self, http, page):
        id = http.post(f"/pages/{page}/observations", json=NEW).json()["id"]
        for header in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
            answer = http.get(f"/pages/{page}/observations/{id}", headers={header: "PATCH"})
            assert answer.json()["version"] == 1
        assert problem(http.post(f"/pages/{page}/active?_method=GET", json={}))[0] == 405

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("PUT", "/pages/p/observations", "GET, HEAD, POST"),
            ("DELETE", "/me", "GET, HEAD"),
            ("OPTIONS", "/pages/p/observations", "GET, HEAD, POST"),
            ("TRACE", "/me", "GET, HEAD"),
            ("PROPFIND", "/me", "GET, HEAD"),
            ("PATCH", "/pages/p/observations/batch", "POST"),
            ("GET", "/pages/p/observations/batch", "POST"),
        ],
    )
    def test_an_unsupported_method_gets_the_allowed_ones(self, http, method, path, allowed):
        answer = http.request(method, path)
        assert problem(answer) == (405, "method-not-allowed")
        assert answer.headers["allow"] == allowed

    def test_the_console_gets_the_allowed_methods_too(self, served):
        for path in ("/", "/console/index.html"):
            answer = httpx2.delete(f"{served.url}{path}")
            assert problem(answer) == (405, "method-not-allowed")
            assert answer.headers["allow"] == "GET, HEAD"


class TestSlowness:
    """Clients that keep a connection open without a complete request."""

    SECONDS = 0.3

    @pytest.fixture
    def impatient(self, embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
        """A server with short timeouts for all but bodies."""
        monkeypatch.setattr("scratchbus.http.client_connections.HEAD_SECONDS", self.SECONDS)
        monkeypatch.setattr("scratchbus.http.client_connections.STALLED_SECONDS", self.SECONDS)
        with serving_here(embedded_url) as running:
            yield running

    @staticmethod
    def drip(url: str, first: bytes, rest: bytes) -> bytes:
        """Send the first bytes at once and the rest one by one, until the server closes the connection."""
        where, found = urlsplit(url), b""
        with socket.create_connection((where.hostname, where.port), timeout=0.02) as connection:
            deadline = time.monotonic() + PATIENCE
            connection.sendall(first)
            for byte in rest * 1_000:
                assert time.monotonic() < deadline, "the server did not close the connection"
                try:
                    connection.sendall(bytes([byte]))
                    found += (data := connection.recv(65536))
                    if not data:
                        return found
                except TimeoutError:
                    continue
                except ConnectionError:
                    return found
        raise AssertionError("the server did not close the connection")

    def test_the_default_timeouts_are_some_seconds(self):
        assert 5 <= client_connections.HEAD_SECONDS <= 15
        assert 10 <= guard.BODY_SECONDS <= 60
        assert 10 <= client_connections.STALLED_SECONDS <= 120

    @pytest.mark.parametrize(
        ("first", "rest"),
        [
            (b"GET /healthz HTTP/1.1\r\n", b"X: y\r\n"),
            (b"", b"GET /healthz HTTP/1.1\r\nX: y"),
            (b"", b"\r\n"),
            (b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n", b"\r\n"),
            (b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\nGET ", b"/abc"),
        ],
        ids=["headers", "all", "empty lines", "after a request", "a second request"],
    )
    def test_an_endless_head_is_cut_off(self, impatient, first, rest):
        begun = time.monotonic()
        first = first.replace(b"{host}", urlsplit(impatient.url).netloc.encode())
        answer = self.drip(impatient.url, first, rest)
        assert time.monotonic() - begun < PATIENCE / 2
        assert answer.count(b"HTTP/1.1 408") <= 1

    def test_an_idle_connection_is_closed(self, impatient):
        where = urlsplit(impatient.url)
        with socket.create_connection((where.hostname, where.port), timeout=PATIENCE) as connection:
            assert connection.recv(1) == b""

    def test_an_endless_body_is_refused(self, embedded_url, page, monkeypatch):
        monkeypatch.setattr("scratchbus.http.guard.BODY_SECONDS", self.SECONDS)
        path = f"/api/v1/pages/{page}/observations"
        with serving_here(embedded_url) as running:
            for how in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
                first = head(running.url, f"POST {path} HTTP/1.1", how)
                answer = self.drip(running.url, first, b"1\r\n \r\n" if "chunked" in how else b" ")
                assert answer.startswith(b"HTTP/1.1 408"), answer
                assert b"urn:scratchbus:problem:request-timeout" in answer

    def test_a_stream_whose_request_has_an_endless_body_ends(self, embedded_url, monkeypatch):
        monkeypatch.setattr("scratchbus.http.guard.BODY_SECONDS", self.SECONDS)
        with serving_here(embedded_url) as running:
            lines = ("Accept: text/event-stream", "Transfer-Encoding: chunked")
            answer = self.drip(running.url, head(running.url, "GET /api/v1/events HTTP/1.1", *lines), b"1\r\n \r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert b"retry: 1000" in answer

    @pytest.mark.slow
    def test_a_client_that_does_not_read_is_dropped(self, impatient, page):
        with Bus.connect(impatient.engine, source="beside") as bus:
            for _ in range(10):
                bus.page(page).add_many([NewObservation(type="observation", content="x" * 4_000)] * 100)
        where = urlsplit(impatient.url)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with connection:
            connection.settimeout(PATIENCE)
            connection.connect((where.hostname, where.port))
            path = f"/api/v1/pages/{page}/observations?status=archived&status=active&limit=1000"
            connection.sendall(head(impatient.url, f"GET {path} HTTP/1.1"))
            port = connection.getsockname()[1]
            eventually(lambda: not is_connected(port, where.port or 0))

    def test_idle_connections_do_not_block_other_clients(self, embedded_url, monkeypatch):
        monkeypatch.setattr("scratchbus.http.client_connections.HEAD_SECONDS", 3_600)  # nothing ends them
        with serving_here(embedded_url) as running:
            where = urlsplit(running.url)
            idle = [socket.create_connection((where.hostname, where.port)) for _ in range(200)]
            for each in idle:
                each.sendall(b"GET / HTTP/1.1\r\n")
            with running.client() as http:
                assert http.get("/me").status_code == 200
            for each in idle:
                each.close()


def is_connected(client: int, server: int) -> bool:
    """Return whether the server's end of a connection is open, by its ports."""
    wanted = (f":{server:04X}", f":{client:04X}", "01")
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any((f[1][-5:], f[2][-5:], f[3]) == wanted for f in (line.split() for line in lines))
