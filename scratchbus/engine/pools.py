"""The connections of a process to the servers of one engine."""

# Generated from pools_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scratchbus.engine.connections import HUNG_UP, Revive
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.links import Link
from scratchbus.engine.redirects import Address, Topology
from scratchbus.engine.steps import Sent
from scratchbus.errors import BusClosed


class Pool:
    """The idle connections and those in use; `make` creates a connection, `revive` restarts the server."""

    def __init__(
        self,
        make: Callable[[Address], Link],
        where: str,
        topology: Topology,
        revive: Revive = None,
        *,
        counts_errors: bool = False,
    ) -> None:
        self._make = make
        self._topology = topology
        self._revive = revive
        self._counts_errors = counts_errors
        self._idle: dict[Address, deque[Link]] = defaultdict(deque)
        self._busy: set[Link] = set()
        self._sent: set[Link] = set()  # with outstanding replies that nobody waits for yet
        self._is_closed = False
        self.where = where
        self._pid = os.getpid()

    def _forget_parent(self) -> None:
        """Drop the connections from before a fork: a child must not share its parent's sockets."""
        self._idle, self._busy, self._sent, self._pid = defaultdict(deque), set(), set(), os.getpid()

    def _take_sent(self, sent: Sent) -> Link:
        """Return the connection that a call was sent on. Raises ConnectionError if it was closed meanwhile."""
        link: Link = sent.link
        forget, sent.forget = sent.forget, None
        try:
            if forget is None or self._pid != os.getpid():  # collected before, or by the parent
                raise KeyError
            self._sent.remove(link)
        except KeyError:
            raise redis_errors.ConnectionError(HUNG_UP) from None
        return link

    def _forget(self, link: Link) -> None:
        """Close a connection whose outstanding replies nobody will collect."""
        self._sent.discard(link)
        link.close()

    def _connect(self, link: Link) -> None:
        try:
            link.open()
        except redis_errors.ConnectionError:
            if self._is_closed:
                raise BusClosed from None
            if self._revive is None:
                raise
            self._call(self._revive)
            link.open()

    def _call(self, call: Callable[[], Any]) -> Any:
        return call()

    def close(self) -> None:
        """Close the connections, those in use once they are returned; nothing can be sent afterwards."""
        self._is_closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the idle connections, and shared ones once their replies are in; later calls open new ones."""
        for idle in list(self._idle.values()):
            with suppress(IndexError):  # another thread may have taken the last one
                while True:
                    idle.pop().close()
        for link in list(self._sent):
            self._forget(link)

    def _close_idle(self, server: Address) -> None:
        """Close the idle connections to a server that closed another: after a restart, they are all dead.

        Each one would cost a call one of its tries.
        """
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                self._idle[server].pop().close()

    def break_off(self) -> None:
        """Close at once; calls that other threads wait for raise BusClosed. Only for engines that only read."""
        self._is_closed = True
        for link in list(self._busy) if self._pid == os.getpid() else ():
            link.hang_up()
        self.close()
