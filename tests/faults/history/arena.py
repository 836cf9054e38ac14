"""The engines of a round: a primary and its replica behind a proxy, and what can be done to them."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from redis.exceptions import ResponseError

from scratchbus import Bus
from tests.faults.history.archives import read_archived
from tests.faults.history.logbook import Logbook, read_log
from tests.faults.history.roles import BUS
from tests.faults.machines import Machine, compiler
from tests.faults.proxy import Proxy
from tests.faults.relay import Relay
from tests.faults.servers import DURABLE, Server, embedded_binary
from tests.waiting import eventually

TAG = f"{{{BUS}:0}}:"
LOG = f"{TAG}log"
LOST = 0.03
"""The share of requests and replies at which connections are cut while replies are dropped."""
ASTRAY = 10
"""How many events, at least, go to the old primary when everyone is led late to the new one."""


class Reign(NamedTuple):
    """A stretch of time in which the log was one and the same, and what it held in the end.

    It begins between the two moments `begun`, and ends between the two moments `over` (monotonic seconds), by a
    failover, by a flush, or with the round. All the while the clock of the engine was `skew` ms ahead of ours.
    """

    log: Logbook
    begun: tuple[float, float]
    over: tuple[float, float]
    by: Literal["failover", "flush", "end"]
    skew: float = 0.0


class Arena:
    """A primary that syncs every write, a replica that does so too, and a proxy to whichever is primary."""

    def __init__(self, seed: int, archives: Path) -> None:
        self._archives = archives
        self.reigns: list[Reign] = []
        self.did: Counter[str] = Counter()
        self.unsynced = 0  # bytes that power cuts dropped
        self._random = Random(seed)
        binary = embedded_binary()
        make = Machine if compiler() else Server
        self.primary, self.replica = (make(binary, tcp=True, **DURABLE) for _ in range(2))
        self.proxy = Proxy(self.primary)
        self.relay = Relay(self.primary)
        self._begun = (0.0, 0.0)

    def __enter__(self) -> Self:
        try:
            self.primary.start()
            self.relay.__enter__()
            self.replica.start().follow(self.relay)
            self.proxy.__enter__()
        except BaseException:
            self._close_servers()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.proxy.__exit__(kind, problem, trace)
            self.relay.__exit__(kind, problem, trace)
        finally:
            self._close_servers()

    def _close_servers(self) -> None:
        self.primary.close()
        self.replica.close()

    def do(self, kind: str, lasts: float, target: str = "") -> None:
        """Have the engine, or the way to it, fail; what drops, delays or cuts goes on until `undo`."""
        self.did[kind] += 1
        match kind:
            case "kill engine":
                self._settle()
                self.primary.kill()
                self.primary.start()
            case "power cut":
                assert isinstance(self.primary, Machine)
                self._settle()
                self.proxy.release("request")  # else nothing would be written that could be lost
                self.proxy.release("reply")
                torn = self._random if self._random.random() < 0.5 else None
                self.unsynced += self.primary.cut_power(torn)
                self.primary.start()
            case "pause engine":
                self.primary.pause()
                time.sleep(lasts)
                self.primary.go_on()
            case "failover" | "skewed failover":
                self._settle()
                if isinstance(self.replica, Machine) and kind == "skewed failover":
                    self.replica.skew = lasts
                begun = time.monotonic()
                self.primary.kill()
                self._fail_over(begun)
            case "late failover":
                self._settle()
                begun = time.monotonic()
                self.replica.promote()
                self._lead_astray(lasts)
                self._fail_over(begun)
            case "drop replies":
                self.proxy.storm(self._random, LOST)
            case "delay replies":
                self.proxy.slow(0.03)
            case "flush":
                self._flush()
            case "cut requests" | "cut requests of one":
                self.proxy.withhold("request", target)
            case "cut replies" | "cut replies of one":
                self.proxy.withhold("reply", target)
            case "cut to replica":
                self.relay.withhold("back")
            case "cut from replica":
                self.relay.withhold("there")
            case "foreign entry":
                self._add_by_hand()

    def undo(self, kind: str, target: str = "") -> None:
        """End what lasted."""
        match kind:
            case "drop replies":
                self.proxy.calm()
            case "delay replies":
                self.proxy.slow(0)
            case "cut requests" | "cut requests of one":
                self.proxy.release("request", target)
            case "cut replies" | "cut replies of one":
                self.proxy.release("reply", target)
            case "cut to replica" | "cut from replica":
                self.relay.release()
            case "foreign entry":
                self.repair()

    def _add_by_hand(self) -> None:
        """Add an entry to the log that scratchbus did not write, with an id of now, of later, or beyond all time."""
        with self.primary.client() as client:
            now = client.time()[0] * 1000
            id = self._random.choice(["*", f"{now + 2_000}-0", f"{now + 3_600_000}-1", f"{2**64 - 2}-5"])
            with suppress(ResponseError):  # there is one with a higher id already
                client.xadd(LOG, {"by": "hand"}, id=id)

    def repair(self) -> None:
        """Remove what was added by hand; also what a failover has brought back."""
        with Bus.connect(self.primary.url, bus=BUS, source="repairer") as bus:
            bus.repair()

    def end(self) -> None:
        """Take note that the round is over."""
        self._check_copies()
        now = time.monotonic()
        self._reign_ends(self._read(self.primary), (now, now), "end")

    def _settle(self) -> None:
        """Wait until the replica follows: only such a one is ever promoted, and only beside it a primary killed.

        It follows also while one way to it is cut, as long as it has not noticed.
        """
        self._check_copies()
        with self.replica.client() as client:

            def is_up() -> bool:
                return bool(client.info("replication").get("master_link_status") == "up")

            if not is_up():
                self.relay.release()
                eventually(is_up, within=30)

    def _check_copies(self) -> None:
        """Fail when a server of another run follows the primary: WAIT would count copies that are not on the replica.

        A replica whose primary is gone asks again every second at a port that may be ours by now.
        """
        with self.primary.client() as client:
            about = client.info("replication")
        ports = {about[f"slave{number}"]["port"] for number in range(about["connected_slaves"])}
        assert ports <= {0, self.replica.port}, f"a server of another run, on port {ports}, is a replica of the primary"

    def _lead_astray(self, lasts: float) -> None:
        """Let all write to the old primary still, for some time, and until it has what the new one will not have."""
        with self.primary.client() as client:
            begun, deadline = client.xlen(LOG), time.monotonic() + 2
            time.sleep(lasts)
            while client.xlen(LOG) < begun + ASTRAY and time.monotonic() < deadline:
                time.sleep(0.01)

    def _fail_over(self, begun: float) -> None:
        """Lead everyone to the replica; the old primary begins anew as its replica, once its log was read."""
        self.replica.promote()  # a second time when it is late, which does no harm
        self.proxy.fail_over(self.replica)
        self.primary.kill()
        over = time.monotonic()
        self.primary.start()
        self._reign_ends(self._read(self.primary), (begun, over), "failover")
        self.primary, self.replica = self.replica, self.primary
        self.relay.lead_to(self.primary)
        self.relay.release()
        self.replica.follow(self.relay)
        self.repair()

    def _flush(self) -> None:
        self.relay.release()  # else it would never be known whether the replica has it
        begun = time.monotonic()
        with self.primary.client() as client:
            pipe = client.pipeline(transaction=True)  # so that nothing is written in between
            *found, _ = _ask_for_log(pipe).execute_command("FLUSHALL").execute()
            client.wait(1, 30_000)  # else a failover could bring back what was flushed
        self._reign_ends(self._logbook(*found), (begun, time.monotonic()), "flush")

    def _read(self, server: Server) -> Logbook:
        with server.client() as client:
            return self._logbook(*_ask_for_log(client.pipeline(transaction=True)).execute())

    def _logbook(self, raw: Any, tail: bytes | None, floor: bytes | None, origin: bytes | None) -> Logbook:
        """Return a log with what it has left to its archive, and without what was added by hand behind its tail.

        redis-py parses the reply of XRANGE into pairs of an id and a mapping.
        """
        end = _id((tail or b"0-0|").partition(b"|")[0])
        whole = [(id, fields) for id, fields in raw if _id(id) <= end]
        live = read_log((id, [word for pair in fields.items() for word in pair]) for id, fields in whole)
        until = int((floor or b"0-0|").partition(b"|")[0].partition(b"-")[2])
        archived = read_archived(self._archives, BUS, origin.decode(), until) if until and origin else []
        return Logbook(archived + [entry for entry in live if entry.seq > until])

    def _reign_ends(self, log: Logbook, over: tuple[float, float], by: Literal["failover", "flush", "end"]) -> None:
        """Take note of a reign; of a failover, before the new primary is called so."""
        skew = self.primary.skew * 1000 if isinstance(self.primary, Machine) else 0.0
        self.reigns.append(Reign(log, self._begun, over, by, skew))
        self._begun = over


def _ask_for_log(pipe: Any) -> Any:
    """Have it give a log, where that ends, upwards and downwards, and its origin."""
    return pipe.execute_command("XRANGE", LOG, "-", "+").get(f"{TAG}tail").get(f"{TAG}floor").get(f"{TAG}origin")


def _id(text: bytes) -> tuple[int, int]:
    """Return a stream id as numbers."""
    ms, _, seq = text.partition(b"-")
    return int(ms), int(seq)
