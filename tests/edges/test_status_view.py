"""The text of `scratchbus status`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scratchbus.cli.invocation import Invocation
from scratchbus.cli.status_view import show_status
from scratchbus.readmodel.status import PageStatus, ShardStatus, Status, SubscriptionStatus
from scratchbus.readmodel.status.bus_status import Gap


def shard(**changes: Any) -> ShardStatus:
    usual: dict[str, Any] = {"events": 5, "end": "7-5", "checkpoint": "7-5", "lag": 0, "lag_seconds": 0, "rejected": 0}
    return ShardStatus(shard=0, **usual | changes)


def subscription(name: str, **changes: Any) -> SubscriptionStatus:
    usual: dict[str, Any] = {
        "filters": "{}", "cursor": "7-5", "lag": 0, "lag_seconds": 0, "holder": None, "since": None, "until": None,
        "trying": None, "attempts": 0, "dead_letters": 0,
    }  # fmt: skip
    return SubscriptionStatus(name=name, **usual | changes)


def status(**changes: Any) -> Status:
    usual: dict[str, Any] = {
        "bus": "scratchbus", "url": "redis://localhost", "directory": None, "engine": "Redis", "version": "8.0.0",
        "memory_bytes": 3 << 20, "memory_limit_bytes": None, "persistence": "append-only file, last write ok",
        "risks": [], "registry_version": 1, "types": ["observation"], "shards": [shard()], "subscriptions": [],
        "page_count": 0, "open": 0, "pages": [],
    }  # fmt: skip
    return Status(**usual | changes)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that shows a status as in a pipe and returns its lines."""

    def show(**changes: Any) -> list[str]:
        show_status(Invocation(), status(**changes))
        return capsys.readouterr().out.splitlines()

    return show


def test_pages_are_a_table_with_the_number_of_omitted_pages(shown: Any) -> None:
    pages = [
        PageStatus(page="main", open=1200, claimed=None),
        PageStatus(page="user:1", open=3, claimed=2),
        PageStatus(page="user:2", open=1, claimed=0),
    ]
    lines = shown(pages=pages, page_count=10_000, open=21_000)
    assert "open:        21,000 observations on 10,000 pages" in lines
    assert [line.split() for line in lines[-5:]] == [
        ["open", "claimed", "page"],
        ["1,200", "?", "main"],
        ["3", "2", "user:1"],
        ["1", "-", "user:2"],
        ["and", "9,997", "more", "pages"],
    ]


def test_subscriptions_are_a_table_with_the_worst_first(shown: Any) -> None:
    now = datetime.now(UTC)
    held = {"holder": "router@host:7", "since": now, "until": now + timedelta(seconds=3)}
    rows = [
        subscription("fine", **held),
        subscription("slow", lag=1200, lag_seconds=240, attempts=2, **held),
        subscription("sick", dead_letters=4),
    ]
    lines = shown(subscriptions=rows)
    at = next(index for index, line in enumerate(lines) if line.startswith("subscription"))
    assert lines[at].split() == ["subscription", "behind", "oldest", "dead", "letters", "failed", "consumer"]
    assert lines[at + 1].split() == ["sick", "0", "-", "4", "-", "nobody"]
    assert lines[at + 2].split()[:7] == ["slow", "1,200", "4m", "-", "2×", "router@host:7,", "since"]
    assert lines[at + 3].startswith("fine")


def test_only_the_first_subscriptions_are_shown(shown: Any) -> None:
    lines = shown(subscriptions=[subscription(f"s{number:03}") for number in range(200)])
    assert "s019" in lines[-2]
    assert lines[-1] == "and 180 more subscriptions"


def test_lag_and_rejected_events_are_shown(shown: Any) -> None:
    lines = shown(shards=[shard(rejected=2, lag=3, lag_seconds=65)])
    at = next(index for index, line in enumerate(lines) if line.startswith("log:"))
    assert "projection 3 events behind, the oldest 65s old" in lines[at + 1]
    assert "2 events could not be read" in lines[at + 2]


def test_gaps_in_the_log_are_shown_with_their_positions(shown: Any) -> None:
    lines = shown(shards=[shard(missing=1002, gaps=[Gap(before="7-5", missing=1000), Gap(before="9-8", missing=2)])])
    assert any("missing before 7-5: 1,000 events" in line for line in lines)
    assert any("missing before 9-8: 2 events" in line for line in lines)


@pytest.mark.parametrize(
    ("memory", "limit", "text"),
    [(3 << 20, None, "3.0 MiB"), (3 << 20, 1 << 30, "3.0 MiB of 1,024.0 MiB"), (None, None, "unknown")],
)
def test_memory_is_shown_with_its_limit(shown: Any, memory: int | None, limit: int | None, text: str) -> None:
    assert f"memory:      {text}" in shown(memory_bytes=memory, memory_limit_bytes=limit)
