"""The master according to Redis Sentinel."""

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.redirects import Address, Learning, Sending, Topology
from scratchbus.errors import EngineMisconfigured


class Sentinels(Topology):
    """The master that the sentinels named last. They are asked again if it fails or is no longer the master."""

    def __init__(self, sentinels: Sequence[Address], master: str) -> None:
        self._sentinels = list(sentinels)
        self._name = master
        self._master: Address | None = None
        self._was_known = False

    def address(self, shard: int) -> Address | None:
        """Return the master, which has all shards; None if it is unknown."""
        return self._master

    def learn(self) -> Learning[None]:
        """Ask the sentinels in turn until one names a server that confirms that it is the master.

        Raises EngineMisconfigured if sentinels answer and none has ever known the master's name.
        """
        last_problem: Exception | None = None
        for sentinel in list(self._sentinels):
            try:
                (named,) = yield Sending(sentinel, (("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name),))
                self.has_answered = True
                if named is None:
                    continue
                address = (named[0].decode(), int(named[1]))
                if (yield from _is_master(address)):
                    # in a new list: other threads would see an empty one while this one is sorted
                    self._sentinels = sorted(self._sentinels, key=lambda each: each != sentinel)
                    self._master, self._was_known = address, True
                    return
                last_problem = redis_errors.ReadOnlyError(f"{address[0]}:{address[1]} is not yet the master")
            except (redis_errors.RedisError, OSError) as problem:
                if last_problem is None or self.is_transient(problem) == self.has_answered:
                    last_problem = problem  # one that passes, unless no sentinel has ever answered
        if last_problem is None and self._was_known:  # an operator may be replacing its entry
            raise redis_errors.ClusterDownError(f"the sentinels no longer know the master {self._name!r}")
        if last_problem is None:
            raise EngineMisconfigured(f"the sentinels know no master {self._name!r}; check the name in the URL")
        raise last_problem

    def note(self, failure: Exception, address: Address | None) -> bool:
        """Forget the master if the failure is transient; return whether it is."""
        if self.is_transient(failure):
            self._master = None
        return self.is_transient(failure)


def _is_master(address: Address) -> Learning[bool]:
    """Return whether a server says that it is a master; True also if this user may not ask."""
    try:
        (role,) = yield Sending(address, (("ROLE",),))
    except redis_errors.NoPermissionError:
        return True
    return bool(role[0] == b"master")
