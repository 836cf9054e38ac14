"""Wrong tokens are logged and delayed, without a delay for valid tokens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import anyio
import pytest
from mcp.server.auth.provider import AccessToken
from starlette.requests import HTTPConnection

from scratchbus.daemon.wrong_tokens import (
    FIRST_DELAY,
    FORGET_AFTER,
    MAX_CLIENTS,
    MAX_DELAY,
    MAX_DELAYED,
    Failures,
    client_of,
    delay,
)
from scratchbus.mcp.app import SlowingBackend, Unchecked
from tests.edges.mcp.test_http import refusal, serving


def test_each_wrong_token_of_a_client_waits_longer_up_to_a_limit() -> None:
    waits = [delay(count) for count in range(1, 100)]
    assert waits[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert waits == sorted(waits)
    assert waits[-1] == MAX_DELAY


def test_failures_are_counted_per_client_and_forgotten() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    assert [failures.add("a"), failures.add("a"), failures.add("b")] == [1, 2, 1]
    now[0] += FORGET_AFTER
    assert failures.add("a") == 3
    now[0] += FORGET_AFTER + 1
    assert failures.add("a") == 1


def test_the_number_of_remembered_clients_is_limited() -> None:
    failures = Failures()
    for number in range(3 * MAX_CLIENTS):
        failures.add(str(number))
        failures.add("busy")
    assert len(failures) == MAX_CLIENTS
    assert failures.add("busy") == 3 * MAX_CLIENTS + 1
    assert failures.add("0") == 1


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1:2", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("x" * 1000, "x" * 64),
    ],
)
def test_a_client_is_identified_by_its_address_or_network(host: str, client: str) -> None:
    assert client_of(host) == client


@pytest.mark.slow
@pytest.mark.real
def test_wrong_tokens_are_logged_without_the_token_and_delayed(embedded_url: str, tmp_path: Path) -> None:
    wrong = [f"sbmcp_{token_hex(16)}" for _ in range(6)]
    with serving(embedded_url, tmp_path / "tokens.yaml", "--tools", "observations") as served:
        right = served.token()
        assert refusal(served.url, None)[0] == 401
        took = []
        for token in wrong:
            begun = time.monotonic()
            assert refusal(served.url, token)[0] == 401
            took.append(time.monotonic() - begun)
        assert took[-1] >= delay(len(wrong))
        assert refusal(served.url, right)[0] != 401
        served.process.terminate()
        log = served.process.stderr.read()
    refused = [line for line in log.splitlines() if "token refused" in line]
    assert len(refused) == len(wrong)
    assert all('"client": "127.0.0.1"' in line for line in refused)
    assert not any(token in log or token.removeprefix("sbmcp_") in log for token in (*wrong, right))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.alone
def test_a_valid_token_is_not_delayed_while_wrong_ones_wait(embedded_url: str, tmp_path: Path) -> None:
    with serving(embedded_url, tmp_path / "tokens.yaml", "--tools", "observations") as served:
        right = served.token()
        assert refusal(served.url, right)[0] != 401
        with ThreadPoolExecutor(24) as attackers:
            wrong = [attackers.submit(refusal, served.url, f"sbmcp_{number}") for number in range(24)]
            while not any(each.done() for each in wrong):
                time.sleep(0.01)
            assert refusal(served.url, right)[0] != 401
            assert sum(not each.done() for each in wrong) > 3
            assert {each.result()[0] for each in wrong} == {401}


class Verifier:
    """A verifier of one token, which records the tokens that it checks."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    async def verify_token(self, token: str) -> AccessToken | None:
        """Record a token; only "right" is valid."""
        self.checked.append(token)
        return AccessToken(token=token, client_id="one", scopes=[]) if token == "right" else None


def request(token: str, host: str) -> HTTPConnection:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return HTTPConnection({"type": "http", "headers": headers, "client": (host, 1)})


@pytest.mark.slow
async def test_tokens_beyond_the_waiting_ones_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scratchbus.daemon.wrong_tokens.MAX_DELAYED", 3)
    verifier = Verifier()
    backend = SlowingBackend(verifier)
    assert await backend.authenticate(request("right", "192.0.2.1"))
    async with anyio.create_task_group() as tasks:
        for number in range(6):
            await backend.authenticate(request(f"wrong {number}", "192.0.2.9"))
        for number in range(3):
            tasks.start_soon(backend.authenticate, request(f"waiting {number}", "192.0.2.9"))
        await anyio.wait_all_tasks_blocked()
        asked = len(verifier.checked)
        for number in range(100):
            with pytest.raises(Unchecked, match="try again in 3 s"):
                await backend.authenticate(request(f"another {number}", "192.0.2.9"))
        assert len(verifier.checked) == asked
        assert await backend.authenticate(request("right", "192.0.2.9"))  # known to be valid
        assert await backend.authenticate(request("right", "192.0.2.2"))
        with pytest.raises(Unchecked):
            await backend.authenticate(request("wrong", "192.0.2.2"))
        asked = len(verifier.checked)
        with pytest.raises(Unchecked):
            await backend.authenticate(request("wrong too", "192.0.2.2"))
        assert len(verifier.checked) == asked
        tasks.cancel_scope.cancel()
    assert await backend.authenticate(request("wrong", "192.0.2.2")) is None
    assert verifier.checked[-1] == "wrong"


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.alone
async def test_wrong_tokens_beyond_the_waiting_ones_are_429_at_once(embedded_url: str, tmp_path: Path) -> None:
    with serving(embedded_url, tmp_path / "tokens.yaml", "--tools", "observations") as served:
        right, parts = served.token(), urlsplit(served.url)
        assert (await asyncio.to_thread(refusal, served.url, right))[0] != 401

        async def status(number: int) -> int:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer sbmcp_{number}\r\n"
            writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            assert (b"retry-after: 3" in answer.lower()) == (b" 429 " in answer)
            return int(answer.split()[1])

        wrong = [asyncio.ensure_future(status(number)) for number in range(MAX_DELAYED + 64)]
        for answer in asyncio.as_completed(wrong):
            if await answer == 429:
                break
        assert (await asyncio.to_thread(refusal, served.url, right))[0] not in (401, 429)
        answers = Counter(await asyncio.gather(*wrong))
        served.process.terminate()
        log = served.process.stderr.read()
    assert answers.keys() == {401, 429}
    assert "token refused unchecked" in log
