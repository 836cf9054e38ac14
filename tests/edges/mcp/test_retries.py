"""Tools whose write is uncertain are retried once, with the event id of the error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scratchbus import AsyncBus
from scratchbus.engine.steps import Call, Interrupted, ask
from tests.edges.mcp.conftest import Connect


@contextmanager
def losing_replies(bus: AsyncBus, times: int) -> Iterator[list[Call]]:
    """Lose the replies of the first writes, without retries in the bus; yield the writes."""
    engine, writes = bus._engine, list[Call]()
    execute = engine.execute
    bus.core.log.patience = -1

    async def execute_and_lose(call: Call) -> list[Any]:
        replies = await execute(call)
        if call.is_write:
            writes.append(call)
            if len(writes) <= times:
                raise Interrupted("the test lost the reply")
        return replies

    engine.execute = execute_and_lose  # type: ignore[method-assign]
    try:
        yield writes
    finally:
        del engine.execute  # of the instance; the class has its own


async def test_a_write_whose_reply_is_lost_is_repeated_once(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        with losing_replies(agent.bus, 1) as writes:
            added = await agent.do("add_observation", type="observation", content="once")
        assert len(writes) == 2
        (event,) = [event async for event in agent.bus.events()]
    assert event.subject == added["id"]


async def test_an_update_that_releases_the_claim_is_retried_whole(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        id = (await agent.do("add_observation", type="observation", content="once"))["id"]
        fence = (await agent.do("claim_observation", id=id))["fence"]
        with losing_replies(agent.bus, 1):
            await agent.do("update_observation", id=id, content="twice", fence=fence, release=True)
        kinds = [event.kind async for event in agent.bus.events()]
    assert kinds == ["added", "claimed", "updated", "released"]


async def test_the_error_after_a_failed_retry_names_the_event_id(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        with losing_replies(agent.bus, 2) as writes:
            error = await agent.fail("add_observation", type="observation", content="once")
        assert len(writes) == 2
        (event,) = [event async for event in agent.bus.events()]
        assert f"retry it with event_id={event.id!r}" in error
        again = await agent.do("add_observation", type="observation", content="once", event_id=event.id)
    assert again["id"] == event.subject


async def test_a_foreign_entry_is_reported_without_a_retry(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        log = agent.bus.core.log
        shard = log.shard("main")
        await agent.bus.converse(ask(shard, "XADD", log.keys(shard).log, "9999999999999-0", "colour", "red"))
        with losing_replies(agent.bus, 0) as writes:
            error = await agent.fail("add_observation", type="observation", content="once")
        assert len(writes) == 1
        assert "9999999999999-0" in error
        assert "`scratchbus repair`" in error
        await agent.bus.repair()
        assert (await agent.do("add_observation", type="observation", content="once"))["id"]


async def test_every_writing_tool_takes_an_event_id(connect: Connect) -> None:
    async with connect() as agent:
        tools = (await agent.client.list_tools()).tools
    writing = [tool for tool in tools if not (tool.annotations and tool.annotations.read_only_hint)]
    assert writing
    assert [tool.name for tool in writing if "event_id" not in tool.input_schema["properties"]] == []
