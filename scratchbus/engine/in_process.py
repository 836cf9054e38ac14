"""The engine of `memory://` URLs: fakeredis, in this process."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from scratchbus.errors import EngineMisconfigured

try:
    from fakeredis import FakeRedis, FakeServer
    from fakeredis._commands import SUPPORTED_COMMANDS
    from fakeredis.aioredis import FakeRedis as AsyncFakeRedis
except ImportError:
    raise EngineMisconfigured("memory:// needs fakeredis: pip install 'fakeredis[lua]'") from None

for verb in ("eval", "evalsha"):  # it does not know that a script may be sent as one that only reads
    SUPPORTED_COMMANDS.setdefault(f"{verb}_ro", SUPPORTED_COMMANDS[verb])


class InProcessEngine:
    """A fake server and the connections to it."""

    def __init__(self) -> None:
        self._server = _Server(version=(7,))

    def connection(self) -> Any:
        """Return a blocking connection."""
        return self._pool.connection_class(**self._pool.connection_kwargs)

    def async_connection(self) -> Any:
        """Return an asyncio connection."""
        return self._async_pool.connection_class(**self._async_pool.connection_kwargs)

    @cached_property
    def _pool(self) -> Any:
        return FakeRedis(server=self._server, protocol=2).connection_pool

    @cached_property
    def _async_pool(self) -> Any:
        return AsyncFakeRedis(server=self._server, protocol=2, socket_timeout=None).connection_pool


def in_process_engine(name: str) -> InProcessEngine:
    """Return the engine of this name, which lasts as long as the process."""
    with _lock:
        return _engines.get(name) or _engines.setdefault(name, InProcessEngine())


_engines: dict[str, InProcessEngine] = {}
_lock = threading.Lock()


class _Server(FakeServer):  # type: ignore[misc, unused-ignore]
    """A fake server that compiles each script once.

    fakeredis compiles a script each time that it runs, which takes longer than most scripts run.
    """

    @property
    def _lua_runtime(self) -> _Runtime:
        """The runtime that fakeredis sets before the first script runs."""
        try:
            return self._runtime
        except AttributeError:
            raise AttributeError("_lua_runtime") from None

    @_lua_runtime.setter
    def _lua_runtime(self, runtime: Any) -> None:
        self._runtime = _Runtime(runtime)


class _Runtime:
    """A Lua runtime that keeps the scripts that it has compiled."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes | str, Any] = {}

    def execute(self, script: bytes | str) -> Any:
        """Run a script, compiled before or now."""
        compiled = self._compiled.get(script)
        if compiled is None:
            compiled = self._compiled[script] = self._runtime.compile(script)
        return compiled()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)
