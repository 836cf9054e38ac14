"""What daemons share: where they work."""

from __future__ import annotations

import pytest

from scratchbus.daemon.command import Daemon
from scratchbus.settings import load_settings


def target(url: str, page: str = "main") -> str:
    return Daemon(load_settings(url=url), page, "tester").target


@pytest.mark.parametrize(
    "url",
    [
        "redis://logwatch:{}@localhost:6379/0",
        "unix://logwatch:{}@/run/redis.sock",
        "redis+sentinel://logwatch:{0}@one,two/main?sentinel_password={0}",
    ],
)
def test_a_new_password_is_the_same_target(url: str) -> None:
    assert target(url.format("old-s3cr3t")) == target(url.format("new"))
    assert "s3cr3t" not in target(url.format("old-s3cr3t"))


def test_another_server_or_page_is_another_target() -> None:
    assert len({target("redis://:pw@one"), target("redis://:pw@two"), target("redis://:pw@one", "other")}) == 3
