"""Asyncio connections to an embedded engine, which send nothing until the server proves to be this user's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from scratchbus.engine.connections import HUNG_UP, UNREAD, reply_reader
from scratchbus.engine.embedded.own_connection import BUFFER, OwnSocket, introduction, redis_py_errors
from scratchbus.engine.embedded.socket import check_peer, check_socket
from scratchbus.engine.lazy_packages import redis_errors


@dataclass(kw_only=True, eq=False)
class AsyncOwnConnection(OwnSocket):
    """An asyncio connection to the engine of a directory. It needs no import of redis-py."""

    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Open the socket, unless it is open, and set the client's name. Raises redis-py's errors."""
        if self._writer is not None:
            return
        with redis_py_errors(self.path):
            try:
                async with asyncio.timeout(self.socket_connect_timeout):
                    await self._open()
            except BaseException:
                await self.disconnect(True)
                raise

    async def _open(self) -> None:
        path = Path(self.path)
        check_socket(path, self.directory)
        reader, self._writer = await asyncio.open_unix_connection(self.path)
        check_peer(self._writer.get_extra_info("socket"), path)
        self._writer.write(introduction(self.client_name))
        replies = reply_reader()
        while (reply := replies.gets()) is UNREAD:
            received = await reader.read(BUFFER)
            if not received:
                raise redis_errors.ConnectionError(HUNG_UP)
            replies.feed(received)
        if isinstance(reply, Exception):
            raise reply
        self._reader = reader

    async def disconnect(self, nowait: bool = False, /) -> None:
        """Close the socket; with `nowait`, without waiting until it is closed."""
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            if not nowait:
                await writer.wait_closed()
