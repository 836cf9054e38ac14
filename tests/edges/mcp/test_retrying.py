"""A tool whose write is in doubt: it is called once more, with the event id that the error names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scratchbus import AsyncBus
from scratchbus.engine.steps import Call, Interrupted, ask
from tests.edges.mcp.conftest import Connect


@contextmanager
def losing(bus: AsyncBus, times: int) -> Iterator[list[Call]]:
    """Lose the replies of the first writes, for longer than a write is patient; yield the writes."""
    engine, writes = bus._engine, list[Call]()
    execute = engine.execute
    bus.core.log.patience = -1

    async def losing(call: Call) -> list[Any]:
        replies = await execute(call)
        if call.is_write:
            writes.append(call)
            if len(writes) <= times:
                raise Interrupted("the test lost the reply")
        return replies

    engine.execute = losing  # type: ignore[method-assign]
    try:
        yield writes
    finally:
        del engine.execute  # the class has it still


async def test_a_tool_whose_reply_is_lost_is_called_once_more(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        with losing(agent.bus, 1) as writes:
            added = await agent.do("add_observation", type="observation", content="once")
        assert len(writes) == 2
        (event,) = [event async for event in agent.bus.events()]
    assert event.subject == added["id"]


async def test_a_change_that_gives_the_claim_back_is_retried_as_a_whole(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        id = (await agent.do("add_observation", type="observation", content="once"))["id"]
        fence = (await agent.do("claim_observation", id=id))["fence"]
        with losing(agent.bus, 1):
            await agent.do("update_observation", id=id, content="twice", fence=fence, release=True)
        kinds = [event.kind async for event in agent.bus.events()]
    assert kinds == ["added", "claimed", "updated", "released"]


async def test_a_tool_that_fails_again_names_the_event_id(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        with losing(agent.bus, 2) as writes:
            said = await agent.fail("add_observation", type="observation", content="once")
        assert len(writes) == 2
        (event,) = [event async for event in agent.bus.events()]
        assert f"retry it with event_id={event.id!r}" in said
        again = await agent.do("add_observation", type="observation", content="once", event_id=event.id)
    assert again["id"] == event.subject


async def test_a_tool_that_a_foreign_entry_blocks_names_the_command_and_is_not_retried(connect: Connect) -> None:
    async with connect("analyst") as agent:
        assert agent.bus is not None
        log = agent.bus.core.log
        shard = log.shard("main")
        await agent.bus.converse(ask(shard, "XADD", log.keys(shard).log, "9999999999999-0", "colour", "red"))
        with losing(agent.bus, 0) as writes:
            said = await agent.fail("add_observation", type="observation", content="once")
        assert len(writes) == 1
        assert "9999999999999-0" in said
        assert "`scratchbus repair`" in said
        await agent.bus.repair()
        assert (await agent.do("add_observation", type="observation", content="once"))["id"]


async def test_every_writing_tool_takes_an_event_id(connect: Connect) -> None:
    async with connect() as agent:
        tools = (await agent.client.list_tools()).tools
    writing = [tool for tool in tools if not (tool.annotations and tool.annotations.read_only_hint)]
    assert writing
    assert [tool.name for tool in writing if "event_id" not in tool.input_schema["properties"]] == []
