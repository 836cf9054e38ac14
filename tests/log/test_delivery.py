"""How a call reaches the server of its shard, tested with prepared replies instead of servers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from scratchbus.engine.cluster import Cluster
from scratchbus.engine.redirects import Address, OneServer, Sending, Topology, deliver
from scratchbus.engine.sentinel import Sentinels
from scratchbus.engine.steps import Call, Interrupted, Pause
from scratchbus.engine.urls import read_hosts
from scratchbus.errors import EngineMisconfigured, EngineUnreachable

A, B, C = (("127.0.0.1", port) for port in (1, 2, 3))
READ = Call(0, (("GET", "k"),))
WAITING = Call(0, (("GET", "k"), ("XREAD", "COUNT", 1, "BLOCK", 5000, "STREAMS", "log", "1-1")))
READING = Call(0, (("XREAD", "COUNT", 100, "STREAMS", "log", "1-1"),))
WRITE = Call(0, (("EVALSHA", "sha", 1, "k"), ("WAIT", 1, 100)), is_write=True)
SLOTS = [[0, 16383, [b"127.0.0.1", 1, b"id"], [b"127.0.0.1", 2, b"id"]]]


def converse(talk: Generator[Any, Any, Any], *answers: Any) -> tuple[Any, list[Sending]]:
    """Answer each request in turn; return the result and the requests."""
    sent, left, answer = list[Sending](), list(answers), None
    while True:
        try:
            request = talk.throw(answer) if isinstance(answer, Exception) else talk.send(answer)
        except StopIteration as done:
            assert left == []
            return done.value, sent
        answer = None
        if not isinstance(request, Pause):
            sent.append(request)
            answer = left.pop(0)


def addresses(sent: list[Sending]) -> list[Address]:
    return [sending.address for sending in sent]


def known_cluster() -> Cluster:
    cluster = Cluster([A, B], "bus")
    converse(cluster.learn(), [SLOTS])
    return cluster


@pytest.mark.parametrize("call", [READ, WRITE])
def test_a_moved_slot_redirects_this_and_later_calls(call: Call) -> None:
    cluster = known_cluster()
    moved = MovedError(f"{cluster.slot_of(0)} 127.0.0.1:3")
    answer, sent = converse(deliver(cluster, call, "x"), moved, [b"ok"])
    assert (answer, addresses(sent)) == ([b"ok"], [A, C])
    assert cluster.address(0) == C
    assert cluster.address(1) == A


def test_a_node_without_a_host_has_the_host_of_the_asked_one() -> None:
    cluster = Cluster([("here", 1)], "bus")
    converse(cluster.learn(), [[[0, 16383, [b"", 7, b"id"]]]])
    assert cluster.address(0) == ("here", 7)


@pytest.mark.parametrize("problem", [BusyLoadingError("loading"), ResponseError("BUSY a script"), ConnectionError("x")])
def test_another_node_is_asked_for_the_slots_when_one_is_busy(problem: Exception) -> None:
    cluster = Cluster([A, B], "bus")
    _, sent = converse(cluster.learn(), problem, [SLOTS])
    assert sorted(addresses(sent)) == [A, B]
    assert cluster.address(0) == A


def test_ask_redirects_a_single_read_and_a_write_waits() -> None:
    both = Call(0, (("GET", "k"), ("GET", "j")))
    replies = (AskError("5 127.0.0.1:3"), [b"k"], AskError("5 127.0.0.1:3"), [b"OK", b"j"])
    answer, sent = converse(deliver(known_cluster(), both, "x"), *replies)
    assert answer == [b"k", b"j"]
    assert [(each.address, each.commands) for each in sent[1:]] == [
        (A, (("GET", "k"),)),
        (A, (("GET", "j"),)),
        (C, (("ASKING",), ("GET", "j"))),
    ]
    _, sent = converse(deliver(known_cluster(), WRITE, "x"), AskError("5 127.0.0.1:3"), TryAgainError("x"), [1, 1])
    assert addresses(sent) == [A, A, A]


def test_a_write_on_a_broken_connection_is_not_resent() -> None:
    cluster = known_cluster()
    with pytest.raises(Interrupted):
        converse(deliver(cluster, WRITE, "x"), ConnectionError("gone"))
    _, sent = converse(deliver(cluster, READ, "x"), [SLOTS], [b"v"])
    assert addresses(sent) == [B, A], "the failed node is asked last for the slots"


@pytest.mark.parametrize("place", [known_cluster(), OneServer()])
def test_a_write_whose_wait_ends_with_a_demotion_is_not_resent(place: Topology) -> None:
    unblocked = ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed")
    with pytest.raises(Interrupted):
        converse(deliver(place, WRITE, "x"), unblocked)
    assert place.note(unblocked, A), "reads are sent again"


def test_a_cluster_that_is_down_is_retried_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    down = ClusterDownError("CLUSTERDOWN The cluster is down")
    answer, _ = converse(deliver(known_cluster(), WRITE, "x"), *[down, [SLOTS]] * 5, [1, 1])
    assert answer == [1, 1]
    monkeypatch.setattr("scratchbus.engine.redirects.RECOVERY_SECONDS", 0.0)
    with pytest.raises(EngineUnreachable, match="cannot serve now"):
        converse(deliver(known_cluster(), WRITE, "x"), *[down, [SLOTS]] * 3)


def test_a_read_that_timed_out_while_it_waited_on_the_log_is_not_sent_again_to_the_only_server() -> None:
    with pytest.raises(EngineUnreachable):
        converse(deliver(OneServer(), WAITING, "x"), TimeoutError("no reply"))
    for call, problem in ((WAITING, ConnectionError("gone")), (READ, TimeoutError()), (READING, TimeoutError())):
        _, sent = converse(deliver(OneServer(), call, "x"), problem, problem, [b"v"])
        assert len(sent) == 3
    _, sent = converse(deliver(known_cluster(), WAITING, "x"), TimeoutError("no reply"), [SLOTS], [b"v"])
    assert addresses(sent) == [A, B, A], "another server may take over"


def master_of(topology: Topology, *answers: Any) -> Address | None:
    converse(topology.learn(), *answers)
    return topology.address(0)


def test_a_server_that_denies_being_master_is_not_used() -> None:
    named = [[b"127.0.0.1", b"3"]]
    assert master_of(Sentinels([A, B], "m"), named, [[b"master", 0, []]]) == C
    assert master_of(Sentinels([A, B], "m"), named, NoPermissionError("NOPERM")) == C
    assert master_of(Sentinels([A, B], "m"), named, [[b"slave"]], [[b"127.0.0.1", b"2"]], [[b"master"]]) == B
    with pytest.raises(ReadOnlyError):
        master_of(Sentinels([A], "m"), named, [[b"slave"]])


def test_a_sentinel_with_another_password_is_passed_over() -> None:
    refused, named, master = AuthenticationError("WRONGPASS"), [[b"127.0.0.1", b"3"]], [[b"master"]]
    assert master_of(Sentinels([A, B], "m"), refused, named, master) == C
    with pytest.raises(AuthenticationError):
        master_of(Sentinels([A, B], "m"), refused, ConnectionError("gone"))
    known = Sentinels([A, B], "m")
    assert master_of(known, named, master) == C
    with pytest.raises(ReadOnlyError):  # which passes
        master_of(known, named, [[b"slave"]], refused)


def test_sentinels_that_forget_a_master_are_asked_again() -> None:
    with pytest.raises(EngineMisconfigured, match="know no master 'm'"):
        master_of(Sentinels([A], "m"), [None])
    known, master = Sentinels([A], "m"), ([[b"127.0.0.1", b"3"]], [[b"master"]])
    assert master_of(known, *master) == C
    answer, _ = converse(deliver(known, READ, "x"), ReadOnlyError("READONLY"), [None], *master, [b"v"])
    assert answer == [b"v"]


def test_a_thread_asks_the_sentinels_while_another_sorts_them() -> None:
    requests = []

    class Interrupting(tuple[str, int]):
        def __ne__(self, other: object) -> bool:
            requests.append(next(sentinels.learn()))
            return super().__ne__(other)

    sentinels = Sentinels([Interrupting(A)], "m")
    assert master_of(sentinels, [[b"127.0.0.1", b"3"]], [[b"master"]]) == C
    assert [request.address for request in requests] == [A]


def test_sentinels_have_their_own_user_and_password() -> None:
    hosts = read_hosts("redis+sentinel://me:m%40e@[::1]:1,two/name?db=3&sentinel_username=s&sentinel_password=p%3A")
    assert (hosts.addresses, hosts.name) == ([("::1", 1), ("two", 26379)], "name")
    assert hosts.server == "redis://me:m%40e@localhost/?db=3"
    assert hosts.sentinel == "redis://s:p%3A@localhost/?"
