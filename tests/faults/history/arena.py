"""The engines of a round: a primary and its replica behind a proxy, and the faults of both."""

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
"""The share of requests and replies that are lost with their connections during `drop replies`."""
MIN_LOST = 10
"""The minimum number of events that go to the old primary during a late failover."""


class Reign(NamedTuple):
    """A period with one and the same log, and that log at its end.

    It begins between the two times `begun`, and ends between the two times `over` (monotonic seconds), by a failover, a
    flush, or the end of the round. During it the clock of the engine was `skew` ms ahead of ours.
    """

    log: Logbook
    begun: tuple[float, float]
    over: tuple[float, float]
    by: Literal["failover", "flush", "end"]
    skew: float = 0.0


class Arena:
    """A primary and a replica, which sync every write, and a proxy to the current primary."""

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
        """Inject a fault into the engine or the network; drops, delays and cuts last until `undo`."""
        self.did[kind] += 1
        match kind:
            case "kill engine":
                self._settle()
                self.primary.kill()
                self.primary.start()
            case "power cut":
                assert isinstance(self.primary, Machine)
                self._settle()
                self.proxy.release("request")  # otherwise no write could get lost
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
                self._write_to_old_primary(lasts)
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
                self.relay.withhold("reply")
            case "cut from replica":
                self.relay.withhold("request")
            case "foreign entry":
                self._add_by_hand()

    def undo(self, kind: str, target: str = "") -> None:
        """End a lasting fault."""
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
                self.relay.release_all()
            case "foreign entry":
                self.repair()

    def _add_by_hand(self) -> None:
        """Add a foreign entry to the log, with a stream id of now, of later, or the far future."""
        with self.primary.client() as client:
            now = client.time()[0] * 1000
            id = self._random.choice(["*", f"{now + 2_000}-0", f"{now + 3_600_000}-1", f"{2**64 - 2}-5"])
            with suppress(ResponseError):  # the log has a higher id already
                client.xadd(LOG, {"by": "hand"}, id=id)

    def repair(self) -> None:
        """Remove entries added by hand, including those that a failover restored."""
        with Bus.connect(self.primary.url, bus=BUS, source="repairer") as bus:
            bus.repair()

    def end(self) -> None:
        """Record the end of the round."""
        self._check_copies()
        now = time.monotonic()
        self._reign_ends(self._read(self.primary), (now, now), "end")

    def _settle(self) -> None:
        """Wait until the replica follows: otherwise it is not promoted, and the primary is not killed.

        A replica follows even while one direction to it is cut, as long as it has not noticed.
        """
        self._check_copies()
        with self.replica.client() as client:

            def is_up() -> bool:
                return bool(client.info("replication").get("master_link_status") == "up")

            if not is_up():
                self.relay.release_all()
                eventually(is_up, within=30)

    def _check_copies(self) -> None:
        """Fail if a server of another run follows the primary: WAIT would count its copies.

        A replica without a primary retries every second at the port of its old primary, which may be ours by now.
        """
        with self.primary.client() as client:
            about = client.info("replication")
        ports = {about[f"slave{number}"]["port"] for number in range(about["connected_slaves"])}
        assert ports <= {0, self.replica.port}, (
            f"a server of another run, on ports {ports}, is a replica of the primary"
        )

    def _write_to_old_primary(self, lasts: float) -> None:
        """Let clients write to the old primary for some time, until it has events that the new one lacks."""
        with self.primary.client() as client:
            begun, deadline = client.xlen(LOG), time.monotonic() + 2
            time.sleep(lasts)
            while client.xlen(LOG) < begun + MIN_LOST and time.monotonic() < deadline:
                time.sleep(0.01)

    def _fail_over(self, begun: float) -> None:
        """Lead everyone to the replica; read the log of the old primary, and make it the new replica."""
        self.replica.promote()  # the second time in a late failover, which does no harm
        self.proxy.fail_over(self.replica)
        self.primary.kill()
        over = time.monotonic()
        self.primary.start()
        self._reign_ends(self._read(self.primary), (begun, over), "failover")
        self.primary, self.replica = self.replica, self.primary
        self.relay.lead_to(self.primary)
        self.relay.release_all()
        self.replica.follow(self.relay)
        self.repair()

    def _flush(self) -> None:
        self.relay.release_all()  # otherwise WAIT below would not return
        begun = time.monotonic()
        with self.primary.client() as client:
            pipe = client.pipeline(transaction=True)  # so that no write comes in between
            *found, _ = _ask_for_log(pipe).execute_command("FLUSHALL").execute()
            client.wait(1, 30_000)  # otherwise a failover could restore the flushed log
        self._reign_ends(self._logbook(*found), (begun, time.monotonic()), "flush")

    def _read(self, server: Server) -> Logbook:
        with server.client() as client:
            return self._logbook(*_ask_for_log(client.pipeline(transaction=True)).execute())

    def _logbook(self, raw: Any, tail: bytes | None, floor: bytes | None, origin: bytes | None) -> Logbook:
        """Return a log with its archived events, and without entries added by hand after its tail.

        redis-py parses the reply of XRANGE into pairs of an id and a mapping.
        """
        end = _id((tail or b"0-0|").partition(b"|")[0])
        whole = [(id, fields) for id, fields in raw if _id(id) <= end]
        live = read_log((id, [word for pair in fields.items() for word in pair]) for id, fields in whole)
        until = int((floor or b"0-0|").partition(b"|")[0].partition(b"-")[2])
        archived = read_archived(self._archives, BUS, origin.decode(), until) if until and origin else []
        return Logbook(archived + [entry for entry in live if entry.seq > until])

    def _reign_ends(self, log: Logbook, over: tuple[float, float], by: Literal["failover", "flush", "end"]) -> None:
        """Record the end of a reign; call it before swapping primary and replica."""
        skew = self.primary.skew * 1000 if isinstance(self.primary, Machine) else 0.0
        self.reigns.append(Reign(log, self._begun, over, by, skew))
        self._begun = over


def _ask_for_log(pipe: Any) -> Any:
    """Queue the commands that read the log, its tail, its floor and its origin."""
    return pipe.execute_command("XRANGE", LOG, "-", "+").get(f"{TAG}tail").get(f"{TAG}floor").get(f"{TAG}origin")


def _id(text: bytes) -> tuple[int, int]:
    """Return a stream id as numbers."""
    ms, _, seq = text.partition(b"-")
    return int(ms), int(seq)
