"""Sessions over standard input and output answer as the SDK does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from secrets import token_hex
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import Client, MCPError
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from scratchbus import AsyncBus
from scratchbus.errors import EngineFull, EngineUnreachable
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.json_rpc import McpSession, Message
from scratchbus.mcp.methods import Methods
from scratchbus.mcp.protocol import EARLIER, LATER
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace
from tests.edges.mcp.conftest import text_of
from tests.waiting import PATIENCE


class Wire(Protocol):
    """A connection to a server."""

    async def send(self, message: Message) -> None: ...

    async def receive(self) -> Message: ...


class Transport(Protocol):
    """A function that serves a workspace over a connection."""

    def __call__(self, workspace: Workspace) -> AbstractAsyncContextManager[Wire]: ...


class _OfSdk:
    def __init__(self, incoming: Any, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    async def send(self, message: Message) -> None:
        await self._incoming.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))

    async def receive(self) -> Message:
        with anyio.fail_after(PATIENCE):
            message = (await self._outgoing.receive()).message
        document: Message = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return document


class _OfSession:
    def __init__(self, session: McpSession, outgoing: MemoryObjectReceiveStream[Message]) -> None:
        self._session, self._outgoing = session, outgoing

    async def send(self, message: Message) -> None:
        self._session.take(message)

    async def receive(self) -> Message:
        with anyio.fail_after(PATIENCE):
            return await self._outgoing.receive()


@asynccontextmanager
async def by_the_sdk(workspace: Workspace) -> AsyncIterator[Wire]:
    server = server_of(workspace)
    given, taken = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    sent, heard = anyio.create_memory_object_stream[SessionMessage](100)
    async with given, taken, sent, heard, anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, taken, sent, server.create_initialization_options())
        yield _OfSdk(given, heard)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def by_our_session(workspace: Workspace) -> AsyncIterator[Wire]:
    sent, heard = anyio.create_memory_object_stream[Message](100)
    methods = Methods(workspace)
    async with sent, heard, methods.serving(), anyio.create_task_group() as tasks:
        session = McpSession(methods, tasks, sent.send)
        async with session.ending:
            yield _OfSession(session, heard)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def opened(send: Callable[[Message], Awaitable[None]], **methods: Any) -> AsyncIterator[McpSession]:
    """Open a session with a function that sends, and with some methods replaced."""
    async with (
        Workspace.opened(Identity.of("analyst", session="s1"), url=f"memory://{token_hex(6)}") as workspace,
        anyio.create_task_group() as group,
    ):
        every = Methods(workspace)
        every.by_name |= methods
        session = McpSession(every, group, send)
        async with session.ending:
            yield session


@asynccontextmanager
async def connected(transport: Transport, **identity: Any) -> AsyncIterator[tuple[Wire, Workspace]]:
    who = Identity.of("analyst", **{"session": "s1", "tools": ["all"], **identity})
    async with (
        Workspace.opened(who, url=f"memory://{token_hex(6)}") as workspace,
        transport(workspace) as wire,
    ):
        yield wire, workspace


def ask(id: int, method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


KEY = "io.modelcontextprotocol/"
ENVELOPE = {f"{KEY}protocolVersion": LATER[-1], f"{KEY}clientCapabilities": {}}


def later(message: Message, **more: Any) -> Message:
    return {**message, "params": {**message["params"], "_meta": {**ENVELOPE, **more}}}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def hello(version: str = EARLIER[-1]) -> list[Message]:
    info = {"name": "raw", "version": "1"}
    return [ask(1, "initialize", protocolVersion=version, capabilities={}, clientInfo=info), INITIALIZED]


PROMPT = {"type": "ref/prompt", "name": "end_of_run"}
TEMPLATE = {"type": "ref/resource", "uri": "notepad://{session}"}
REQUESTS = [
    ask(2, "ping"),
    ask(3, "tools/list"),
    ask(4, "tools/list", cursor=1),
    ask(5, "tools/call", name="list_observations", arguments={}),
    ask(6, "tools/call", name="list_observations"),
    ask(7, "tools/call", name="nope"),
    ask(8, "tools/call", arguments={}),
    ask(9, "tools/call", name="nope", arguments=[1]),
    ask(10, "prompts/list"),
    ask(11, "prompts/get", name="handover"),
    ask(12, "prompts/get", name="nope"),
    ask(13, "prompts/get", name="start", arguments={"task": 1}),
    ask(14, "resources/list"),
    ask(15, "resources/templates/list"),
    ask(16, "resources/read", uri="notepad://s1"),
    ask(17, "resources/read", uri="nope://s1"),
    ask(18, "resources/read"),
    ask(19, "resources/subscribe", uri="notepad://s1"),
    ask(20, "resources/subscribe", uri="nope://s1"),
    ask(21, "resources/unsubscribe", uri="notepad://s1"),
    ask(22, "completion/complete", ref=PROMPT, argument={"name": "outcome", "value": "e"}),
    ask(23, "completion/complete", ref=TEMPLATE, argument={"name": "session", "value": ""}),
    ask(24, "completion/complete", ref={"type": "nope"}, argument={"name": "outcome", "value": ""}),
    ask(25, "completion/complete", ref=PROMPT),
    ask(26, "logging/setLevel", level="loud"),
    ask(27, "logging/setLevel", level="warning"),
    ask(28, "tools/call", name="todo", arguments={"todos": [{"id": "1", "content": "x", "status": "done"}]}),
    ask(29, "server/discover"),
    ask(30, "nope/nope"),
]  # fmt: skip

CONVERSATIONS: dict[str, list[Message]] = {
    **{f"version {version}": [*hello(version), *REQUESTS] for version in EARLIER},
    "an unknown version": [*hello("2030-01-01"), *REQUESTS[:3]],
    "later": [later(each) for each in REQUESTS],
    "later, with a level": [later(REQUESTS[-3], **{f"{KEY}logLevel": "info"})],
    "later, with a level above the message": [later(REQUESTS[-3], **{f"{KEY}logLevel": "error"})],
    "before initialize": [ask(1, "ping"), ask(2, "tools/list"), ask(3, "nope/nope"), *hello(), ask(4, "tools/list")],
    "an initialize without parameters": [ask(1, "initialize")],
    "metadata that is not an object": [
        *hello(),
        ask(2, "tools/list", _meta=[1]),
        ask(3, "tools/call", name="x", _meta="x"),
    ],
    "initialize, and then later": [*hello(), later(ask(2, "tools/list"))],
    "later, and then initialize": [later(ask(1, "tools/list")), *hello()[:1], ask(2, "tools/list")],
    "later, with an unknown version": [later(ask(1, "tools/list"), **{f"{KEY}protocolVersion": "2099-01-01"})],
    "later, with a version that is no string": [later(ask(1, "tools/list"), **{f"{KEY}protocolVersion": 1})],
    "later, without client capabilities": [
        {**ask(1, "tools/list"), "params": {"_meta": {f"{KEY}protocolVersion": LATER[-1]}}}
    ],
}


async def answers(transport: Transport, messages: list[Message], **identity: Any) -> list[Message]:
    heard: list[Message] = []
    async with connected(transport, **identity) as (wire, _):
        for message in messages:
            await wire.send(message)
            while "id" in message:
                heard.append(await wire.receive())
                if "id" in heard[-1]:
                    break
    return [_without_wording(each) for each in heard]


def _without_wording(message: Message) -> Message:
    """Return a message without the text of a protocol error, which may differ from that of the SDK."""
    error = message.get("error")
    if error is None or error["code"] == -32601:
        return message
    if error.get("data") == "" or "\n" in str(error.get("data")):
        error = {**error, "data": None}
    return {**message, "error": {"code": error["code"], "data": error.get("data")}}


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_session_answers_as_the_sdk_does(name: str):
    ours, theirs = [await answers(each, CONVERSATIONS[name]) for each in (by_our_session, by_the_sdk)]
    assert ours == theirs
    assert ours


async def test_a_session_without_resources_answers_as_the_sdk_does():
    identity = {"session": None, "tools": ["scratchpad"]}
    valid = [each for each in REQUESTS if each["id"] != 18]  # the SDK checks the parameters of methods it lacks
    for messages in ([*hello(), *valid], [later(each) for each in valid]):
        ours, theirs = [await answers(each, messages, **identity) for each in (by_our_session, by_the_sdk)]
        assert ours == theirs


def test_the_protocol_versions_are_those_of_the_sdk():
    assert (EARLIER, LATER) == (HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS)


@pytest.mark.parametrize("transport", [by_our_session, by_the_sdk])
async def test_an_added_event_has_the_traceparent_of_its_call(transport: Transport):
    trace = f"00-{7:032x}-{9:016x}-01"
    metas: list[dict[str, Any]] = [{"traceparent": trace}, {"traceparent": ["wrong"]}, {}]
    given = {"type": "observation", "content": "x"}
    async with connected(transport) as (wire, workspace):
        kept = []
        for id, meta in enumerate(metas):
            await wire.send(later(ask(id, "tools/call", name="add_observation", arguments=given), **meta))
            added = (await wire.receive())["result"]["structuredContent"]["id"]
            (event,) = await workspace.page.history(added)
            kept.append(event.traceparent)
    assert kept == [trace, None, None]


@pytest.mark.parametrize("transport", [by_our_session, by_the_sdk])
async def test_a_listening_client_is_notified_until_it_cancels(transport: Transport):
    uri = "scratch://main/active"
    wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": [uri]}
    async with connected(transport) as (wire, workspace):
        await wire.send(later(ask(7, "subscriptions/listen", notifications=wanted)))
        acknowledged = await wire.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": [uri]}
        await workspace.page.add("observation", "x")
        heard = await wire.receive()
        assert (heard["method"], heard["params"]["uri"]) == ("notifications/resources/updated", uri)
        assert {each["params"]["_meta"][f"{KEY}subscriptionId"] for each in (acknowledged, heard)} == {7}
        await wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        await wire.send(
            later(ask(8, "tools/call", name="add_observation", arguments={"type": "observation", "content": "y"}))
        )
        assert (await wire.receive())["id"] == 8  # neither an answer to 7 nor a notification


@pytest.mark.parametrize("transport", [by_our_session, by_the_sdk])
async def test_a_subscribed_client_is_notified_until_it_unsubscribes(transport: Transport):
    forms = ["scratch://main/active", "scratch://main/active/"]
    async with connected(transport) as (wire, workspace):
        for message in (*hello(), *(ask(2, "resources/subscribe", uri=form) for form in forms)):
            await wire.send(message)
            if "id" in message:
                await wire.receive()
        await workspace.page.add("observation", "x")
        heard = [await wire.receive() for _ in forms]
        assert sorted(each["params"]["uri"] for each in heard) == forms
        await wire.send(ask(3, "resources/unsubscribe", uri=forms[1]))
        await wire.receive()
        await workspace.page.add("observation", "y")
        assert (await wire.receive())["params"] == {"uri": forms[0]}
        await wire.send(ask(4, "ping"))
        assert (await wire.receive())["id"] == 4


async def test_a_cancelled_request_is_neither_answered_nor_awaited():
    sent, heard = anyio.create_memory_object_stream[Message](100)
    async with (
        Workspace.opened(Identity.of("analyst", session="s1"), url=f"memory://{token_hex(6)}") as workspace,
        sent,
        heard,
        anyio.create_task_group() as tasks,
    ):
        methods = Methods(workspace)

        async def never(*_: object) -> dict[str, Any]:
            await anyio.sleep_forever()
            return {}

        methods.by_name["ping"] = never
        session = McpSession(methods, tasks, sent.send)
        for id in (5, "five"):
            session.take(ask(id, "ping"))  # type: ignore[arg-type]
            session.take({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": str(id)}})
        with anyio.fail_after(PATIENCE):
            await session.wait_until_answered()
        assert heard.statistics().current_buffer_used == 0


async def test_at_its_end_a_session_waits_for_answers_but_not_for_endless_requests():
    answered, may_end = list[object](), anyio.Event()

    async def send(message: Message) -> None:
        answered.append(message["id"])
        session.settle(message["id"])

    async def blocked(*_: object) -> dict[str, Any]:
        await may_end.wait()
        return {}

    async with opened(send, **{"tools/list": blocked, "subscriptions/listen": blocked}) as session:
        session.take(later(ask(1, "subscriptions/listen", notifications={})))
        with anyio.fail_after(PATIENCE):
            await session.wait_until_answered()
            session.take(later(ask(2, "tools/list")))
            await session.wait_until_answered(0.01)
            assert answered == []
            may_end.set()
            await session.wait_until_answered(PATIENCE)
    assert 2 in answered


async def test_an_answer_in_transmission_is_not_cancelled():
    begun, may_end = anyio.Event(), anyio.Event()
    sent: list[object] = []

    async def send(message: Message) -> None:
        begun.set()
        await may_end.wait()
        sent.append(message["id"])
        session.settle(message["id"])

    async with opened(send) as session:
        session.take(ask(1, "ping"))
        with anyio.fail_after(PATIENCE):
            await begun.wait()
            session.take({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            may_end.set()
            await session.wait_until_answered()
    assert sent == [1]


async def test_a_number_and_its_text_are_two_requests():
    answered: list[object] = []
    begun, may_end = anyio.Event(), anyio.Event()

    async def wait(*_: object) -> dict[str, Any]:
        begun.set()
        await may_end.wait()
        return {}

    async def send(message: Message) -> None:
        answered.append(message["id"])
        session.settle(message["id"])

    async with opened(send, ping=wait) as session:
        for id in (1, "1"):
            session.take(ask(id, "ping"))  # type: ignore[arg-type]
        with anyio.fail_after(PATIENCE):
            await begun.wait()
            session.take({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            may_end.set()
            await session.wait_until_answered()
    assert answered == ["1"]


async def test_the_end_of_a_session_cancels_and_awaits_its_requests():
    begun = anyio.Event()
    ended: list[str] = []

    async def never(*_: object) -> dict[str, Any]:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            ended.append("ping")
        return {}

    async def send(_: Message) -> None:
        raise AssertionError("a message was sent")

    with anyio.fail_after(PATIENCE):
        async with opened(send, ping=never) as session:
            session.take(ask(1, "ping"))
            await begun.wait()
    assert ended == ["ping"]


async def test_an_answer_that_cannot_be_sent_ends_the_server():
    async def send(_: Message) -> None:
        raise RuntimeError("the wire is cut")

    async def serve() -> None:
        async with opened(send) as session:
            session.take(ask(1, "ping"))
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as problem, anyio.fail_after(PATIENCE):
        await serve()
    assert problem.group_contains(RuntimeError, match="the wire is cut")


async def test_a_failed_method_is_logged_and_answered(monkeypatch: pytest.MonkeyPatch):
    logged: list[str] = []
    monkeypatch.setattr(
        "scratchbus.mcp.json_rpc.logger.exception", lambda event, **_: logged.append(event), raising=False
    )
    async with connected(by_our_session) as (wire, workspace):
        monkeypatch.setattr(workspace.bus, "context", None)
        for message in (*hello(), ask(2, "prompts/get", name="before_compaction")):
            await wire.send(message)
        await wire.receive()
        assert (await wire.receive())["error"]["code"] == -32603
    assert logged == ["a request failed"]


@pytest.mark.parametrize("transport", [by_our_session, by_the_sdk])
async def test_an_engine_that_is_away_is_not_a_server_bug(transport: Transport, monkeypatch: pytest.MonkeyPatch):
    async def fail(_: object) -> None:
        raise EngineUnreachable("gone")

    wanted = {"ref": {"type": "ref/resource", "uri": "observation://{id}"}, "argument": {"name": "id", "value": ""}}
    async with connected(transport) as (wire, _):
        monkeypatch.setattr(AsyncBus, "position", fail)
        for message in (*hello(), ask(2, "completion/complete", **wanted)):
            await wire.send(message)
        await wire.receive()
        assert (await wire.receive())["error"] == {"code": -32603, "message": "gone"}


@pytest.mark.parametrize("is_shared", [True, False], ids=["over HTTP", "over stdio"])
async def test_only_local_clients_learn_where_the_engine_is(
    monkeypatch: pytest.MonkeyPatch, memory_url: str, capfd: pytest.CaptureFixture[str], is_shared: bool
):
    async def fail(*_: object, **__: object) -> None:
        raise EngineFull("redis://10.0.0.7:6379 is out of memory; raise its maxmemory")

    identity = Identity.of("analyst", session="s1", tools=["all"])
    async with (
        Workspace.opened(identity, is_shared=is_shared, url=memory_url) as workspace,
        Client(server_of(workspace)) as client,
    ):
        monkeypatch.setattr(AsyncBus, "position", fail)
        told = [text_of(await client.call_tool("list_observations", {}))]
        with pytest.raises(MCPError) as refused:
            await client.read_resource("scratch://main/active")
        told.append(str(refused.value))
    assert all(("10.0.0.7" in each) is not is_shared and "out of memory" in each for each in told), told
    assert ("10.0.0.7" in capfd.readouterr().err) is is_shared
