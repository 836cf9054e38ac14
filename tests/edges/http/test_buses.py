"""The buses of callers: open while a request uses them, and closed beyond a limit when unused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from secrets import token_hex
from typing import Any

import httpx2
import pytest

from scratchbus import AsyncBus, McpIdentity, McpTokens
from scratchbus.errors import BusClosed
from scratchbus.http import server as module
from scratchbus.http.app import create_app
from scratchbus.http.callers import SCOPES, Caller, TokenHolders
from scratchbus.http.server import Server
from tests.waiting import PATIENCE


def caller(name: str) -> Caller:
    return Caller(name, name, frozenset(SCOPES), "daemon", token_hex(8))


@pytest.fixture
def tokens(tmp_path):
    return McpTokens(tmp_path / "tokens.yaml")


@pytest.fixture
async def server(embedded_url, tokens, monkeypatch) -> AsyncIterator[Server]:
    """A server with room for the buses of two callers."""
    monkeypatch.setattr(module, "MAX_BUSES", 2)
    server = Server(TokenHolders(tokens), {"url": embedded_url, "bus": f"test-{token_hex(6)}"})
    async with server.running():
        yield server


async def visit(server: Server, *callers: Caller) -> list[AsyncBus]:
    """Use the bus of each caller, one after the other."""
    buses = []
    for each in callers:
        with ExitStack() as uses:
            bus = await server.bus_of(each, uses)
            await bus.position()
            buses.append(bus)
    return buses


def users(server: Server) -> int:
    return sum(each.users for each in server._buses.values())


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # any condition
            await asyncio.sleep(0.01)


async def test_a_bus_in_use_stays_open(server):
    with ExitStack() as uses:
        bus = await server.bus_of(caller("reader"), uses)
        others = await visit(server, *(caller(f"c{n}") for n in range(4)))
        await bus.position()
    assert len(server._buses) == 2
    for other in others[:-1]:
        with pytest.raises(BusClosed):
            await other.position()
    await others[-1].position()


async def test_an_unused_bus_is_closed_and_reopened(server):
    first = caller("first")
    (before,) = await visit(server, first)
    await visit(server, caller("second"), caller("third"))
    with pytest.raises(BusClosed):
        await before.position()
    assert await visit(server, first) != [before]


async def test_buses_in_use_stay_open_beyond_the_limit(server):
    with ExitStack() as uses:
        buses = [await server.bus_of(caller(f"c{n}"), uses) for n in range(3)]
        assert (len(server._buses), users(server)) == (3, 3)
        for bus in buses:
            await bus.position()
    await visit(server, caller("next"))
    assert len(server._buses) == 2


async def test_the_servers_own_bus_stays_open(server):
    own = await server.own_bus()
    await visit(server, *(caller(f"c{n}") for n in range(4)))
    await own.position()
    assert await server.own_bus() is own


async def test_concurrent_callers_get_no_closed_bus(server):
    async def publish(who: Caller) -> None:
        for _ in range(5):
            with ExitStack() as uses:
                bus = await server.bus_of(who, uses)
                await bus.page().add("observation", "x")

    await asyncio.gather(*(publish(caller(f"c{n}")) for n in range(4)))
    with ExitStack() as uses:
        bus = await server.bus_of(caller("reader"), uses)
        assert [event.kind async for event in bus.events()] == ["added"] * 20


async def test_a_bus_opened_during_the_shutdown_is_closed(embedded_url, tokens, monkeypatch):
    server = Server(TokenHolders(tokens), {"url": embedded_url, "bus": f"test-{token_hex(6)}"})
    late: list[AsyncBus] = []
    close = AsyncBus.close

    async def closing(bus: AsyncBus) -> None:
        if not late:
            late.append(bus)
            late[:] = await visit(server, caller("late"))
        await close(bus)

    async with server.running():
        await visit(server, caller("c1"), caller("c2"))
        monkeypatch.setattr(AsyncBus, "close", closing)
    assert not server._buses
    with pytest.raises(BusClosed):
        await late[0].position()


# -- over HTTP --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def client(server: Server, tokens: McpTokens, name: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the server's application with a token of its own."""
    token = tokens.add(name, McpIdentity.of(name), scopes=SCOPES)
    transport = httpx2.ASGITransport(create_app(server))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://x/api/v1", headers=headers) as opened:
        yield opened


@pytest.mark.slow
async def test_a_long_poll_survives_other_callers(server, tokens):
    async with client(server, tokens, "worker") as worker:
        await worker.put("/subscriptions/s", json={})
        pull = asyncio.create_task(worker.post("/subscriptions/s/pull", json={"max": 1, "wait": "60s"}))
        await until(lambda: users(server) == 1)
        for n in range(3):
            async with client(server, tokens, f"c{n}") as other:
                assert (await other.get("/pages")).status_code == 200
        async with client(server, tokens, "publisher") as publisher:
            await publisher.post("/pages/main/observations", json={"type": "observation", "content": "x"})
        answer = await pull
        assert (answer.status_code, len(answer.json()["deliveries"])) == (200, 1)
        assert users(server) == 0


async def test_a_bus_is_in_use_until_a_stream_ends(server, tokens, monkeypatch):
    verify, seen = AsyncBus.verify, []

    async def verifying(bus: AsyncBus, *arguments: Any) -> Any:
        seen.append(users(server))
        return await verify(bus, *arguments)

    monkeypatch.setattr(AsyncBus, "verify", verifying)
    async with client(server, tokens, "verifier") as verifier:
        answer = await verifier.post("/verify", headers={"Accept": "text/event-stream"})
    assert "event: result" in answer.text
    assert (seen, users(server)) == ([1], 0)


async def test_a_refused_request_releases_its_bus(server, tokens):
    async with client(server, tokens, "reader") as reader:
        assert (await reader.get("/pages/main/observations/01M82VBMMTWBKBQW9875Y2C77Z")).status_code == 404
        assert (len(server._buses), users(server)) == (1, 0)
