"""Links that are cut in one direction: withheld data arrives late, and other clients are not affected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.faults.proxy import Proxy
from tests.faults.relay import Relay
from tests.faults.servers import DURABLE, Server, embedded_binary
from tests.waiting import eventually

pytestmark = pytest.mark.real


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(embedded_binary(), tcp=True, **DURABLE)
    try:
        yield server.start()
    finally:
        server.close()


def client(url: str, timeout: float = 1.0) -> Redis:
    return Redis.from_url(url, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))


def answered(call: Callable[[], object]) -> bool:
    """Return whether a call got a reply, which a stalled machine may take more than the client's second for."""
    try:
        return bool(call())
    except RedisError:
        return False


def test_a_request_arrives_while_replies_are_withheld(server: Server) -> None:
    with Proxy(server) as proxy, client(proxy.door("a")) as cut_off, server.client() as direct:
        eventually(lambda: answered(cut_off.ping))
        proxy.withhold("reply")
        with pytest.raises(RedisError):
            cut_off.set("k", "v")
        eventually(lambda: direct.get("k") == b"v")
        proxy.release("reply")
        eventually(lambda: answered(lambda: cut_off.get("k") == b"v"))


def test_a_withheld_request_arrives_after_its_client_gave_up(server: Server) -> None:
    with Proxy(server) as proxy, client(proxy.door("a")) as cut_off, server.client() as direct:
        eventually(lambda: answered(cut_off.ping))
        proxy.withhold("request")
        with pytest.raises(RedisError):
            cut_off.set("k", "v")
        assert direct.get("k") is None
        proxy.release("request")
        eventually(lambda: direct.get("k") == b"v")


def test_one_client_is_cut_off_alone(server: Server) -> None:
    with Proxy(server) as proxy, client(proxy.door("a")) as one, client(proxy.door("b"), 10) as other:
        proxy.withhold("reply", "a")
        with pytest.raises(RedisError):
            one.ping()
        assert other.ping()
        proxy.release("reply", "a")
        assert client(proxy.door("a"), 10).ping()


def test_a_patient_client_gets_a_withheld_reply(server: Server) -> None:
    with Proxy(server) as proxy, client(proxy.door("a"), 30) as patient:
        patient.ping()
        proxy.withhold("reply", "a")
        healing = threading.Timer(0.3, lambda: proxy.release("reply", "a"))
        healing.start()
        assert patient.incr("n") == 1
        assert patient.incr("n") == 2


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_replica_is_cut_off_in_one_direction(server: Server, way: str) -> None:
    replica = Server(embedded_binary(), tcp=True, **DURABLE)
    try:
        with Relay(server) as relay, server.client() as primary, replica.start().client() as copy:
            replica.follow(relay)
            primary.set("k", "before")
            assert primary.wait(1, 10_000) == 1
            relay.withhold("request" if way == "there" else "reply")
            primary.set("k", "after")
            assert primary.wait(1, 300) == 0, "the replica lacks the write, or its ack is withheld"
            if way == "there":
                eventually(lambda: copy.get("k") == b"after")
            else:
                assert copy.get("k") == b"before"
            relay.release_all()
            assert primary.wait(1, 10_000) == 1
            assert copy.get("k") == b"after"
    finally:
        replica.close()
