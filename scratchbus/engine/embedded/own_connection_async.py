"""Asyncio connections to an embedded engine, which send nothing until the server proves to be this user's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from redis.asyncio import connection as nonblocking

from scratchbus.engine.embedded.socket import check_peer, check_place


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
