"""The resources, and notifications of their changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from mcp import Client, MCPDeprecationWarning, MCPError
from mcp_types import ResourceUpdatedNotification

from scratchbus import AsyncBus, AsyncView, BusPosition, Event
from scratchbus.errors import EngineUnreachable, LogRewound, ScratchbusError
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.notifications import _Subscriber
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace
from tests.edges.mcp.conftest import Agent, Connect, in_server_process
from tests.waiting import PATIENCE


async def read(agent: Agent, uri: str) -> dict[str, Any]:
    (content,) = (await agent.client.read_resource(uri)).contents
    assert content.mime_type == "application/json"
    document: dict[str, Any] = json.loads(content.text)
    return document


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - waits for several notifications
            await anyio.sleep(0.01)


async def test_active_and_single_observations_are_resources(connect: Connect):
    async with connect(page="user:42/x") as agent:
        added = await agent.do("add_observation", type="observation", content="x" * 600)
        resource = (await agent.client.list_resources()).resources[0]
        templates = (await agent.client.list_resource_templates()).resource_templates
        (active,) = (await read(agent, resource.uri))["observations"]
        whole = await read(agent, f"observation://{added['id']}")
        same = await read(agent, "scratch://user:42/x/active")
    assert resource.uri == "scratch://user%3A42%2Fx/active"
    assert [each.uri_template for each in templates] == [
        "scratch://{page}/active",
        "observation://{id}",
        "context://{agent}",
    ]
    assert active["id"] == added["id"]
    assert whole["content"] == "x" * 600
    assert [each["id"] for each in same["observations"]] == [active["id"]]


async def test_an_observation_that_the_view_has_dropped_can_be_read(connect: Connect, monkeypatch: pytest.MonkeyPatch):
    async with connect() as agent:
        added = await agent.do("add_observation", type="observation", content="x")
        await agent.do("archive_observation", id=added["id"])
        monkeypatch.setattr(AsyncView, "get", lambda *_: None)
        found = (await agent.do("get_observation", id=added["id"]))["observation"]
        assert await read(agent, f"observation://{added['id']}") == found
        assert (await agent.do("get_observation", id="01M7ZNQZHB25T9J0CB63CKMM6Q"))["observation"] is None


async def test_the_context_as_a_resource_is_that_of_the_tool(connect: Connect):
    async with connect(session="s1", knowledge=["ada"]) as agent:
        await agent.do("remember_preference", key="quotes", text="double quotes")
        (content,) = (await agent.client.read_resource("context://analyst")).contents
        assert content.text == (await agent.do("get_context"))["text"]
    assert "double quotes" in content.text


@pytest.mark.parametrize(
    "uri",
    ["scratch://other/active", "observation://01M7ZNQZHB25T9J0CB63CKMM6Q", "observation://x", "file:///etc/passwd"],
)
async def test_a_missing_or_foreign_resource_is_refused(connect: Connect, uri: str):
    async with connect() as agent:
        with pytest.raises(MCPError) as refused:
            await agent.client.read_resource(uri)
    assert refused.value.code == -32602
    assert uri.partition("://")[2] in str(refused.value)


async def test_without_observation_tools_observations_are_no_resources(connect: Connect):
    async with connect("analyst") as analyst, connect("clerk", session="s1", tools=["notes"]) as clerk:
        added = await analyst.do("add_observation", type="observation", content="x")
        assert [each.name for each in (await clerk.client.list_resources()).resources] == ["notes"]
        for uri in ("scratch://main/active", f"observation://{added['id']}"):
            with pytest.raises(MCPError, match="not a resource"):
                await clerk.client.read_resource(uri)


async def test_notes_are_shown_without_internal_fields(connect: Connect):
    async with connect(session="s1", tools=["notes"]) as agent:
        added = await agent.do("add_note", content="the bank answers", tags=["bank"])
        (note,) = (await read(agent, "notes://s1"))["notes"]
    assert {name: note[name] for name in added["note"]} == added["note"]
    assert not note.keys() & {"shard", "added_ms", "added_seq", "ms", "seq"}


async def test_a_listening_client_is_notified_of_changes_elsewhere(embedded_url: str, page_name: str):
    """With protocol versions from 2026-07-28 on."""
    options = ("--page", page_name)
    async with (
        in_server_process(embedded_url, "--agent", "analyst", *options) as analyst,
        in_server_process(embedded_url, "--agent", "reviewer", *options) as reviewer,
    ):
        uri = f"scratch://{page_name}/active"
        async with reviewer.client.listen(resource_subscriptions=[uri]) as heard:
            await analyst.do("add_observation", type="observation", content="x")
            with anyio.fail_after(PATIENCE):
                event = await anext(aiter(heard))
        assert event.uri == uri


async def test_a_subscribed_client_is_notified_until_it_unsubscribes(embedded_url: str, page_name: str):
    """With protocol versions before 2026-07-28."""
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
    async with in_server_process(embedded_url, *options, mode="legacy", message_handler=handle) as agent:
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


async def test_an_unsubscribed_resource_is_forgotten():
    sent: list[str] = []

    async def send(uri: str) -> None:
        sent.append(uri)

    subscriber = _Subscriber(send)
    for uri in ("observation://1", "observation://2"):
        subscriber.add(uri, uri)
        subscriber.record_change(uri)
    subscriber.remove("observation://1")
    assert subscriber.uris == {"observation://2"}
    with anyio.move_on_after(0.05):
        await subscriber.notify()
    assert sent == ["observation://2"]


async def test_only_resources_can_be_subscribed_to(connect: Connect):
    async with connect(mode="legacy") as agent:
        for uri in ("file:///etc/passwd", "scratch://other/active", "observation://01M7ZNQZHB25T9J0CB63CKMM6Q"):
            with pytest.warns(MCPDeprecationWarning), pytest.raises(MCPError):
                await agent.client.subscribe_resource(uri)


async def test_notifications_use_the_uri_of_the_client(memory_url: str):
    """Whether percent-encoded or not, and for memories as well."""
    heard: list[str] = []

    async def handle(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(message.params.uri)

    identity = Identity.of("analyst", page="user:42/x", session="s1", tools=["all"])
    forms = ["scratch://user:42/x/active", "scratch://user%3A42%2Fx/active", "notepad://s1"]
    async with (
        Workspace.opened(identity, url=memory_url) as workspace,
        Client(server_of(workspace), mode="legacy", message_handler=handle) as client,
    ):
        agent = Agent(client, workspace.bus)
        for uri in forms:
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource(uri)
        await agent.do("add_observation", type="observation", content="x")
        await agent.do("write_notepad", content="the plan")
        await until(lambda: set(forms) <= set(heard))


@pytest.mark.parametrize("error", [EngineUnreachable("it is away"), LogRewound("it was replaced")], ids=repr)
async def test_memories_are_followed_again_after_an_error(
    memory_url: str, monkeypatch: pytest.MonkeyPatch, error: ScratchbusError
):
    heard: list[str] = []
    errors, events = [error], AsyncBus.events

    async def handle(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(message.params.uri)

    async def failing(*given: Any, **more: Any) -> AsyncIterator[Event]:
        if errors:
            raise errors.pop()
        async for event in events(*given, **more):
            yield event

    monkeypatch.setattr(AsyncBus, "events", failing)
    async with (
        Workspace.opened(Identity.of("analyst", session="s1", tools=["all"]), url=memory_url) as workspace,
        Client(server_of(workspace), mode="legacy", message_handler=handle) as client,
    ):
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource("notepad://s1")
        await until(lambda: not errors)
        await Agent(client, workspace.bus).do("write_notepad", content="the plan")
        await until(lambda: "notepad://s1" in heard)


async def test_a_failed_subscription_does_not_stop_later_notifications(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
):
    heard: list[str] = []

    async def handle(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(message.params.uri)

    async def fail(_: object) -> BusPosition:
        raise EngineUnreachable("gone")

    async with (
        Workspace.opened(Identity.of("analyst", session="s1", tools=["all"]), url=memory_url) as workspace,
        Client(server_of(workspace), mode="legacy", message_handler=handle) as client,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(AsyncBus, "position", fail)
            with pytest.warns(MCPDeprecationWarning), pytest.raises(MCPError):
                await client.subscribe_resource("notepad://s1")
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource("notepad://s1")
        await Agent(client, workspace.bus).do("write_notepad", content="the plan")
        await until(lambda: heard == ["notepad://s1"])


async def test_failed_tools_are_logged_to_a_client_that_set_a_level(memory_url: str):
    logged: list[Any] = []

    async def log(params: Any) -> None:
        logged.append((params.level, params.data["tool"]))

    async with (
        Workspace.opened(Identity.of("analyst"), url=memory_url) as workspace,
        Client(server_of(workspace), mode="legacy", logging_callback=log) as client,
    ):
        agent = Agent(client, workspace.bus)
        await agent.fail("add_observation", type="nonsense", content="x")
        assert logged == []
        with pytest.warns(MCPDeprecationWarning):
            await client.set_logging_level("warning")
        await agent.fail("add_observation", type="nonsense", content="x")
        await until(lambda: bool(logged))
    assert logged == [("warning", "add_observation")]
