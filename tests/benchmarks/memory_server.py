"""`make bench-memory-server`: our tools for facts against the reference MCP memory server, through the same clients.

Each is called by the client of the SDK, as by an agent, and by a thin client, whose figures are nearly those of the
server alone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import click
from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters

from scratchbus.eventlog.writes import MAX_BATCH
from tests import launcher
from tests.benchmarks import report
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import ROOT, Stage, open_stage
from tests.benchmarks.thin_client import ThinClient, thin_client

SERVER = "@modelcontextprotocol/server-memory"
WRITERS = 20
EACH = 5  # entities per writer
BUS = "knowledge"

Call = tuple[str, dict[str, Any]]
"""A call of a tool: its name and its arguments."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rounds", default=5, show_default=True, help="Number of measured rounds.")
@click.option("--entities", default=3_000, show_default=True, help="Number of entities before the measurement.")
@click.option("--calls", default=50, show_default=True, help="Number of calls in a round.")
@click.option("--writers", default=WRITERS, show_default=True, help="Number of concurrent writers.")
def main(directory: Path, rounds: int, entities: int, calls: int, writers: int) -> None:
    """Measure scratchbus against the memory server that npm has installed in DIRECTORY."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine is stopped too
    package = directory.resolve() / "node_modules" / SERVER
    about: dict[str, Any] = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "entities": entities}
    with open_stage() as stage, TemporaryDirectory(prefix="scratchbus-peer-") as name:
        about["machine"] = report.machine(stage.bare, "mcp")
        servers = _Servers(stage, package / "dist" / "index.js", Path(name))
        rows = _measure(servers, rounds, entities, calls)
        lost = anyio.run(servers.lost, writers)
    report.show(report.console(), about, {SERVER: rows})
    ours, theirs = lost
    click.echo(
        f"{writers} concurrent clients created {EACH} entities each: we lost {ours}, the memory server lost {theirs}"
    )
    if ours or any(row.reached is False for row in rows):
        sys.exit(1)


class _Servers:
    """The parameters to start each server for a client, always on the same memory."""

    def __init__(self, stage: Stage, script: Path, directory: Path) -> None:
        self._stage = stage
        self._script = script
        self._directory = directory
        self.facts = stage.bus(BUS).facts("bench")

    def ours(self) -> StdioServerParameters:
        """Return the parameters to start our server."""
        arguments = ("--tools", "facts,recall", "--knowledge", "bench", "--agent", "bench", "--bus", BUS)
        program, *rest = launcher.command("-m", "scratchbus.cli", "mcp", *arguments, "--url", self._stage.url)
        return StdioServerParameters(command=program, args=rest, env=dict(os.environ), cwd=str(ROOT))

    def theirs(self, memory: str = "memory") -> StdioServerParameters:
        """Return the parameters to start the memory server on the memory `memory`."""
        environment = {**os.environ, "MEMORY_FILE_PATH": str(self._directory / f"{memory}.jsonl")}
        return StdioServerParameters(command="node", args=[str(self._script)], env=environment)

    async def lost(self, writers: int) -> tuple[int, int]:
        """Let many clients create entities at once; return how many our server and theirs lost."""
        wanted = writers * EACH
        async with Client(self.theirs("shared")) as reader:
            made = await _at_once([self.theirs("shared")] * writers, _their_entity)
            graph = await _called(reader, "read_graph", {})
        there = {each["name"] for each in graph["entities"]}
        kept = await _at_once([self.ours()] * writers, _our_entity)
        found = {fact.subject for fact in self.facts.query(relation="is_a", limit=None)}
        assert len(made) == len(kept) == wanted
        return len(set(kept) - found), len(set(made) - there)


def _measure(servers: _Servers, rounds: int, entities: int, calls: int) -> list[Row]:
    """Create entities one by one, and search for one among many."""
    numbers = count(entities)
    for first in range(0, entities, MAX_BATCH):
        some = range(first, min(first + MAX_BATCH, entities))
        servers.facts.ingest("\n".join(f"{_name(number)} -> is_a -> library" for number in some))

    def new(entity: Callable[[str], Call]) -> Call:
        return entity(_name(next(numbers)))

    def old(search: Callable[[str], Call]) -> Call:
        return search(_name(next(numbers) % entities))

    with ExitStack() as opened:
        portal = opened.enter_context(start_blocking_portal())
        mine, its = opened.enter_context(portal.wrap_async_context_manager(_both(servers, entities)))
        thin_mine, thin_its = (opened.enter_context(thin_client(each)) for each in (servers.ours(), servers.theirs()))
        rows = []
        for what, our, their in (
            ("create", partial(new, _our_entity), partial(new, _their_entity)),
            ("search", partial(old, _our_search), partial(old, _their_search)),
            ("search by words", partial(old, _our_recall), partial(old, _their_search)),
        ):
            aim = None if "words" in what else Floor("ratio", "at least", 5)
            sides = [
                Side(f"{what}: ours, SDK", calls, partial(portal.call, _call, mine, our, calls)),
                Side(f"{what}: theirs, SDK", calls, partial(portal.call, _call, its, their, calls)),
                Side(f"{what}: ours, thin", calls, partial(_call_thin, thin_mine, our, calls)),
                Side(f"{what}: theirs, thin", calls, partial(_call_thin, thin_its, their, calls)),
            ]
            taken = interleave(rounds, *sides)
            for client, (ours, theirs) in (("the SDK's", sides[:2]), ("a thin", sides[2:])):
                name = f"{what} with {entities:,} entities, {client} client"
                rows.append(rates(taken, ours.name, theirs.name, what=name, against=SERVER, floor=aim))
    return rows


@asynccontextmanager
async def _both(servers: _Servers, entities: int) -> AsyncIterator[tuple[Client, Client]]:
    """Start both servers, fill theirs with entities, and connect the SDK's clients."""
    async with Client(servers.ours()) as mine, Client(servers.theirs()) as its:
        _, filled = _their_entity(*map(_name, range(entities)))
        await _called(its, "create_entities", filled)
        yield mine, its


