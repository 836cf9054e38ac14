"""The resources, and that clients hear of changes."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import MCPDeprecationWarning, MCPError
from mcp_types import ResourceUpdatedNotification

from tests.edges.mcp.conftest import Agent, Connect, in_a_process
from tests.waiting import PATIENCE


async def read(agent: Agent, uri: str) -> dict[str, Any]:
    (content,) = (await agent.client.read_resource(uri)).contents
    assert content.mime_type == "application/json"
    document: dict[str, Any] = json.loads(content.text)
    return document


async def test_what_is_active_and_each_observation_can_be_read(connect: Connect):
    async with connect(page="user:42/x") as agent:
        added = await agent.do("add_observation", type="observation", content="x" * 600)
        (resource,) = (await agent.client.list_resources()).resources
        templates = (await agent.client.list_resource_templates()).resource_templates
        (active,) = (await read(agent, resource.uri))["observations"]
        whole = await read(agent, f"observation://{added['id']}")
        same = await read(agent, "scratch://user:42/x/active")
    assert resource.uri == "scratch://user%3A42%2Fx/active"
    assert [each.uri_template for each in templates] == ["scratch://{page}/active", "observation://{id}"]
    assert active["id"] == added["id"]
    assert whole["content"] == "x" * 600
    assert same["observations"] == [active]


@pytest.mark.parametrize(
    "uri",
    ["scratch://other/active", "observation://01M7ZNQZHB25T9J0CB63CKMM6Q", "observation://x", "file:///etc/passwd"],
)
async def test_what_is_not_there_or_not_for_this_agent_is_refused(connect: Connect, uri: str):
    async with connect() as agent:
        with pytest.raises(MCPError) as refused:
            await agent.client.read_resource(uri)
    assert refused.value.code == -32602
    assert uri.partition("://")[2] in str(refused.value)


async def test_who_has_no_tools_for_observations_reads_none_as_resources(connect: Connect):
    async with connect("analyst") as analyst, connect("clerk", session="s1", tools=["notes"]) as clerk:
        added = await analyst.do("add_observation", type="observation", content="x")
        assert clerk.client.server_capabilities.resources is None
        for uri in ("scratch://main/active", f"observation://{added['id']}"):
            with pytest.raises(MCPError, match="Method not found"):
                await clerk.client.read_resource(uri)


async def test_a_client_that_listens_hears_of_changes_from_anywhere(embedded_url: str, page_name: str):
    """In the protocol from 2026-07-28 on."""
    options = ("--page", page_name)
    async with (
        in_a_process(embedded_url, "--agent", "analyst", *options) as analyst,
        in_a_process(embedded_url, "--agent", "reviewer", *options) as reviewer,
    ):
        uri = f"scratch://{page_name}/active"
        async with reviewer.client.listen(resource_subscriptions=[uri]) as heard:
            await analyst.do("add_observation", type="observation", content="x")
            with anyio.fail_after(PATIENCE):
                event = await anext(aiter(heard))
        assert event.uri == uri


async def test_a_client_that_subscribed_hears_of_changes_until_it_no_longer_wants_to(embedded_url: str, page_name: str):
    """In the protocol before 2026-07-28."""
    heard: list[str] = []
    woken = anyio.Event()

    async def handle(message: object) -> None:
        nonlocal woken
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(message.params.uri)
            woken.set()
            woken = anyio.Event()

    async def hear(uri: str) -> None:
        with anyio.fail_after(PATIENCE):
            while uri not in heard:
                await woken.wait()

    options = ("--agent", "analyst", "--page", page_name)
    async with in_a_process(embedded_url, *options, mode="legacy", message_handler=handle) as agent:
        assert agent.client.server_capabilities.resources.subscribe
        active = f"scratch://{page_name}/active"
        one = await agent.do("add_observation", type="observation", content="x")
        uri = f"observation://{one['id']}"
        for each in (active, uri):
            with pytest.warns(MCPDeprecationWarning):
                await agent.client.subscribe_resource(each)
        await agent.do("resolve_observation", id=one["id"])
        await hear(active)
        await hear(uri)
        with pytest.warns(MCPDeprecationWarning):
            await agent.client.unsubscribe_resource(uri)
        heard.clear()
        await agent.do("archive_observation", id=one["id"])
        await agent.do("add_observation", type="observation", content="y")
        await hear(active)
        assert uri not in heard
