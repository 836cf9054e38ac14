"""The connections of a process to the servers of one engine."""

from __future__ import annotations

import asyncio

# blocking only:
# import os
# from scratchbus.engine.connections import HUNG_UP
# end
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scratchbus.engine.connections import Revive
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.links_async import AsyncLink
from scratchbus.engine.redirects import Address, Topology

# blocking only:
# from scratchbus.engine.steps import Sent
# end
from scratchbus.errors import BusClosed


class AsyncPool:
    # asyncio only:
    """The idle connections, those in use, and those that tasks share.

    `make` creates a connection, `revive` restarts the server; connecting takes at most `timeout` seconds.
    """

    # end
    # blocking only:
    # """The idle connections and those in use; `make` creates a connection, `revive` restarts the server."""
    # end

    def __init__(
        self,
        make: Callable[[Address], AsyncLink],
        where: str,
        topology: Topology,
        # asyncio only:
        timeout: float,
        # end
        revive: Revive = None,
        *,
        counts_errors: bool = False,
    ) -> None:
        self._make = make
        self._topology = topology
        self._revive = revive
        self._counts_errors = counts_errors
        self._idle: dict[Address, deque[AsyncLink]] = defaultdict(deque)
        self._busy: set[AsyncLink] = set()
        # blocking only:
        # self._sent: set[Link] = set()  # with outstanding replies that nobody waits for yet
        # end
        self._is_closed = False
        self.where = where
        # asyncio only:
        self._shared: dict[Address, AsyncLink] = {}
        self._connect_timeouts: set[asyncio.Timeout] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timeout = timeout
        # end
        # blocking only:
        # self._pid = os.getpid()
        # end

    # blocking only:
    # def _forget_parent(self) -> None:
    #     """Drop the connections from before a fork: a child must not share its parent's sockets."""
    #     self._idle, self._busy, self._sent, self._pid = defaultdict(deque), set(), set(), os.getpid()
    #
    # def _take_sent(self, sent: Sent) -> Link:
    #     """Return the connection that a call was sent on. Raises ConnectionError if it was closed meanwhile."""
    #     link: Link = sent.link
    #     forget, sent.forget = sent.forget, None
    #     try:
    #         if forget is None or self._pid != os.getpid():  # collected before, or by the parent
    #             raise KeyError
    #         self._sent.remove(link)
    #     except KeyError:
    #         raise redis_errors.ConnectionError(HUNG_UP) from None
    #     return link
    #
    # def _forget(self, link: Link) -> None:
    #     """Close a connection whose outstanding replies nobody will collect."""
    #     self._sent.discard(link)
    #     link.close()
    #
    # end
    # asyncio only:
    async def _connect_in_time(self, link: AsyncLink) -> None:
        """Connect to a server. Raises redis-py's TimeoutError or BusClosed."""
        try:
            async with asyncio.timeout(self._timeout) as timeout:
                self._connect_timeouts.add(timeout)
                await self._connect(link)
        except TimeoutError:
            raise redis_errors.TimeoutError(f"no reply within {self._timeout:g} s") from None
        finally:
            self._connect_timeouts.discard(timeout)

    # end
    async def _connect(self, link: AsyncLink) -> None:
        try:
            await link.open()
        except redis_errors.ConnectionError:
            if self._is_closed:
                raise BusClosed from None
            if self._revive is None:
                raise
            await self._call(self._revive)
            await link.open()

    async def _call(self, call: Callable[[], Any]) -> Any:
        # asyncio only:
        return await asyncio.to_thread(call)
        # end
        # blocking only:
        # return call()
        # end

    async def close(self) -> None:
        """Close the connections, those in use once they are returned; nothing can be sent afterwards."""
        self._is_closed = True
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close the idle connections, and shared ones once their replies are in; later calls open new ones."""
        # asyncio only:
        self._forget_other_loops()
        links = list(self._shared.values())
        # end
        for idle in list(self._idle.values()):
            with suppress(IndexError):  # another task may have taken the last one
                while True:
                    # asyncio only:
                    links.append(idle.pop())
                    # end
                    # blocking only:
                    # idle.pop().close()
                    # end
        # blocking only:
        # for link in list(self._sent):
        #     self._forget(link)
        # end
        # asyncio only:
        for link in links:
            link.retire()  # all of them, before the caller can be cancelled
        for link in links:
            await link.aclose()
        # end

    def _close_idle(self, server: Address) -> None:
        """Close the idle connections to a server that closed another: after a restart, they are all dead.

        Each one would cost a call one of its tries.
        """
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                self._idle[server].pop().close()

    async def break_off(self) -> None:
        """Close at once; calls that other tasks wait for raise BusClosed. Only for engines that only read."""
        self._is_closed = True
        # asyncio only:
        self._forget_other_loops()
        for timeout in self._connect_timeouts:
            if not timeout.expired():
                timeout.reschedule(0)
        for link in (*self._busy, *self._shared.values()):
            link.hang_up()
        # end
        # blocking only:
        # for link in list(self._busy) if self._pid == os.getpid() else ():
        #     link.hang_up()
        # end
        await self.close()

    # asyncio only:
    def _forget_other_loops(self) -> None:
        """Drop the connections of another event loop: they do not work in this one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._busy, self._shared, self._connect_timeouts = defaultdict(deque), set(), {}, set()
            self._loop = loop

    # end