async def _at_once(servers: list[StdioServerParameters], entity: Callable[[str], Call]) -> list[str]:
    """Let a client of each server create entities concurrently; return their names."""
    names: list[str] = []

    async def write(client: Client, number: int) -> None:
        for one in range(EACH):
            name = f"entity {number}-{one} of many"
            await _called(client, *entity(name))
            names.append(name)

    async with AsyncExitStack() as opened:
        connected = [await opened.enter_async_context(Client(server)) for server in servers]
        async with anyio.create_task_group() as group:
            for number, client in enumerate(connected):
                group.start_soon(write, client, number)
    return names


async def _call(client: Client, next_call: Callable[[], Call], times: int) -> None:
    for _ in range(times):
        tool, arguments = next_call()
        answer = await _called(client, tool, arguments)
        assert any(answer.values()), (tool, arguments, answer)


def _call_thin(client: ThinClient, next_call: Callable[[], Call], times: int) -> None:
    for _ in range(times):
        tool, arguments = next_call()
        answer = client.call_tool(tool, arguments)
        assert any(answer.values()), (tool, arguments, answer)


async def _called(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    if result.is_error or result.structured_content is None:
        raise RuntimeError(f"{tool}: {result.content}")
    answer: dict[str, Any] = result.structured_content
    return answer


def _name(number: int) -> str:
    return f"library {number:06d}"


def _our_entity(name: str) -> Call:
    text = f"{name} is kept by the platform team"
    return "assert_fact", {"subject": name, "relation": "is_a", "object": "library", "source_text": text}


def _their_entity(*names: str) -> Call:
    entities = [
        {"name": name, "entityType": "library", "observations": [f"{name} is kept by the platform team"]}
        for name in names
    ]
    return "create_entities", {"entities": entities}


def _our_search(name: str) -> Call:
    return "query_facts", {"subject": name}


def _our_recall(name: str) -> Call:
    return "recall", {"query": name, "limit": 1}  # theirs returns the one matching entity too


def _their_search(name: str) -> Call:
    return "search_nodes", {"query": name}


if __name__ == "__main__":
    main()
