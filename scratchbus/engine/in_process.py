"""The engine of `memory://` URLs: fakeredis, in this process."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from redis import exceptions as redis_errors

from scratchbus.engine.connections import HUNG_UP, Commands, pack
from scratchbus.engine.links import Link
from scratchbus.engine.links_async import AsyncLink
from scratchbus.engine.steps import Joint
from scratchbus.errors import EngineMisconfigured

try:
    from fakeredis import FakeRedis, FakeServer
    from fakeredis._commands import SUPPORTED_COMMANDS
    from fakeredis.aioredis import FakeRedis as AsyncFakeRedis
except ImportError:
    raise EngineMisconfigured("memory:// needs fakeredis: pip install 'fakeredis[lua]'") from None

for verb in ("eval", "evalsha"):  # fakeredis lacks EVAL_RO and EVALSHA_RO
    SUPPORTED_COMMANDS.setdefault(f"{verb}_ro", SUPPORTED_COMMANDS[verb])


class _Link(Link):
    """A connection to a fake server, which replies before `send` returns."""

    def open(self) -> None:
        self._connection.connect()
        found = self._connection._sock
        self.send, self.next_reply, self.is_open = found.sendall, found.responses.get, True


class _AsyncLink(AsyncLink):
    """A connection to a fake server, which replies before sending returns, unless the command blocks."""

    def _take_over(self, connection: Any) -> None:
        self._socket = connection._sock

    async def exchange(self, commands: Commands, joint: Joint | None = None) -> list[Any]:
        self._socket.sendall(pack(commands))
        replies = [await self._socket.responses.get() for _ in commands]
        if _HANG_UP in replies:
            raise redis_errors.ConnectionError(HUNG_UP)
        return replies

    def hang_up(self) -> None:
        if self.is_open:
            self._socket.responses.put_nowait(_HANG_UP)


class InProcessEngine:
    """A fake server and the connections to it."""

    def __init__(self) -> None:
        self._server = _Server(version=(7,))

    def link(self) -> Link:
        """Return a blocking connection."""
        return _Link(self._pool.connection_class(**self._pool.connection_kwargs))

    def async_link(self) -> AsyncLink:
        """Return an asyncio connection."""
        return _AsyncLink(self._async_pool.connection_class(**self._async_pool.connection_kwargs), 0.0)

    @cached_property
    def _pool(self) -> Any:
        return FakeRedis(server=self._server, protocol=2).connection_pool

    @cached_property
    def _async_pool(self) -> Any:
        return AsyncFakeRedis(server=self._server, protocol=2, socket_timeout=None).connection_pool


def in_process_engine(name: str) -> InProcessEngine:
    """Return the engine of this name; it lives as long as the process."""
    with _lock:
        return _engines.get(name) or _engines.setdefault(name, InProcessEngine())


_HANG_UP = object()
_engines: dict[str, InProcessEngine] = {}
_lock = threading.Lock()


_COMPILE_ONCE = """
local compiled, type, tostring, load, error = {}, type, tostring, loadstring or load, error
return function(script)
  if type(script) ~= 'string' then script = tostring(script) end -- fakeredis's own scripts are str, not bytes
  local known = compiled[script]
  if not known then
    local problem
    known, problem = load(script)
    if not known then error(problem, 0) end
    compiled[script] = known
  end
  return known()
end
"""


class _Server(FakeServer):  # type: ignore[misc, unused-ignore]
    """A fake server that compiles each script once: compiling takes longer than most scripts run."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Replace the Lua runtime that fakeredis sets before the first script runs."""
        super().__setattr__(name, _compiling_once(value) if name == "_lua_runtime" else value)


def _compiling_once(runtime: Any) -> Any:
    """Return a runtime like this one that caches compiled scripts."""
    wrapper: Any = type("Runtime", (type(runtime),), {})(encoding=None, unpack_returned_tuples=True)
    wrapper.execute = wrapper.execute(_COMPILE_ONCE)
    return wrapper
