"""A clock set by tests: the scripts read it instead of the server's."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from hashlib import sha1
from types import ModuleType
from typing import Any, Self

import pytest

from scratchbus import Bus, commands
from scratchbus.domain.values import Duration, duration_ms, moment
from scratchbus.engine import renewal
from scratchbus.engine.connect import target
from scratchbus.engine.scripts import Script
from scratchbus.engine.steps import Call, Step, ask
from scratchbus.scheduling import expiry
from scratchbus.subscriptions import consumer, subscription, window
from scratchbus.views import live_page
from scratchbus.work import job_state

_KEY = "tests:clock"
_OWN = "call('TIME')"
_TURNED = f"call('HMGET', '{_KEY}', 'seconds', 'microseconds')"
is_turned = False
"""Whether the scripts currently read the clock of a test."""

_ASKING = (commands, expiry)  # imported so that all scripts that read the time are found


class Clock:
    """The clock of one engine. It stands still unless a test sets it."""

    def __init__(self, url: str) -> None:
        self._driver = target(url, home=None, appendfsync="everysec", socket_timeout=5, connect_timeout=5).engine()
        seconds, microseconds = self._driver.run(ask(0, "TIME"))
        self.ms = 0
        self.set(int(seconds) * 1000 + int(microseconds) // 1000)

    @property
    def now(self) -> datetime:
        """The current time of this clock."""
        return moment(self.ms)

    def set(self, ms: int) -> None:
        """Set it, forwards or backwards, to milliseconds since the epoch."""
        self.ms = ms
        self._driver.run(_write(ms))

    def advance(self, duration: Duration) -> None:
        """Advance it."""
        self.set(self.ms + (duration_ms(duration) or 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._driver.close()


class ProcessClock:
    """The clock by which consumers of this process judge their leases: the monotonic clock plus an offset."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Return its time in seconds."""
        return time.monotonic() + self._ahead

    def advance(self, duration: Duration) -> None:
        """Advance it."""
        self._ahead += (duration_ms(duration) or 0) / 1000

    def hand_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have all consumers of this process use it."""
        for module in (consumer, subscription, window):
            monkeypatch.setattr(module, "time", self)


def renew_a_minute_at_each_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the keepers of this process renew leases and claims of a minute ten times a second: they are 30 s ahead."""
    ahead = ProcessClock()
    ahead.advance("30s")
    monkeypatch.setattr(renewal, "time", ahead)
    monkeypatch.setattr(job_state, "pause_for", lambda seconds: 0.1)


def _write(ms: int) -> Step[None]:
    seconds, rest = divmod(ms, 1000)
    yield Call(0, (("HSET", _KEY, "seconds", seconds, "microseconds", rest * 1000),), is_write=True)


def _read_turned(shard: int) -> Step[float]:
    seconds, microseconds = yield from ask(shard, "HMGET", _KEY, "seconds", "microseconds")
    return int(seconds) * 1000 + int(microseconds) / 1000


def hand_over(monkeypatch: pytest.MonkeyPatch, *buses: Bus) -> None:
    """Have every script and view that reads the server's time read the test's clock instead.

    `buses` are open buses that have written already: they have cached which script to send.
    """
    monkeypatch.setattr(sys.modules[__name__], "is_turned", True)
    for bus in buses:
        vars(bus.core.log).pop("additions", None)
    monkeypatch.setattr(live_page, "read_clock", _read_turned)
    for script in _asking(len(sys.modules)):
        text = script.text.replace(_OWN, _TURNED)
        sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        monkeypatch.setattr(script, "sha", sha)  # before the text, from which it is computed
        monkeypatch.setattr(script, "text", text)
        monkeypatch.setitem(Script.known, sha, text)


@cache
def _asking(_modules: int) -> frozenset[Script[...]]:
    """Return the scripts that read the time; the argument makes the cache miss when more modules are imported."""
    found = frozenset(script for script in _scripts() if _OWN in script.text)
    assert len(found) >= 3, "appending, reading and sweeping all read the time"
    return found


def _scripts() -> Iterator[Script[...]]:
    for name, module in list(sys.modules.items()):
        if name.startswith("scratchbus"):
            yield from _scripts_of(module)


def _scripts_of(module: ModuleType) -> Iterator[Any]:
    for value in vars(module).values():
        if isinstance(value, Script):
            yield value
