"""MCP tools over standard input and output, against a tool of the SDK that does nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters

from tests import launcher
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import ROOM, ROOT, Sizes, Stage, fill, given

OPEN = 100
LIMIT = 20

BUS = "tools"

Work = Callable[[int], Awaitable[None]]


def measure_tools(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `add_observation` and `get_active_observations` with a tool that does nothing."""
    fill(stage.bus(BUS).page("seen"), OPEN)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_tools(stage.url)) as (noop, add, active):
        reads = sizes.reads
        taken = interleave(
            sizes.rounds,
            Side("a no-op tool on the SDK", reads, partial(portal.call, noop, reads)),
            Side("MCP `add_observation`, stdio", reads, partial(portal.call, add, reads)),
            Side(
                f"MCP `get_active_observations`, {LIMIT} of {OPEN}, stdio", reads, partial(portal.call, active, reads)
            ),
        )
    nothing, added, read = taken
    return [
        times(taken, added, nothing, floor=Floor("ratio", "at most", 1.3)),
        times(taken, read, nothing, floor=Floor("ratio", "at most", 2)),
    ]


@asynccontextmanager
async def _tools(url: str) -> AsyncIterator[tuple[Work, Work, Work]]:
    """Start the servers; yield functions that call their tools a given number of times."""
    ours = ("-m", "scratchbus.cli", "mcp", "--tools", "all", "--agent", "bench", "--bus", BUS, "--url", url, "--page")
    numbers = count()

    def new() -> dict[str, Any]:
        return given(next(numbers))

    async with (
        _client("-m", "tests.benchmarks.noop_server") as nothing,
        _client(*ours, "added") as adding,
        _client(*ours, "seen") as seeing,
    ):
        yield (
            partial(_call, nothing, "noop", new),
            partial(_call, adding, "add_observation", new),
            partial(_call, seeing, "get_active_observations", lambda: {"limit": LIMIT}),
        )


def _client(*arguments: str) -> Client:
    environment = {**os.environ, "SCRATCHBUS_MAX_OBSERVATIONS": str(ROOM)}
    program, *arguments_ = launcher.command(*arguments)
    return Client(StdioServerParameters(command=program, args=arguments_, env=environment, cwd=str(ROOT)))


async def _call(client: Client, tool: str, arguments: Callable[[], dict[str, Any]], times: int) -> None:
    for _ in range(times):
        given = {"text": arguments()["content"]} if tool == "noop" else arguments()
        result = await client.call_tool(tool, given)
        if result.is_error:
            raise RuntimeError(f"{tool}: {result.content}")
