"""A write without a reply raises with its event id, and a retry with it from another client is not repeated.

After the lost reply the network stays down for longer than a write retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.engine.steps import Call, Interrupted
from scratchbus.errors import EngineUnreachable
from tests.faults.interposing import Send, interposed
from tests.faults.operations import SUBJECT, are_of_kinds
from tests.faults.proxy import Proxy
from tests.faults.servers import Server
from tests.faults.writing import WRITES

pytestmark = pytest.mark.real

_MAX_REPLIES = 40  # replies of one operation
Act = Callable[[Any], Any]


@pytest.fixture
def proxy(shared_server: Server) -> Iterator[Proxy]:
    with Proxy(shared_server) as proxy:
        yield proxy


@pytest.fixture
def direct(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    """Another client, which bypasses the proxy."""
    with Bus.connect(shared_server.url, source="other", bus=bus_name, max_observations=10_000) as bus:
        yield bus


def blocking(url: str, name: str, act: Act, before: Callable[[], object] = lambda: None) -> Any:
    """Write with a new blocking bus."""
    with Bus.connect(url, **SUBJECT, bus=name, max_observations=10_000) as bus:
        bus.core.log.patience = 0
        before()
        return act(bus)


def nonblocking(url: str, name: str, act: Act, before: Callable[[], object] = lambda: None) -> Any:
    """Write with a new asyncio bus."""

    async def acting() -> Any:
        async with AsyncBus.connect(url, **SUBJECT, bus=name, max_observations=10_000) as bus:
            bus.core.log.patience = 0
            before()
            return await act(bus)

    return asyncio.run(acting())


ASYNC = ("add", "claim next", "add a note", "spawn a session")
"""A few writes with the asyncio facade. All are tried with the blocking one, which is generated from it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("facade", "name"), [*((blocking, name) for name in WRITES), *((nonblocking, name) for name in ASYNC)]
)
def test_a_retry_with_the_errors_event_id_writes_once(
    facade: Callable[..., Any], name: str, shared_server: Server, direct: Bus, proxy: Proxy
) -> None:
    writing, bus_name, in_log = WRITES[name], direct.core.log.bus, 0
    arguments = writing.prepare(direct)
    facade(shared_server.url, bus_name, lambda bus: writing.act(bus, *arguments, event_id=None))  # loads the scripts
    for number in range(1, _MAX_REPLIES):
        arguments = writing.prepare(direct)
        before = direct.position()

        def act(bus: Any, event_id: str | None = None, arguments: list[Any] = arguments) -> Any:
            return writing.act(bus, *arguments, event_id=event_id)

        def fail(number: int = number) -> None:
            proxy.fail_from("reply", number)

        try:
            facade(proxy.url, bus_name, act, fail)
            cut = None
        except EngineUnreachable as error:
            cut = error
        proxy.calm()
        if cut is None:
            break
        written = [event for event in direct.events(after=before) if event.by == "subject"]
        if written:
            in_log += 1
            assert cut.event_id == written[0].id
            assert cut.event_id in str(cut)
            assert cut.position in (None, written[0].position)
        facade(shared_server.url, bus_name, lambda bus, cut=cut: act(bus, cut.event_id))
        after = [event for event in direct.events(after=before) if event.by == "subject"]
        kinds = [event.kind for event in after]
        assert are_of_kinds(kinds, writing.kinds), f"reply {number}: {kinds}"
        assert after[: len(written)] == written
    assert in_log
    assert direct.verify().findings == []


@pytest.mark.parametrize("name", WRITES)
def test_a_write_succeeds_although_a_reply_is_lost(name: str, shared_server: Server, direct: Bus) -> None:
    writing, seen = WRITES[name], list[int]()

    def around(call: Call, send: Send) -> list[Any]:
        replies = send()
        if call.is_write:
            seen[-1] += 1
            if seen[-1] == len(seen):
                raise Interrupted("the test lost the reply")
        return replies

    with Bus.connect(shared_server.url, **SUBJECT, bus=direct.core.log.bus, max_observations=10_000) as bus:
        while not seen or seen[-1] >= len(seen):  # until the reply to lose never came
            arguments, before = writing.prepare(direct), direct.position()
            seen.append(0)
            with interposed(bus, around):
                writing.act(bus, *arguments, event_id=None)
            kinds = [event.kind for event in direct.events(after=before) if event.by == "subject"]
            assert are_of_kinds(kinds, writing.kinds), f"reply {len(seen)}: {kinds}"
