"""Wrong tokens are logged and slowed down, and nobody with a right one notices."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex

import pytest

from scratchbus.mcp.failures import CLIENTS, FIRST, FORGOTTEN, LONGEST, Failures, client_of, delay
from tests.edges.mcp.test_http import refusal, serving


def test_each_wrong_token_of_a_client_waits_longer_up_to_a_limit() -> None:
    waits = [delay(count) for count in range(1, 100)]
    assert waits[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST


def test_clients_are_counted_apart_and_start_over_after_a_while() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    assert [failures.add("a"), failures.add("a"), failures.add("b")] == [1, 2, 1]
    now[0] += FORGOTTEN
    assert failures.add("a") == 3
    now[0] += FORGOTTEN + 1
    assert failures.add("a") == 1


def test_no_more_than_so_many_clients_are_remembered() -> None:
    failures = Failures()
    for number in range(3 * CLIENTS):
        failures.add(str(number))
        failures.add("busy")
    assert len(failures) == CLIENTS
    assert failures.add("busy") == 3 * CLIENTS + 1
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
def test_a_client_is_its_address_or_network(host: str, client: str) -> None:
    assert client_of(host) == client


@pytest.mark.real
def test_wrong_tokens_are_logged_without_being_told_and_slowed(embedded_url: str, tmp_path: Path) -> None:
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
        said = served.process.stderr.read()
    refused = [line for line in said.splitlines() if "token refused" in line]
    assert len(refused) == len(wrong)
    assert all('"client": "127.0.0.1"' in line for line in refused)
    assert not any(token in said or token.removeprefix("sbmcp_") in said for token in (*wrong, right))


@pytest.mark.real
def test_a_right_token_is_answered_at_once_while_wrong_ones_wait(embedded_url: str, tmp_path: Path) -> None:
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
