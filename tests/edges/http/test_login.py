"""Logging in to the console, by the printed URL or with a token."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import trustme

from scratchbus import McpIdentity, McpTokens
from scratchbus.http.callers import TokenHolders
from tests.edges.http.conftest import Served, Tokens, serving

NEW = {"type": "observation", "content": "x"}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """A tokens file with one token."""
    made = Tokens(tmp_path_factory.mktemp("tokens") / "tokens.yaml")
    made.add("ann", "read", "publish", agent="ann")
    return made


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A certificate authority that clients trust."""
    return trustme.CA()


@pytest.fixture(scope="module")
def secure(
    embedded_url: str, tokens: Tokens, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A server with tokens that speaks TLS."""
    directory = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1")
    for name, blob in (("cert.pem", certificate.cert_chain_pems[0]), ("key.pem", certificate.private_key_pem)):
        blob.write_to_path(directory / name)
    files = ("--cert", str(directory / "cert.pem"), "--cert-key", str(directory / "key.pem"))
    with serving(embedded_url, "--tokens", str(tokens.path), *files) as running:
        yield running


@pytest.fixture
def browser(secure: Served, authority: trustme.CA) -> Iterator[httpx2.Client]:
    """A browser on the server's own page."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with secure.client(verify=context, headers={"Origin": secure.url, "User-Agent": "Mozilla/5.0"}) as client:
        yield client


def test_a_token_logs_in_over_tls(secure, browser, tokens, page):
    assert secure.url.startswith("https://")
    assert browser.get("/me").status_code == 401
    entered = browser.post("/login", json={"token": tokens.held["ann"]})
    assert entered.status_code == 204
    cookie = entered.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Secure"} <= set(cookie)
    assert cookie[0].startswith(f"__Host-scratchbus-{urlsplit(secure.url).port}=")
    assert browser.get("/me").json()["source"] == "ann"
    assert browser.post(f"/pages/{page}/observations", json=NEW).json()["source"] == "ann"
    left = browser.post("/logout")
    assert left.status_code == 204
    assert browser.get("/me").status_code == 401


def test_a_wrong_token_sets_no_cookie(browser):
    answer = browser.post("/login", json={"token": "sbmcp_wrong"})
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:scratchbus:problem:wrong-token")
    assert "set-cookie" not in answer.headers
    for body in ({}, {"token": 1}, {"token": "a", "more": 1}):
        assert browser.post("/login", json=body).status_code == 422


def test_a_revoked_token_ends_the_login(browser, tokens):
    browser.post("/login", json={"token": tokens.add("bob", "read")})
    assert browser.get("/me").status_code == 200
    tokens.file.revoke("bob")
    assert browser.get("/me").status_code == 401


def test_cookies_of_other_servers_are_ignored(served):
    port = urlsplit(served.url).port
    cookies = f"theme=dark; scratchbus-{port}=old; odd; =x; scratchbus-{port}={served.key}; scratchbus-1=z"
    with served.client(headers={"Cookie": cookies}) as client:
        assert client.get("/me").status_code == 200


@pytest.mark.slow
def test_a_cookie_from_before_a_restart_is_explained(embedded_url):
    with serving(embedded_url) as first, serving(embedded_url) as second:
        with second.client(headers={"Sec-Fetch-Site": "same-origin"}) as browser:
            browser.cookies.set(f"scratchbus-{urlsplit(second.url).port}", first.key)
            answer = browser.get("/me")
            assert (answer.status_code, answer.json()["type"]) == (401, "urn:scratchbus:problem:wrong-token")
            assert "open the URL that `scratchbus serve` printed" in answer.json()["detail"]
            assert browser.get(f"{second.url}/").status_code == 200  # the page itself, which shows the error
        with second.client() as browser:
            assert browser.get(f"{second.url}/", params={"key": first.key}).status_code == 401


def test_the_key_works_as_a_token(served):
    with served.client(served.key, headers={"User-Agent": "Mozilla/5.0"}) as client:
        assert client.get("/me").status_code == 200


def test_a_server_with_tls_does_not_answer_plain_http(secure, authority, tmp_path: Path):
    with httpx2.Client(timeout=10) as client, pytest.raises(httpx2.TransportError):
        client.get(secure.url.replace("https", "http") + "/healthz")


def test_two_tokens_of_one_name_are_both_valid(tmp_path: Path):
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secrets = [tokens.add(f"twin-{each}", McpIdentity.of("ann"), scopes=["read"]) for each in "ab"]
    tokens.path.write_text(tokens.path.read_text().replace("twin-b", "twin-a"))
    callers = TokenHolders(tokens)
    for secret in secrets:
        caller = callers.find(secret)
        assert caller is not None
        assert callers.is_valid(caller)
