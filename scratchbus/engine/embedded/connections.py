"""Connections to an embedded engine, which send nothing before the server is known to be this user's."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from redis import connection as blocking
from redis import exceptions as redis_errors
from redis.asyncio import connection as nonblocking

from scratchbus.engine.embedded.socket import check_peer, check_place
from scratchbus.errors import EngineUnreachable


class OwnConnection(blocking.UnixDomainSocketConnection):
    """A blocking connection to the engine of a directory, at the socket `path`."""

    host: str = ""  # which redis-py leaves abstract and looks up when connecting takes too long

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py's
        self._directory = directory
        self.host = str(self.path)

    def _connect(self) -> socket.socket:
        place = Path(self.path)
        try:
            check_place(place, self._directory)
            connection: socket.socket = super()._connect()  # type: ignore[no-untyped-call]  # redis-py's
            try:
                check_peer(connection, place)
            except BaseException:
                connection.close()
                raise
        except EngineUnreachable as problem:
            raise redis_errors.ConnectionError(str(problem)) from problem
        return connection


class AsyncOwnConnection(nonblocking.UnixDomainSocketConnection):
    """An asyncio connection to the engine of a directory, at the socket `path`."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(**options)
        self._directory = directory

    async def _connect(self) -> None:
        place = Path(self.path)
        check_place(place, self._directory)
        async with asyncio.timeout(self.socket_connect_timeout):
            reader, writer = await asyncio.open_unix_connection(path=self.path)
        try:
            check_peer(writer.get_extra_info("socket"), place)
        except BaseException:
            writer.close()
            raise
        self._reader, self._writer = reader, writer
