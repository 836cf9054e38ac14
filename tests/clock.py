"""A clock that tests turn: the scripts read it in the place of the server's own."""

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
from scratchbus.engine.connect import target
from scratchbus.engine.scripts import Script
from scratchbus.engine.steps import Call, Step, ask
from scratchbus.scheduling import expiry
from scratchbus.subscriptions import consumer, subscription, window
from scratchbus.views import live_page

_KEY = "tests:clock"
_OWN = "call('TIME')"
_TURNED = f"call('HMGET', '{_KEY}', 'seconds', 'microseconds')"
is_turned = False
"""Whether the scripts read the clock of a test at the moment."""

_ASKING = (commands, expiry)  # imported, so that every script that asks for the time is there to be found


class Clock:
    """The time of one engine. It stands still unless a test turns it."""

    def __init__(self, url: str) -> None:
        self._driver = target(url, home=None, appendfsync="everysec", socket_timeout=5, connect_timeout=5).engine()
        seconds, microseconds = self._driver.run(ask(0, "TIME"))
        self.ms = 0
        self.set(int(seconds) * 1000 + int(microseconds) // 1000)

    @property
    def now(self) -> datetime:
        """What it shows."""
        return moment(self.ms)

    def set(self, ms: int) -> None:
        """Turn it to a time, in milliseconds since the epoch; backwards too."""
        self.ms = ms
        self._driver.run(_write(ms))

    def advance(self, duration: Duration) -> None:
        """Turn it on."""
        self.set(self.ms + (duration_ms(duration) or 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._driver.close()


class ProcessClock:
    """The time by which consumers of this process judge their leases; it is ahead of the monotonic clock."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Return what it shows, in seconds."""
        return time.monotonic() + self._ahead

    def advance(self, duration: Duration) -> None:
        """Turn it on."""
        self._ahead += (duration_ms(duration) or 0) / 1000

    def hand_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let all consumers of this process ask it."""
        for module in (consumer, subscription, window):
            monkeypatch.setattr(module, "time", self)


def _write(ms: int) -> Step[None]:
    seconds, rest = divmod(ms, 1000)
    yield Call(0, (("HSET", _KEY, "seconds", seconds, "microseconds", rest * 1000),), is_write=True)


def _read_turned(shard: int) -> Step[float]:
    seconds, microseconds = yield from ask(shard, "HMGET", _KEY, "seconds", "microseconds")
    return int(seconds) * 1000 + int(microseconds) / 1000


def hand_over(monkeypatch: pytest.MonkeyPatch, *buses: Bus) -> None:
    """Let every script, and every view, that asks the server for the time ask the turned clock instead.

    `buses` are those that have written before, and remember what they send.
    """
    monkeypatch.setattr(sys.modules[__name__], "is_turned", True)
    for bus in buses:
        vars(bus.core.log).pop("additions", None)
    monkeypatch.setattr(live_page, "read_clock", _read_turned)
    for script in _asking(len(sys.modules)):
        text = script.text.replace(_OWN, _TURNED)
        sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        monkeypatch.setattr(script, "sha", sha)  # before the text, of which its own is made
        monkeypatch.setattr(script, "text", text)
        monkeypatch.setitem(Script.known, sha, text)


@cache
def _asking(_modules: int) -> frozenset[Script[...]]:
    """Return the scripts that ask for the time; they are looked for again when more modules are imported."""
    found = frozenset(script for script in _scripts() if _OWN in script.text)
    assert len(found) >= 3, "appending, reading and sweeping all ask for the time"
    return found


def _scripts() -> Iterator[Script[...]]:
    for name, module in list(sys.modules.items()):
        if name.startswith("scratchbus"):
            yield from _scripts_of(module)


def _scripts_of(module: ModuleType) -> Iterator[Any]:
    for value in vars(module).values():
        if isinstance(value, Script):
            yield value
