"""Lost requests and replies neither duplicate nor lose a write of any kind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

import pytest

from scratchbus import AsyncBus, Bus, Pulled
from scratchbus.domain.events import Event, Linked
from scratchbus.errors import Conflict, EngineUnreachable, NotFound
from scratchbus.eventlog.append import append
from scratchbus.eventlog.checkpoint import Outcome
from scratchbus.eventlog.ids import new_event_id, new_id
from scratchbus.eventlog.writes import Op, Write
from scratchbus.readmodel.catch_up import fold_once
from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.reminders import react
from tests.clock import Clock, hand_over
from tests.faults.checker import Acknowledged, check
from tests.faults.forwarder import Cut
from tests.faults.operations import OPERATIONS, SUBJECT, Operation, are_of_kinds, meddle, prepare
from tests.faults.proxy import Proxy
from tests.faults.servers import Server
from tests.faults.workers import JOBS
from tests.inspection import project

pytestmark = pytest.mark.real

_MAX_MESSAGES = 60  # requests or replies of one operation; a refutation has 40
_calls = count(1)

Actor = Callable[[Operation, list[Any], str | None], Any]
"""Executes an operation through the proxy, as `SUBJECT`."""


class Trial(NamedTuple):
    """How an operation is disturbed: what is cut, whether it has an event id, and whether another client meddles."""

    cut: Cut
    has_id: bool
    is_meddled: bool


SHORT = [Trial("reply", False, True), Trial("reply", True, False), Trial("request", False, True)]
CUTS: list[Cut] = ["request", "reply"]
LONG = [Trial(cut, has_id, meddled) for cut in CUTS for has_id in (False, True) for meddled in (False, True)]


@pytest.fixture
def proxy(shared_server: Server) -> Iterator[Proxy]:
    with Proxy(shared_server) as proxy:
        yield proxy


@pytest.fixture
def direct(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    """Another client, which bypasses the proxy."""
    with Bus.connect(shared_server.url, source="other", bus=bus_name, max_observations=10_000) as bus:
        yield bus


@pytest.fixture
def act(proxy: Proxy, direct: Bus) -> Iterator[Actor]:
    with Bus.connect(proxy.url, **SUBJECT, bus=direct.core.log.bus, max_observations=10_000) as bus:
        bus.page().add("observation", "the first write needs more requests than the others")
        yield lambda operation, arguments, event_id: operation.act(bus.page(), *arguments, event_id=event_id)


@pytest.fixture
def act_async(proxy: Proxy, direct: Bus) -> Iterator[Actor]:
    with asyncio.Runner() as runner:
        bus = AsyncBus.connect(proxy.url, **SUBJECT, bus=direct.core.log.bus, max_observations=10_000)

        async def act(operation: Operation, arguments: list[Any], event_id: str | None) -> Any:
            return await operation.act(bus.page(), *arguments, event_id=event_id)

        runner.run(act(OPERATIONS["add"], [], None))  # the first write needs more requests than the others
        yield lambda operation, arguments, event_id: runner.run(act(operation, arguments, event_id))
        runner.run(bus.close())


def disturb(act: Actor, name: str, direct: Bus, proxy: Proxy, trial: Trial) -> None:
    """Repeat an operation, and cut the connection one reply or request later each time."""
    operation = OPERATIONS[name]
    for number in range(1, _MAX_MESSAGES):
        arguments = prepare(operation, direct)
        before = direct.position()
        meanwhile = partial(meddle, operation, direct.page(), arguments)
        proxy.arm(trial.cut, number, meanwhile if trial.is_meddled else None)
        event_id = f"call-{next(_calls)}" if trial.has_id else None
        try:
            act(operation, arguments, event_id)
            is_done = True
        except (Conflict, NotFound):
            assert trial.is_meddled
            is_done = False
        was_cut = proxy.cuts > 0
        written = [event for event in direct.events(after=before) if is_own(event)]
        kinds = [event.kind for event in written]
        assert are_of_kinds(kinds, operation.kinds if is_done else ()), f"{trial}, cut {number}: {kinds}"
        if event_id is not None and is_done:
            proxy.calm()
            act(operation, arguments, event_id)
            assert [event for event in direct.events(after=before) if is_own(event)] == written
        if not was_cut:
            assert number > 1
            return
    raise AssertionError(f"{name} takes more than {_MAX_MESSAGES} round trips")


def is_own(event: Event) -> bool:
    return event.by == "subject"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lost_reply_neither_duplicates_nor_loses_a_write(name: str, act: Actor, direct: Bus, proxy: Proxy) -> None:
    for trial in SHORT:
        disturb(act, name, direct, proxy, trial)
    assert check(direct) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lost_reply_neither_duplicates_nor_loses_under_asyncio(
    name: str, act_async: Actor, direct: Bus, proxy: Proxy
) -> None:
    disturb(act_async, name, direct, proxy, SHORT[0])
    assert check(direct) == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_request_arriving_after_its_retry_changes_nothing(name: str, act: Actor, direct: Bus, proxy: Proxy) -> None:
    operation = OPERATIONS[name]
    for number in range(1, _MAX_MESSAGES):
        arguments = prepare(operation, direct)
        before = direct.position()
        proxy.arm("request", number, keep=True)
        act(operation, arguments, None)
        was_cut = proxy.cuts > 0
        proxy.deliver()
        kinds = [event.kind for event in direct.events(after=before) if is_own(event)]
        assert are_of_kinds(kinds, operation.kinds), f"request {number} arrived late: {kinds}"
        if not was_cut:
            break
    assert check(direct) == []


@pytest.mark.parametrize("cut", CUTS)
def test_a_commit_with_a_lost_reply_is_recognized_by_its_token(cut: Cut, direct: Bus, proxy: Proxy) -> None:
    with Bus.connect(proxy.url, bus=direct.core.log.bus) as bus:
        for number in count(1):
            observation = direct.page().add("observation", "folded once", tags=["a"])
            direct.page().link(observation.id, "goal-1")
            proxy.arm(cut, number)
            folded, reached = bus.converse(fold_once(bus.core.log, 0))
            if cut == "reply" or not proxy.cuts:
                assert (folded.outcome, folded.events) == (Outcome.DONE, 2)
            proxy.calm()
            if folded.outcome is not Outcome.DONE:
                folded, reached = bus.converse(fold_once(bus.core.log, 0, reached))
            assert folded.outcome is Outcome.DONE
            assert reached.position == direct.position().shards[0]
            assert check(direct) == []
            if not proxy.cuts:
                assert number > 3
                break


@pytest.mark.parametrize("cut", CUTS)
def test_a_lost_message_takes_a_pulled_event_back_once(cut: Cut, direct: Bus, proxy: Proxy) -> None:
    direct.declare_subscription("router")
    for content in ("first", "second"):
        direct.page().add("observation", content)
    with Bus.connect(proxy.url, bus=direct.core.log.bus) as bus:
        batch = bus.pull("router", max=2)
        first, second = (each.position for each in batch.deliveries)
        proxy.arm(cut, 2)  # the first one reads the rules for retries
        bus.nack("router", batch.token, first, "bad", delay=0)
        assert proxy.cuts == 1
        bus.ack("router", batch.token, second)
        assert [each.attempt for each in bus.pull("router").deliveries] == [2]


def declare_new(bus: Bus) -> object:
    return bus.declare_subscription("new"), bus.declare_subscription("new")


def reset(bus: Bus) -> object:
    return bus.declare_subscription("router", reset=True, after=bus.position())


SUBSCRIPTION_CALLS: dict[str, tuple[Callable[[Bus], object], object]] = {
    "declare": (declare_new, (True, False)),
    "reset": (reset, False),
    "retry dead letters": (lambda bus: bus.retry_dead_letters("router"), 2),
    "drop dead letters": (lambda bus: bus.drop_dead_letters("router"), 2),
    "unsubscribe": (lambda bus: bus.unsubscribe("router"), None),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", SUBSCRIPTION_CALLS)
def test_a_change_of_a_subscription_has_one_answer_whatever_is_lost(
    name: str, cut: Cut, direct: Bus, proxy: Proxy
) -> None:
    call, expected = SUBSCRIPTION_CALLS[name]
    with Bus.connect(proxy.url, bus=direct.core.log.bus) as bus:
        for number in count(1):
            direct.declare_subscription("router", max_attempts=1)
            batch = pull_two(direct)
            for delivery in batch.deliveries:
                direct.nack("router", batch.token, delivery.position, "bad")
            proxy.arm(cut, number)
            assert call(bus) == expected
            was_cut = proxy.cuts > 0
            proxy.calm()
            for each in direct.subscriptions():
                direct.unsubscribe(each.name)
            if not was_cut:
                assert number > 1
                break


def pull_two(bus: Bus) -> Pulled:
    for content in ("first", "second"):
        bus.page().add("observation", content)
    return bus.pull("router", max=2)


def test_a_repeated_reset_is_done_once_although_a_consumer_came(direct: Bus, proxy: Proxy) -> None:
    direct.declare_subscription("router")

    def consume() -> None:
        pull_two(direct)

    with Bus.connect(proxy.url, bus=direct.core.log.bus) as bus:
        bus.position()  # the first call needs more requests than the others
        proxy.arm("reply", 4, consume)  # the first three are about the end of the log
        assert bus.declare_subscription("router", reset=True) is False
        assert proxy.cuts == 1
        assert direct.subscriptions()[0].holder is not None


def test_a_repeated_unsubscribe_leaves_a_new_subscription(direct: Bus, proxy: Proxy) -> None:
    direct.declare_subscription("router")
    with Bus.connect(proxy.url, bus=direct.core.log.bus) as bus:
        proxy.arm("reply", 2, lambda: direct.declare_subscription("router"))  # the first one reads the subscription
        bus.unsubscribe("router")
        assert proxy.cuts == 1
    assert [each.name for each in direct.subscriptions()] == ["router"]


@pytest.mark.parametrize("cut", CUTS)
def test_an_expirer_that_loses_messages_appends_each_event_once(
    cut: Cut, shared_server: Server, direct: Bus, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = direct.page()
    with Clock(shared_server.url) as clock, Bus.connect(proxy.url, bus=direct.core.log.bus, source="subject") as bus:
        hand_over(monkeypatch)
        bus.page().add("observation", "the first write needs more requests than the others")
        for number in count(1):
            ends = [page.add("reminder", "has an end", ttl="5s").id for _ in range(3)]
            waits = page.add("reminder", "waits", remind_on={"tags": [f"t{number}"]}, ttl="never").id
            page.add("observation", "is waited for", tags=[f"t{number}"], ttl="never")
            clock.advance("6s")
            proxy.arm(cut, number)
            bus.converse(sweep(bus.core))
            bus.converse(react(bus.core))
            assert [[event.kind for event in page.history(id)] for id in ends] == [["added", "status_changed"]] * 3
            if not proxy.cuts or number > 12:
                break
            assert [event.kind for event in page.history(waits)] == ["added", "due"]
    project(direct)
    assert check(direct) == []


def storm(shared_server: Server, direct: Bus, proxy: Proxy, rounds: int, seed: int) -> None:
    """Let threads share a bus while a tenth of all requests and replies is lost."""
    said, failures = Acknowledged(), list[BaseException]()

    def write(bus: Bus, name: str) -> None:
        random, page = Random(f"{name}{seed}"), bus.page()
        try:
            for number in range(rounds):
                job, mark = random.choice(JOBS), new_id()
                try:
                    job(page, random, f"{name}-{number}" if random.random() < 0.5 else None, mark)
                    said.marks.append(mark)
                except (Conflict, NotFound):
                    pass
                except EngineUnreachable:
                    pass  # the outcome is unknown
        except BaseException as failure:
            failures.append(failure)

    with Bus.connect(proxy.url, bus=direct.core.log.bus, source="subject") as bus:
        proxy.storm(Random(seed), 0.1)
        threads = [threading.Thread(target=write, args=(bus, f"t{number}")) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        proxy.calm()
    assert failures == []
    assert len(said.marks) > rounds
    project(direct)
    assert check(direct, said) == []


@pytest.mark.slow
def test_threads_sharing_a_bus_survive_a_storm_of_cuts(shared_server: Server, direct: Bus, proxy: Proxy) -> None:
    storm(shared_server, direct, proxy, 60, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 8))
def test_threads_sharing_a_bus_survive_long_storms_of_cuts(
    shared_server: Server, direct: Bus, proxy: Proxy, seed: int
) -> None:
    storm(shared_server, direct, proxy, 400, seed)


def test_a_write_without_any_reply_raises_with_its_event_id(direct: Bus, proxy: Proxy) -> None:
    with Bus.connect(proxy.url, bus=direct.core.log.bus, source="subject", socket_timeout="1s") as bus:
        page = bus.page()
        id = page.add("observation", "linked once").id
        bus.core.log.patience = 0.3
        proxy.swallow()
        with pytest.raises(EngineUnreachable, match="retry it with event_id="):
            bus.converse(append(bus.core.log, "main", [a_link(id, "goal-1")]))
        proxy.calm()
        page.link(id, "goal-2", event_id="goal-2")
        assert page.link(id, "goal-2", event_id="goal-2").links == ["goal-1", "goal-2"]
    assert check(direct, Acknowledged(marks=["goal-1", "goal-2"])) == []


def a_link(id: str, action: str) -> Write:
    return Write(Linked(id=new_event_id(), page="main", subject=id, by="subject", action=action), Op.NOTE)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_lost_message_duplicates_or_loses_a_write(
    name: str, act: Actor, act_async: Actor, direct: Bus, proxy: Proxy
) -> None:
    for trial in LONG:
        disturb(act, name, direct, proxy, trial)
        disturb(act_async, name, direct, proxy, trial)
    assert check(direct) == []
